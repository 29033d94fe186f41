"""A change to match against, for the tests of matching: a `Subject` as plain as it can be."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Write:
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    before: dict[str, Any] | None = None
    context: dict[str, Any] = field(default_factory=dict[str, Any])
    tags: tuple[str, ...] = ()
    schema_name: str = "task.v1"
    collection: str = "tasks"
    event: str = "update"
    id: str = "t1"
    version: int = 2
    actor: str = "u1"
    cause: int | None = None
    depth: int = 0
    path: str = "users/u1/orch-chats/s1/tasks"
