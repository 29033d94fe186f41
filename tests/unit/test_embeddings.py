"""What turns texts into vectors: the model in the package, and an endpoint somewhere."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import numpy as np
import pytest

from stigmergy.breadcrumbs.embeddings import OpenAIEmbedder, WordLlama, normalised
from stigmergy.errors import EmbedderUnavailable, Invalid


class _Endpoint(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = {"refused": 400, "busy": 429}.get(request["input"][0], 200)
        rows = [{"index": place, "embedding": [len(text), 1.0]} for place, text in enumerate(request["input"])]
        if self.headers.get("Authorization") != "Bearer k":
            status = 401
        body = json.dumps({"data": rows[::-1]}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Endpoint)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def openai(endpoint: str) -> Iterator[OpenAIEmbedder]:
    embedder = OpenAIEmbedder(endpoint, "m", 2, key="k")
    yield embedder
    embedder.close()


def test_an_endpoint_embeds_in_the_order_asked(openai: OpenAIEmbedder) -> None:
    rows = openai.embed(["abc", ""])
    assert np.allclose(rows, normalised([[3, 1], [0, 1]]))
    assert openai.embed([]).shape == (0, 2)


def test_an_endpoint_that_fails_says_whether_to_try_again(openai: OpenAIEmbedder, endpoint: str) -> None:
    with pytest.raises(Invalid):
        openai.embed(["refused"])
    with pytest.raises(EmbedderUnavailable, match="429"):
        openai.embed(["busy"])
    for wrong, message in (
        (OpenAIEmbedder(endpoint, "m", 2), "401"),
        (OpenAIEmbedder(endpoint, "m", 3, key="k"), "dimensions"),
        (OpenAIEmbedder("http://127.0.0.1:9", "m", 2), "cannot be reached"),
    ):
        with pytest.raises(EmbedderUnavailable, match=message):
            wrong.embed(["x"])
        wrong.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_default_model_knows_what_words_mean() -> None:
    model = WordLlama()
    rows = model.embed(["a cat on the sofa", "a kitten on the couch", "interest rates of the central bank", "", "🎉"])
    assert rows.shape == (5, model.dimensions)
    assert rows[0] @ rows[1] > rows[0] @ rows[2]
    assert np.isfinite(rows).all()
