"""Every route of a server, as the server itself describes them."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from support.server import Server


class Operation(NamedTuple):
    """One route. `example` is the body that its description gives, if it takes one."""

    id: str
    method: str
    path: str
    example: Any

    def address(self, id: str, **others: str) -> str:
        """Its path with these values; where nothing else is said, the id stands in all places."""
        parts = [others.get(part[1:-1], id) if part.startswith("{") else part for part in self.path.split("/")]
        return "/".join(parts)


def operations(server: Server) -> Iterator[Operation]:
    for path, methods in server.client().get("/openapi.json").json()["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            examples = [each["value"] for each in content.get("examples", {}).values()]
            yield Operation(operation["operationId"], method.upper(), path, examples[0] if examples else None)
