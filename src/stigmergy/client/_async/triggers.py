"""`stigmergy.triggers` and `stigmergy.deliveries`: what these are in the program itself."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from stigmergy.breadcrumbs.model import JsonObject
from stigmergy.client import trigger_wire as wire
from stigmergy.client._async.http import Http
from stigmergy.client.calls import Call, an_id, path_of, read
from stigmergy.kernel.rules import Diagnostic, Rule
from stigmergy.triggers import queries
from stigmergy.triggers.lint import Finding
from stigmergy.triggers.model import Delivery, Status
from stigmergy.triggers.queries import Shown, Supposed, Told

PAGE = 500


class Triggers:
    def __init__(self, http: Http) -> None:
        self._http = http

    async def add(self, definition: Mapping[str, Any], *, if_match: int | None = None) -> Rule:
        """Add a trigger, or replace the one with its id."""
        fields = {name: value for name, value in definition.items() if name != "id"}
        call = Call("PUT", _trigger(str(definition.get("id", ""))), body=fields, if_match=if_match)
        return wire.rule(await self._http.call(call))

    async def add_all(self, definitions: Any) -> list[Rule]:
        """All of a list, in one transaction, or none."""
        call = Call("POST", "/v1/triggers/bulk", body=_as_a_file(definitions))
        return [wire.rule(each) for each in wire.items(await self._http.call(call))]

    async def get(self, id: str) -> Rule:
        return wire.rule(await self._http.call(read(_trigger(id))))

    async def all(self) -> list[Rule]:
        """The triggers that hold here, by id: the tenant's own, and those of the program."""
        found: list[Rule] = []
        while True:
            params = {"limit": PAGE, "cursor": found[-1].id if found else None}
            page = await self._http.call(read("/v1/triggers", params))
            found += [wire.rule(each) for each in wire.items(page)]
            if page["cursor"] is None:
                return found

    async def delete(self, id: str, *, if_match: int | None = None) -> None:
        await self._http.call(Call("DELETE", _trigger(id), if_match=if_match))

    async def check(self, definitions: Any) -> list[Finding]:
        """What looks wrong about definitions that are right; `Invalid` for those that are not. Nothing is stored."""
        call = Call("POST", "/v1/triggers/check", body=_as_a_file(definitions), is_read=True)
        return wire.findings(await self._http.call(call))

    async def test(self, change: Mapping[str, Any] | Supposed | int) -> list[Told]:
        """Which triggers a change would fire, and why not the others: one that is only supposed, or one of the journal."""
        body: Any = {"seq": change} if isinstance(change, int) else msgspec.to_builtins(change)
        return wire.told(await self._http.call(Call("POST", "/v1/triggers/test", body=body, is_read=True)))

    async def diagnostics(self, id: str) -> list[Diagnostic]:
        """What went wrong while a trigger was matched, newest first."""
        return wire.diagnostics(await self._http.call(read(_trigger(id, "diagnostics"))), id)


class Deliveries:
    def __init__(self, http: Http) -> None:
        self._http = http

    async def find(
        self, *, status: Status | None = None, trigger: str | None = None, limit: int = 50, below: str = queries.NEWEST
    ) -> list[Delivery]:
        """Newest first; the id of the last one, as `below`, asks for what follows."""
        params = {"status": status, "trigger": trigger, "limit": limit, "cursor": below}
        return [wire.delivery(each) for each in wire.items(await self._http.call(read("/v1/deliveries", params)))]

    async def get(self, id: str) -> Shown:
        return wire.shown(await self._http.call(read(_delivery(id))))

    async def event(self, id: str) -> JsonObject:
        """What its receiver is told."""
        return await self._http.call(read(_delivery(id, "event")))

    async def retry(self, id: str) -> Delivery:
        """Hand a dead one over once more."""
        return wire.delivery(await self._http.call(Call("POST", _delivery(id, "retry"))))

    async def retry_all(self, trigger: str) -> int:
        """The same for every dead one of a trigger. Gives how many."""
        return (await self._http.call(Call("POST", _trigger(trigger, "retry"))))["retried"]

    async def discard(self, id: str) -> Delivery:
        """Give one up."""
        return wire.delivery(await self._http.call(Call("POST", _delivery(id, "discard"))))


def _as_a_file(definitions: Sequence[Any] | Mapping[str, Any]) -> Any:
    """As a file has them: an object with a list in it."""
    return definitions if isinstance(definitions, Mapping) else {"triggers": definitions}


def _trigger(id: str, *rest: str) -> str:
    return path_of("/v1/triggers", an_id(id, "trigger"), *rest)


def _delivery(id: str, *rest: str) -> str:
    return path_of("/v1/deliveries", an_id(id, "delivery"), *rest)
