"""`/v1/spaces`: the spaces of whoever asks, and who is in them. Who is no member is told that there is no such space."""

from typing import Annotated, Any

import msgspec
from litestar import Controller, delete, get, patch, post, put
from litestar.params import JSONBody, PathParameter
from msgspec import UNSET

from stigmergy.api import wire
from stigmergy.api.auth import claims_of
from stigmergy.api.requests import AnyRequest, Cursor, IdempotencyKey, IfMatch, once, read, write
from stigmergy.api.responses import JsonResponse
from stigmergy.api.space_shapes import (
    MemberOut,
    MembersOut,
    ReadIn,
    SpaceChangeIn,
    SpaceIn,
    SpaceOut,
    SpacePage,
    TypingIn,
    out,
)
from stigmergy.kernel.transaction import Transaction
from stigmergy.spaces import commands, queries
from stigmergy.spaces.following import say_typing
from stigmergy.spaces.model import Space
from stigmergy.spaces.namespace import add_shown, mark_read

Id = Annotated[str, PathParameter(description="A space's id.")]
EntityId = Annotated[str, PathParameter(description="An entity's id, such as `mia` or `agent:researcher`.")]


def answer(space: Space, status: int = 200) -> JsonResponse[SpaceOut]:
    return JsonResponse(out(SpaceOut, space), status_code=status, headers={"ETag": wire.etag(space.version)})


class SpaceRoutes(Controller):
    path = "/v1/spaces"
    tags = ("spaces",)

    @get(summary="The spaces that one is in", operation_id="list_spaces")
    async def find(self, request: AnyRequest, limit: wire.Limit = 50, cursor: Cursor = None) -> SpacePage:
        found: list[Space] = await read(request, queries.spaces, _me(request), after=cursor or "", limit=limit)
        return SpacePage([out(SpaceOut, space) for space in found], found[-1].id if len(found) == limit else None)

    @post(summary="Make a space", operation_id="create_space")
    async def create(self, request: AnyRequest, data: JSONBody[SpaceIn], key: IdempotencyKey = None) -> JsonResponse[SpaceOut]:
        body = await request.body() if key is not None else b""
        return answer(await write(request, _create, _me(request), data, key, body), 201)

    @get("/{id:str}", summary="One space", operation_id="get_space")
    async def one(self, request: AnyRequest, id: Id) -> JsonResponse[SpaceOut]:
        return answer(await read(request, queries.space, _me(request), id))

    @patch("/{id:str}", summary="Change its name, what it is about or its metadata", operation_id="patch_space")
    async def change(
        self, request: AnyRequest, id: Id, data: JSONBody[SpaceChangeIn], if_match: IfMatch = None
    ) -> JsonResponse[SpaceOut]:
        fields = {name: value for name, value in msgspec.structs.asdict(data).items() if value is not UNSET}
        changed = await write(request, commands.change_space, _me(request), id, fields, if_match=wire.expected(if_match))
        return answer(changed)

    @delete("/{id:str}", summary="Close a space; its owner's to do", operation_id="delete_space")
    async def remove(self, request: AnyRequest, id: Id) -> None:
        await write(request, commands.delete_space, _me(request), id)

    @get("/{id:str}/members", summary="Who is in it, and how far they have read", operation_id="list_members")
    async def members(self, request: AnyRequest, id: Id) -> MembersOut:
        found = await read(request, queries.members, _me(request), id)
        return MembersOut([out(MemberOut, member) for member in found])

    @put("/{id:str}/members/{entity_id:str}", summary="Let somebody in", operation_id="add_member")
    async def add(self, request: AnyRequest, id: Id, entity_id: EntityId) -> MemberOut:
        return out(MemberOut, await write(request, add_shown, _me(request), id, entity_id))

    @delete("/{id:str}/members/{entity_id:str}", summary="Let somebody go, or leave", operation_id="remove_member")
    async def let_go(self, request: AnyRequest, id: Id, entity_id: EntityId) -> None:
        await write(request, commands.remove_member, _me(request), id, entity_id)

    @post("/{id:str}/read", status_code=200, summary="Say how far one has read", operation_id="mark_read")
    async def mark_read(self, request: AnyRequest, id: Id, data: JSONBody[ReadIn]) -> MemberOut:
        return out(MemberOut, await write(request, mark_read, _me(request), id, data.message_id))

    @post("/{id:str}/typing", status_code=204, summary="Say that one is writing, or no more", operation_id="say_typing")
    async def typing(self, request: AnyRequest, id: Id, data: JSONBody[TypingIn]) -> None:
        claims = claims_of(request)
        claims.demand("write")
        await read(request, queries.space, claims.entity, id)
        say_typing(request.app.state.database.bus, claims.tenant, id, claims.entity, active=data.active)


def _me(request: AnyRequest) -> str:
    return claims_of(request).entity


# ---- units of work: a command, and its answer in the same transaction ----


async def _create(tx: Transaction, me: str, data: SpaceIn, key: str | None, body: bytes) -> Space:
    async def make() -> Space:
        return await commands.create_space(
            tx, me, name=data.name, about=data.about, members=data.members, id=data.id, metadata=data.metadata
        )

    return await once(tx, "create_space", key, body, make, Space)


# ---- for the description of the API ----

SHAPES: tuple[Any, ...] = (SpaceIn, SpaceChangeIn, SpaceOut, SpacePage, MemberOut, MembersOut, ReadIn, TypingIn)
MORE: dict[str, tuple[int, ...]] = {
    "create_space": (404, 409),
    "get_space": (404,),
    "patch_space": (404, 412),
    "delete_space": (404, 409),
    "list_members": (404,),
    "add_member": (404, 409),
    "remove_member": (404,),
    "mark_read": (404,),
    "say_typing": (404,),
}
TAGGED = {"create_space", "get_space", "patch_space"}
EXAMPLES: dict[str, Any] = {
    "create_space": {"name": "The report", "about": "Who writes what, and by when.", "members": ["tom"]},
    "patch_space": {"about": "Who writes what, by Friday.", "metadata": {"project": "report"}},
    "mark_read": {"message_id": "01890a5d-ac96-774b-bcce-b302099a8057"},
    "say_typing": {"active": True},
}
