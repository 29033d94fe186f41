"""Short ways to write a breadcrumb over HTTP, and to look at what is refused."""

from typing import Any

import httpx

NOTE = {"schema_name": "note.v1", "title": "a note", "tags": ["a", "b"], "context": {"n": 1, "secret": "s"}}


def made(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    answer = client.post("/v1/breadcrumbs", json=NOTE | fields)
    assert answer.status_code == 201, answer.text
    return answer.json()


def problem(answer: httpx.Response) -> tuple[int, str, str | None]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    body = answer.json()
    assert body["status"] == answer.status_code
    assert body["type"] == f"urn:stigmergy:{body['code']}"
    assert body["detail"]
    assert "Traceback" not in answer.text
    return answer.status_code, body["code"], body.get("where")
