"""`app.spaces`: what a program may do and ask, in its own words, for the tenant and entity that it acts for."""

from collections.abc import AsyncIterator, Iterable
from typing import Any

from stigmergy.kernel.database import Database
from stigmergy.kernel.namespace import Namespace
from stigmergy.kernel.transaction import Scope, Transaction
from stigmergy.runs.model import Part
from stigmergy.spaces import clients, commands, keeping, queries, service
from stigmergy.spaces.clients import ClientCall
from stigmergy.spaces.commands import Said
from stigmergy.spaces.following import Event, Following, say_typing
from stigmergy.spaces.keeping import Timing
from stigmergy.spaces.model import Client, Entity, Goal, GoalStatus, JsonObject, Memory, Plan, ServiceKey, Space
from stigmergy.spaces.queries import MemberView, Message, shown
from stigmergy.spaces.service import NewKey, Started, started


class Spaces(Namespace):
    def __init__(self, database: Database, scope: Scope) -> None:
        super().__init__(database, scope)
        self._me = scope.actor

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
        given = {"name": name, "about": about, "members": list(members), "id": id, "metadata": metadata}
        return await self._write(commands.create_space, self._me, **given)

    async def get(self, id: str) -> Space:
        return await self._read(queries.space, self._me, id)

    async def find(self, *, after: str = "", limit: int = 50) -> list[Space]:
        """The spaces that one is in, oldest first."""
        return await self._read(queries.spaces, self._me, after=after, limit=limit)

    async def change(self, id: str, *, if_match: int | None = None, **fields: Any) -> Space:
        """Change `name`, `about` or `metadata`."""
        return await self._write(commands.change_space, self._me, id, fields, if_match=if_match)

    async def delete(self, id: str) -> None:
        await self._write(commands.delete_space, self._me, id)

    async def members(self, id: str) -> list[MemberView]:
        return await self._read(queries.members, self._me, id)

    async def add(self, id: str, entity_id: str) -> MemberView:
        """Let somebody in."""
        return await self._write(add_shown, self._me, id, entity_id)

    async def remove(self, id: str, entity_id: str) -> None:
        """Let somebody go, or leave."""
        await self._write(commands.remove_member, self._me, id, entity_id)

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
        said = Said(content=content, id=id, mentions=mentions, reply_to=reply_to, parts=parts, metadata=metadata)
        return shown(await self._write(commands.post, self._me, space_id, said))

    async def messages(
        self, space_id: str, *, before: int | None = None, after: int | None = None, limit: int = 50
    ) -> list[Message]:
        """What was said, in order: the last of it, what was said before a number, or what was said after one."""
        below = {} if before is None else {"below": before}
        found = await self._read(queries.messages, self._me, space_id, after=after, limit=limit, **below)
        return [shown(message) for message in (found if after is not None else reversed(found))]

    async def message(self, space_id: str, message_id: str) -> Message:
        return shown(await self._read(queries.message, self._me, space_id, message_id))

    async def history(self, space_id: str, message_id: str, *, limit: int = 50) -> list[Message]:
        """Every version of a message, newest first."""
        found = await self._read(queries.message_history, self._me, space_id, message_id, limit=limit)
        return [shown(each) for each in found]

    async def edit(self, space_id: str, message_id: str, content: str, *, if_match: int | None = None) -> Message:
        return shown(await self._write(commands.edit, self._me, space_id, message_id, content, if_match=if_match))

    async def unsay(self, space_id: str, message_id: str, *, if_match: int | None = None) -> Message:
        """Take back what one said."""
        return shown(await self._write(commands.delete, self._me, space_id, message_id, if_match=if_match))

    async def processed(self, space_id: str, message_id: str) -> MemberView:
        """Say that one has dealt with everything up to this message."""
        return await self._write(mark_read, self._me, space_id, message_id)

    async def seen(self, space_id: str, message_id: str) -> list[MemberView]:
        """Who has dealt with a message."""
        return await self._read(queries.seen_by, self._me, space_id, message_id)

    async def typing(self, space_id: str, *, active: bool = True) -> None:
        """Say that one is writing, or no more. It may be lost, and is kept nowhere."""
        await self._read(queries.space, self._me, space_id)
        say_typing(self._database.bus, self._scope.tenant, space_id, self._me, active=active)

    def follow(self, space_id: str, *, after: int | None = None, text: bool = False) -> AsyncIterator[Event]:
        """Everything that happens there, in order; from now on, or after a position. With `text` also what agents write, while
        they write it."""
        return Following(self._database, self._me, space_id, self._scope, text=text).events(after)

    # ---- entities ----

    async def entities(self, *, after: str = "", limit: int = 50) -> list[Entity]:
        return await self._read(queries.entities, after=after, limit=limit)

    async def entity(self, entity_id: str | None = None) -> Entity:
        return await self._read(queries.entity, entity_id or self._me)

    async def rename(self, name: str, entity_id: str | None = None) -> Entity:
        """How one is called, in every space."""
        return await self._write(_rename, entity_id or self._me, name)

    # ---- what entities keep ----

    async def set_memory(self, key: str, value: Any, *, importance: float = 0.5, entity_id: str | None = None) -> Memory:
        return await self._write(keeping.set_memory, entity_id or self._me, key, value, importance)

    async def memories(self, *, entity_id: str | None = None, limit: int = 50) -> list[Memory]:
        return await self._read(keeping.memories_of, entity_id or self._me, limit)

    async def delete_memory(self, key: str, *, entity_id: str | None = None) -> None:
        await self._write(keeping.delete_memory, entity_id or self._me, key)

    async def add_goal(self, text: str, *, priority: int = 0, entity_id: str | None = None) -> Goal:
        return await self._write(keeping.add_goal, entity_id or self._me, text, priority)

    async def change_goal(self, id: str, *, entity_id: str | None = None, **fields: Any) -> Goal:
        return await self._write(keeping.change_goal, entity_id or self._me, id, **fields)

    async def goals(self, *, status: GoalStatus | None = None, entity_id: str | None = None) -> list[Goal]:
        return await self._read(keeping.goals_of, entity_id or self._me, status)

    async def delete_goal(self, id: str, *, entity_id: str | None = None) -> None:
        await self._write(keeping.delete_goal, entity_id or self._me, id)

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
        timing = Timing(at=at, after_ms=after_ms, cron=cron, time_zone=time_zone)
        return await self._write(keeping.add_plan, entity_id, self._me, what, timing)

    async def plans(self, entity_id: str) -> list[Plan]:
        return await self._read(keeping.plans_of, entity_id)

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
        timing = Timing(at=at, after_ms=after_ms, cron=cron, time_zone=time_zone)
        return await self._write(keeping.change_plan, entity_id, id, what=what, enabled=enabled, timing=timing)

    async def delete_plan(self, entity_id: str, id: str) -> None:
        await self._write(keeping.delete_plan, entity_id, id)

    # ---- user interfaces that answer client tools ----

    async def connect(self, name: str = "", *, tools: Iterable[str] = ()) -> Client:
        """A client that answers these tools for one; none named are all. It is to `stay` within two minutes, again and again."""
        return await self._write(clients.connect, self._me, name, list(tools))

    async def stay(self, client_id: str) -> Client:
        return await self._write(clients.stay, self._me, client_id)

    async def disconnect(self, client_id: str) -> None:
        await self._write(clients.disconnect, self._me, client_id)

    async def clients(self) -> list[Client]:
        return await self._read(clients.clients_of, self._me)

    async def calls(self, client_id: str) -> list[ClientCall]:
        """The calls that wait for this client, the oldest first."""
        return await self._read(clients.calls_for, self._me, client_id)

    async def answer_call(
        self, client_id: str, run_id: str, call_id: str, result: Any = None, *, error: str | None = None
    ) -> Started:
        given = {"result": result, "error": error}
        return started(await self._write(clients.answer_call, self._me, client_id, run_id, call_id, **given))

    # ---- programs outside ----

    async def create_key(self, agent: str, *, note: str = "") -> NewKey:
        """A key with which a program outside starts this agent. Its text is shown this once."""
        return await self._write(service.create_key, agent, service.new_secret(), note=note)

    async def keys(self, agent: str) -> list[ServiceKey]:
        return await self._read(service.keys_of, agent)

    async def revoke_key(self, agent: str, id: str) -> ServiceKey:
        return await self._write(service.revoke_key, agent, id)

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
        presented = service.parse_key(key)
        scope = Scope(presented.tenant, f"service:{presented.id}")
        run = await self._database.write(
            service.trigger, agent, presented, instruction, metadata=metadata, idempotency_key=idempotency_key, scope=scope
        )
        return started(run)


async def add_shown(tx: Transaction, me: str, space_id: str, entity_id: str) -> MemberView:
    await commands.add_member(tx, me, space_id, entity_id)
    return await queries.member(tx, me, space_id, entity_id)


async def mark_read(tx: Transaction, me: str, space_id: str, message_id: str) -> MemberView:
    await commands.mark_processed(tx, me, space_id, message_id)
    return await queries.member(tx, me, space_id, me)


async def _rename(tx: Transaction, entity_id: str, name: str) -> Entity:
    await commands.ensure_entity(tx, entity_id)
    return await commands.rename(tx, entity_id, name)
