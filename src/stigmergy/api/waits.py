"""`/v1/waits`: the inbox. Every question, approval and client's tool that waits, for the caller or for all, answerable here."""

from typing import Annotated, Any, Literal

import msgspec
from litestar import Controller, get, post
from litestar.params import JSONBody, PathParameter, QueryParameter

from stigmergy.access.model import Claims
from stigmergy.api import run_shapes as shapes
from stigmergy.api import wire
from stigmergy.api.auth import claims_of
from stigmergy.api.requests import AnyRequest, Cursor, read, write
from stigmergy.engine.namespace import answer_wait
from stigmergy.engine.rights import answerable, reader_of, seen_wait
from stigmergy.errors import Invalid
from stigmergy.kernel.transaction import Snapshot, Transaction
from stigmergy.runs import queries
from stigmergy.runs.model import Run, Wait

Id = Annotated[str, PathParameter(description="The id of what waits.")]
ForWhom = Annotated[
    Literal["me", "all"],
    QueryParameter(
        name="for", description="`me`: what waits for the caller. `all`: also what their runs wait for; to operators, everything."
    ),
]


class WaitRoutes(Controller):
    path = "/v1/waits"
    tags = ("runs",)

    @get(summary="What waits for somebody, the oldest first", operation_id="list_waits")
    async def find(
        self, request: AnyRequest, for_whom: ForWhom = "all", limit: wire.Limit = 50, cursor: Cursor = None
    ) -> shapes.WaitPage:
        claims = claims_of(request)
        for_entity = claims.entity if for_whom == "me" else None
        found: list[Wait] = await read(request, _inbox, claims, for_entity, wire.position(cursor), limit)
        more = str(found[-1].seq) if len(found) == limit else None
        return shapes.WaitPage([shapes.wait_out(wait) for wait in found], more)

    @get("/{id:str}", summary="One thing that waits or waited", operation_id="get_wait")
    async def one(self, request: AnyRequest, id: Id) -> shapes.WaitOut:
        return shapes.wait_out(await read(request, seen_wait, claims_of(request), id))

    @post("/{id:str}/answer", status_code=200, summary="Answer what waits", operation_id="answer_wait")
    async def answer(self, request: AnyRequest, id: Id, data: JSONBody[shapes.AnswerIn]) -> shapes.RunOut:
        return shapes.run_out(await write(request, _answer, claims_of(request), id, data))


async def _inbox(tx: Snapshot, claims: Claims, for_entity: str | None, after: int, limit: int) -> list[Wait]:
    return await queries.inbox(tx, await reader_of(tx, claims), for_entity=for_entity, after=after, limit=limit)


async def _answer(tx: Transaction, claims: Claims, id: str, data: shapes.AnswerIn) -> Run:
    await answerable(tx, claims, id)
    given = {name: value for name in data.__struct_fields__ if (value := getattr(data, name)) is not msgspec.UNSET}
    if not given:
        raise Invalid("an answer has a `text`, a `decision`, a `result` or an `error`, by what is asked", "body")
    return await answer_wait(tx, id, given)


MORE: dict[str, tuple[int, ...]] = {"get_wait": (404,), "answer_wait": (404, 409)}
EXAMPLES: dict[str, Any] = {"answer_wait": {"result": {"dollars": 97_000}}}
