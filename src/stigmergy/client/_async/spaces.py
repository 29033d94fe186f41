"""`stigmergy.spaces`: what `App.spaces` is in the program itself."""

from collections.abc import AsyncIterator, Iterable
from typing import Any

from stigmergy.client import space_wire as wire
from stigmergy.client._async.http import Http
from stigmergy.client.calls import Call, an_id, entity_path, path_of, read, space_path
from stigmergy.kernel.ids import new_id
from stigmergy.runs.model import Part
from stigmergy.spaces.clients import ClientCall
from stigmergy.spaces.following import Event
from stigmergy.spaces.model import Client, Entity, Goal, GoalStatus, JsonObject, Memory, Plan, ServiceKey, Space
from stigmergy.spaces.queries import MemberView, Message
from stigmergy.spaces.service import NewKey, Started


class Spaces:
    def __init__(self, http: Http) -> None:
        self._http = http

    # ---- spaces and their members ----

    async def create(
        self,
        name: str = "",
        *,
        members: Iterable[str] = (),
        about: str = "",
        id: str | None = None,
        metadata: JsonObject | None = None,
    ) -> Space:
        """A new space, with its owner and these in it. An agent's entity is `agent:NAME`."""
        body = wire.given(name=name, about=about, members=list(members), id=id, metadata=metadata)
        return wire.one(await self._http.call(Call("POST", "/v1/spaces", body=body, key=new_id())), Space)

    async def get(self, id: str) -> Space:
        return wire.one(await self._http.call(read(space_path(id))), Space)

    async def find(self, *, after: str = "", limit: int = 50) -> list[Space]:
        """The spaces that one is in, oldest first."""
        return wire.items(await self._http.call(read("/v1/spaces", {"cursor": after or None, "limit": limit})), Space)

    async def change(self, id: str, *, if_match: int | None = None, **fields: Any) -> Space:
        """Change `name`, `about` or `metadata`."""
        return wire.one(await self._http.call(Call("PATCH", space_path(id), body=fields, if_match=if_match)), Space)

    async def delete(self, id: str) -> None:
        await self._http.call(Call("DELETE", space_path(id)))

    async def members(self, id: str) -> list[MemberView]:
        return wire.items(await self._http.call(read(space_path(id, "members"))), MemberView)

    async def add(self, id: str, entity_id: str) -> MemberView:
        """Let somebody in."""
        return wire.one(await self._http.call(Call("PUT", space_path(id, "members", entity_id))), MemberView)

    async def remove(self, id: str, entity_id: str) -> None:
        """Let somebody go, or leave."""
        await self._http.call(Call("DELETE", space_path(id, "members", entity_id)))

    # ---- messages ----

    async def post(
        self,
        space_id: str,
        content: str,
        *,
        id: str | None = None,
        mentions: list[str] | None = None,
        reply_to: str | None = None,
        parts: list[Part] | None = None,
        metadata: JsonObject | None = None,
    ) -> Message:
        """Say something. Whom it names with `@Name` acts; with an `id` of one's own it is one message, however often sent."""
        body = wire.given(content=content, id=id, mentions=mentions, reply_to=reply_to, parts=parts, metadata=metadata)
        return wire.one(await self._http.call(Call("POST", space_path(space_id, "messages"), body=body, key=new_id())), Message)

    async def messages(
        self, space_id: str, *, before: int | None = None, after: int | None = None, limit: int = 50
    ) -> list[Message]:
        """What was said, in order: the last of it, what was said before a number, or what was said after one."""
        params = {"cursor": before, "after": after, "limit": limit}
        found = wire.items(await self._http.call(read(space_path(space_id, "messages"), params)), Message)
        return found if after is not None else found[::-1]

    async def message(self, space_id: str, message_id: str) -> Message:
        return wire.one(await self._http.call(read(space_path(space_id, "messages", message_id))), Message)

    async def history(self, space_id: str, message_id: str, *, limit: int = 50) -> list[Message]:
        """Every version of a message, newest first."""
        path = space_path(space_id, "messages", message_id, "history")
        return wire.items(await self._http.call(read(path, {"limit": limit})), Message)

    async def edit(self, space_id: str, message_id: str, content: str, *, if_match: int | None = None) -> Message:
        path, body = space_path(space_id, "messages", message_id), {"content": content}
        return wire.one(await self._http.call(Call("PATCH", path, body=body, if_match=if_match)), Message)

    async def unsay(self, space_id: str, message_id: str, *, if_match: int | None = None) -> Message:
        """Take back what one said."""
        path = space_path(space_id, "messages", message_id)
        return wire.one(await self._http.call(Call("DELETE", path, if_match=if_match)), Message)

    async def processed(self, space_id: str, message_id: str) -> MemberView:
        """Say that one has dealt with everything up to this message."""
        call = Call("POST", space_path(space_id, "read"), body={"message_id": message_id})
        return wire.one(await self._http.call(call), MemberView)

    async def seen(self, space_id: str, message_id: str) -> list[MemberView]:
        """Who has dealt with a message."""
        return wire.items(await self._http.call(read(space_path(space_id, "messages", message_id, "seen"))), MemberView)

    async def typing(self, space_id: str, *, active: bool = True) -> None:
        """Say that one is writing, or no more. It may be lost, and is kept nowhere."""
        await self._http.call(Call("POST", space_path(space_id, "typing"), body={"active": active}))

    async def follow(self, space_id: str, *, after: int | None = None, text: bool = False) -> AsyncIterator[Event]:
        """Everything that happens there, in order; from now on, or after a position. With `text` also what agents write, while
        they write it. It comes back by itself when the connection is lost."""
        call = read(space_path(space_id, "events"), {"text": "true" if text else None})
        async for event in self._http.follow(call, after, wire.event):
            yield event

    # ---- entities ----

    async def entities(self, *, after: str = "", limit: int = 50) -> list[Entity]:
        return wire.items(await self._http.call(read("/v1/entities", {"cursor": after or None, "limit": limit})), Entity)

    async def entity(self, entity_id: str | None = None) -> Entity:
        return wire.one(await self._http.call(read(entity_path(entity_id))), Entity)

    async def rename(self, name: str, entity_id: str | None = None) -> Entity:
        """How one is called, in every space."""
        return wire.one(await self._http.call(Call("PATCH", entity_path(entity_id), body={"name": name})), Entity)

    # ---- what entities keep ----

    async def set_memory(self, key: str, value: Any, *, importance: float = 0.5, entity_id: str | None = None) -> Memory:
        path, body = entity_path(entity_id, "memories", key), {"value": value, "importance": importance}
        return wire.one(await self._http.call(Call("PUT", path, body=body)), Memory)

    async def memories(self, *, entity_id: str | None = None, limit: int = 50) -> list[Memory]:
        return wire.items(await self._http.call(read(entity_path(entity_id, "memories"), {"limit": limit})), Memory)

    async def delete_memory(self, key: str, *, entity_id: str | None = None) -> None:
        await self._http.call(Call("DELETE", entity_path(entity_id, "memories", key)))

    async def add_goal(self, text: str, *, priority: int = 0, entity_id: str | None = None) -> Goal:
        body = {"text": text, "priority": priority}
        return wire.one(await self._http.call(Call("POST", entity_path(entity_id, "goals"), body=body)), Goal)

    async def change_goal(self, id: str, *, entity_id: str | None = None, **fields: Any) -> Goal:
        return wire.one(await self._http.call(Call("PATCH", entity_path(entity_id, "goals", id), body=fields)), Goal)

    async def goals(self, *, status: GoalStatus | None = None, entity_id: str | None = None) -> list[Goal]:
        return wire.items(await self._http.call(read(entity_path(entity_id, "goals"), {"status": status})), Goal)

    async def delete_goal(self, id: str, *, entity_id: str | None = None) -> None:
        await self._http.call(Call("DELETE", entity_path(entity_id, "goals", id)))

    async def plan(
        self,
        entity_id: str,
        what: str,
        *,
        at: str | None = None,
        after_ms: int | None = None,
        cron: str | None = None,
        time_zone: str | None = None,
    ) -> Plan:
        """Have an agent (`agent:NAME`) do something at a moment, after a while, or as a cron expression says."""
        body = wire.given(what=what, at=at, after_ms=after_ms, cron=cron, time_zone=time_zone)
        return wire.one(await self._http.call(Call("POST", entity_path(entity_id, "plans"), body=body)), Plan)

    async def plans(self, entity_id: str) -> list[Plan]:
        return wire.items(await self._http.call(read(entity_path(entity_id, "plans"))), Plan)

    async def change_plan(
        self,
        entity_id: str,
        id: str,
        *,
        what: str | None = None,
        enabled: bool | None = None,
        at: str | None = None,
        after_ms: int | None = None,
        cron: str | None = None,
        time_zone: str | None = None,
    ) -> Plan:
        """Say another thing or another time; stop a plan, and let it go on."""
        body = wire.given(what=what, enabled=enabled, at=at, after_ms=after_ms, cron=cron, time_zone=time_zone)
        return wire.one(await self._http.call(Call("PATCH", entity_path(entity_id, "plans", id), body=body)), Plan)

    async def delete_plan(self, entity_id: str, id: str) -> None:
        await self._http.call(Call("DELETE", entity_path(entity_id, "plans", id)))

    # ---- user interfaces that answer client tools ----

    async def connect(self, name: str = "", *, tools: Iterable[str] = ()) -> Client:
        """A client that answers these tools for one; none named are all. It is to `stay` within two minutes, again and again."""
        body = {"name": name, "tools": list(tools)}
        return wire.one(await self._http.call(Call("POST", "/v1/clients", body=body)), Client)

    async def stay(self, client_id: str) -> Client:
        return wire.one(await self._http.call(Call("POST", path_of("/v1/clients", an_id(client_id), "heartbeat"))), Client)

    async def disconnect(self, client_id: str) -> None:
        await self._http.call(Call("DELETE", path_of("/v1/clients", an_id(client_id))))

    async def clients(self) -> list[Client]:
        return wire.items(await self._http.call(read("/v1/clients")), Client)

    async def calls(self, client_id: str) -> list[ClientCall]:
        """The calls that wait for this client, the oldest first."""
        return wire.items(await self._http.call(read(path_of("/v1/clients", an_id(client_id), "calls"))), ClientCall)

    async def answer_call(
        self, client_id: str, run_id: str, call_id: str, result: Any = None, *, error: str | None = None
    ) -> Started:
        body = {"run_id": run_id, "call_id": call_id, "result": result, "error": error}
        return wire.one(
            await self._http.call(Call("POST", path_of("/v1/clients", an_id(client_id), "results"), body=body)), Started
        )

    # ---- programs outside ----

    async def create_key(self, agent: str, *, note: str = "") -> NewKey:
        """A key with which a program outside starts this agent. Its text is shown this once."""
        return wire.new_key(await self._http.call(Call("POST", path_of("/v1/agents", an_id(agent), "keys"), body={"note": note})))

    async def keys(self, agent: str) -> list[ServiceKey]:
        return wire.items(await self._http.call(read(path_of("/v1/agents", an_id(agent), "keys"))), ServiceKey)

    async def revoke_key(self, agent: str, id: str) -> ServiceKey:
        return wire.one(await self._http.call(Call("DELETE", path_of("/v1/agents", an_id(agent), "keys", an_id(id)))), ServiceKey)

    async def trigger(
        self,
        agent: str,
        key: str,
        instruction: str,
        *,
        metadata: JsonObject | None = None,
        idempotency_key: str | None = None,
    ) -> Started:
        """What a program outside does with its key."""
        body, path = wire.given(instruction=instruction, metadata=metadata), path_of("/v1/agents", an_id(agent), "trigger")
        return wire.one(await self._http.call(Call("POST", path, body=body, key=idempotency_key or new_id(), token=key)), Started)
