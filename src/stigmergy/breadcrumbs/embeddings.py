"""Embeddings: the port that turns texts into vectors, and what stands behind it.

`embed` blocks and is called in a thread, never in a unit of work. Its rows are of length 1, so that their product is the cosine;
a text in which the model finds nothing has a row of zeros, and is stored without a vector.
"""

import importlib
import threading
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

import httpx
import msgspec
import numpy as np
from numpy.typing import NDArray

from stigmergy.errors import EmbedderUnavailable, Invalid
from stigmergy.settings import Settings

Vectors: TypeAlias = NDArray[np.float32]


class Embedder(Protocol):
    """`name` says which model made a vector: vectors of different names are never compared."""

    @property
    def name(self) -> str: ...

    @property
    def dimensions(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """A row for each text. `Invalid` when a text cannot be embedded, `EmbedderUnavailable` when it may work later."""
        ...


def normalised(rows: Any) -> Vectors:
    matrix = np.asarray(rows, dtype=np.float32)
    matrix = np.where(np.isfinite(matrix), matrix, np.float32(0))
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return np.ascontiguousarray(matrix / np.where(lengths == 0, 1, lengths), dtype=np.float32)


class WordLlama:
    """Word vectors, averaged: no download, no GPU, 10,000 short texts a second. Loaded by the first text, in a second or two."""

    name = "wordllama/l2_supercat_256"
    dimensions = 256

    def embed(self, texts: Sequence[str]) -> Vectors:
        with _alone:
            return normalised(_load_wordllama().embed(list(texts)))


_alone = threading.Lock()


@lru_cache(1)
def _load_wordllama() -> Any:
    """The model, once for all stores of a process."""
    try:
        package: Any = importlib.import_module("wordllama")  # slow to import, so only where it is used
        # the model and its tokenizer are in the package; it looks for the tokenizer in the cache folder only
        return package.WordLlama.load(cache_dir=Path(package.__file__).parent, disable_download=True)
    except (ImportError, OSError) as error:
        raise EmbedderUnavailable(f"wordllama cannot be loaded ({error}); install it again, or set another embedder") from error


class _Embedding(msgspec.Struct):
    index: int
    embedding: list[float]


class _Answer(msgspec.Struct):
    data: list[_Embedding]


class OpenAIEmbedder:
    """Any endpoint that speaks OpenAI's `POST /embeddings`. `url` is what comes before that, such as `http://localhost:11434/v1`."""

    def __init__(self, url: str, model: str, dimensions: int, *, key: str | None = None, timeout: float = 30.0) -> None:
        self.name = model
        self.dimensions = dimensions
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._url = f"{url.rstrip('/')}/embeddings"
        self._client = httpx.Client(headers=headers, timeout=timeout)

    def embed(self, texts: Sequence[str]) -> Vectors:
        if not texts:
            return np.zeros((0, self.dimensions), dtype=np.float32)
        try:
            answer = self._client.post(self._url, json={"model": self.name, "input": list(texts)})
        except httpx.HTTPError as error:
            raise EmbedderUnavailable(f"{self._url} cannot be reached ({error!r}); check the address and try again") from error
        if answer.status_code in (400, 413, 422):
            raise Invalid(f"{self.name} cannot embed this: {answer.text[:200]}", code="not_embeddable")
        if answer.status_code != 200:
            raise EmbedderUnavailable(f"{self._url} answers {answer.status_code}: {answer.text[:200]}; check key and address")
        return normalised(self._rows(answer.content, len(texts)))

    def _rows(self, body: bytes, wanted: int) -> list[list[float]]:
        try:
            found = sorted(msgspec.json.decode(body, type=_Answer).data, key=lambda each: each.index)
        except msgspec.DecodeError as error:
            raise EmbedderUnavailable(f"{self._url} does not answer as an OpenAI endpoint does ({error})") from error
        rows = [each.embedding for each in found]
        if len(rows) != wanted or any(len(row) != self.dimensions for row in rows):
            raise EmbedderUnavailable(
                f"{self._url} gave {len(rows)} vectors of {sorted({len(row) for row in rows})} numbers"
                f" for {wanted} texts of {self.dimensions}; set the dimensions that {self.name} has"
            )
        return rows

    def close(self) -> None:
        self._client.close()


class NoEmbedder:
    """No vectors at all: for who wants search by words alone."""

    name = "off"
    dimensions = 0

    def embed(self, texts: Sequence[str]) -> Vectors:
        return np.zeros((len(texts), 0), dtype=np.float32)


def open_embedder(settings: Settings) -> Embedder:
    """What the settings name."""
    if settings.embedder == "off":
        return NoEmbedder()
    if settings.embedder == "wordllama":
        return WordLlama()
    if not settings.embedder.startswith(("http://", "https://")):
        raise Invalid("an embedder is `wordllama`, `off`, or the URL of an OpenAI-compatible endpoint", "embedder")
    return OpenAIEmbedder(settings.embedder, settings.embedder_model, settings.embedder_dimensions, key=settings.embedder_key)


def as_vector(stored: bytes | list[float]) -> Vectors:
    """A vector as its row has it: bytes in SQLite, numbers in PostgreSQL."""
    found = np.frombuffer(stored, dtype="<f4") if isinstance(stored, bytes) else np.asarray(stored, dtype=np.float32)
    return cast(Vectors, found)
