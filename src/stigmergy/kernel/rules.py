"""Rules: what a change sets off, kept as records and matched in the writing transaction.

A rule has a `kind`; the part it belongs to says with a starter what a firing of that kind writes. What a starter writes is
caused by the change, one deeper in its chain, and is journalled and matched in turn up to the rule's depth limit.
A tenant's rules are its own and those of the shared tenant, which come from the program's code.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from stigmergy.kernel.record import Record, declare

RuleVersions = tuple[int, int]
SHARED = "*"


class RuleBook:
    def __init__(self) -> None:
        pass

    def forget(self) -> None:
        pass

    async def fire(self, tx: Any, fresh: list[Any]) -> None:
        versions = await tx.rule_versions()
        if versions == (0, 0):
            return
