"""`/v1/spaces/{id}/messages`: what is said in a space, and what was changed or taken back of it."""

from typing import Annotated, Any

from litestar import Controller, delete, get, patch, post
from litestar.params import JSONBody, PathParameter, QueryParameter

from stigmergy.api import wire
from stigmergy.api.auth import claims_of
from stigmergy.api.events import position
from stigmergy.api.requests import AnyRequest, Cursor, IdempotencyKey, IfMatch, once, read, write
from stigmergy.api.responses import JsonResponse
from stigmergy.api.space_shapes import (
    EditIn,
    MemberOut,
    MembersOut,
    MessageIn,
    MessageOut,
    MessagePage,
    message_out,
    out,
)
from stigmergy.errors import Invalid
from stigmergy.kernel.transaction import Transaction
from stigmergy.spaces import commands, queries
from stigmergy.spaces.queries import shown

SpaceId = Annotated[str, PathParameter(description="A space's id.")]
Id = Annotated[str, PathParameter(description="A message's id.")]
After = Annotated[str | None, QueryParameter(description="Only what was said after the message with this `seq`, in order.")]


def answer(message: queries.Message, status: int = 200) -> JsonResponse[MessageOut]:
    return JsonResponse(message_out(message), status_code=status, headers={"ETag": wire.etag(message.version)})


class MessageRoutes(Controller):
    path = "/v1/spaces/{id:str}/messages"
    tags = ("spaces",)

    @post(summary="Say something", operation_id="post_message")
    async def say(
        self, request: AnyRequest, id: SpaceId, data: JSONBody[MessageIn], key: IdempotencyKey = None
    ) -> JsonResponse[MessageOut]:
        body = await request.body() if key is not None else b""
        return answer(await write(request, _post, claims_of(request).entity, id, data, key, body), 201)

    @get(summary="What was said, newest first", operation_id="list_messages")
    async def find(
        self, request: AnyRequest, id: SpaceId, limit: wire.Limit = 50, cursor: Cursor = None, after: After = None
    ) -> MessagePage:
        if cursor is not None and after is not None:
            raise Invalid("give a cursor, or a position to go on after, not both", "after")
        start = position(after)
        where = {"below": wire.below(cursor), "after": None if start is None else int(start)}
        found = await read(request, queries.messages, claims_of(request).entity, id, limit=limit, **where)
        older = start is None and len(found) == limit and found[-1].pos > 1
        return MessagePage([message_out(shown(message)) for message in found], str(found[-1].pos) if older else None)

    @get("/{message_id:str}", summary="One message", operation_id="get_message")
    async def one(self, request: AnyRequest, id: SpaceId, message_id: Id) -> JsonResponse[MessageOut]:
        return answer(shown(await read(request, queries.message, claims_of(request).entity, id, message_id)))

    @get("/{message_id:str}/history", summary="Its versions, newest first", operation_id="get_message_history")
    async def history(self, request: AnyRequest, id: SpaceId, message_id: Id, limit: wire.Limit = 50) -> MessagePage:
        found = await read(request, queries.message_history, claims_of(request).entity, id, message_id, limit=limit)
        return MessagePage([message_out(shown(message)) for message in found], None)

    @get("/{message_id:str}/seen", summary="Who has read it", operation_id="get_message_seen")
    async def seen(self, request: AnyRequest, id: SpaceId, message_id: Id) -> MembersOut:
        found = await read(request, queries.seen_by, claims_of(request).entity, id, message_id)
        return MembersOut([out(MemberOut, member) for member in found])

    @patch("/{message_id:str}", summary="Say it differently; its author's to do", operation_id="edit_message")
    async def edit(
        self, request: AnyRequest, id: SpaceId, message_id: Id, data: JSONBody[EditIn], if_match: IfMatch = None
    ) -> JsonResponse[MessageOut]:
        me, version = claims_of(request).entity, wire.expected(if_match)
        return answer(shown(await write(request, commands.edit, me, id, message_id, data.content, if_match=version)))

    @delete("/{message_id:str}", status_code=200, summary="Take it back; its author's to do", operation_id="delete_message")
    async def unsay(self, request: AnyRequest, id: SpaceId, message_id: Id, if_match: IfMatch = None) -> JsonResponse[MessageOut]:
        me, version = claims_of(request).entity, wire.expected(if_match)
        return answer(shown(await write(request, commands.delete, me, id, message_id, if_match=version)))


# ---- units of work: a command, and its answer in the same transaction ----


async def _post(tx: Transaction, me: str, space_id: str, data: MessageIn, key: str | None, body: bytes) -> queries.Message:
    async def make() -> queries.Message:
        return shown(await commands.post(tx, me, space_id, data.said()))

    return await once(tx, f"post_message:{space_id}", key, body, make, queries.Message)


# ---- for the description of the API ----

SHAPES: tuple[Any, ...] = (MessageIn, EditIn, MessageOut, MessagePage)
MORE: dict[str, tuple[int, ...]] = {
    "post_message": (404, 409),
    "list_messages": (404,),
    "get_message": (404,),
    "get_message_history": (404,),
    "get_message_seen": (404,),
    "edit_message": (404, 409, 412),
    "delete_message": (404, 409, 412),
}
TAGGED = {"post_message", "get_message", "edit_message", "delete_message"}
EXAMPLES: dict[str, Any] = {
    "post_message": {"content": "Who writes the summary?", "metadata": {"urgent": True}},
    "edit_message": {"content": "Who writes the summary, and by when?"},
}
