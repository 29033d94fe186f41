"""`/v1/deliveries`: what triggers set off, and what came of it. An operator's."""

from typing import Annotated, Any

import msgspec
from litestar import Controller, get, post
from litestar.params import PathParameter, QueryParameter

from stigmergy.api import wire
from stigmergy.api.requests import AnyRequest, operators_only, read, write
from stigmergy.api.triggers import After
from stigmergy.triggers import commands, queries
from stigmergy.triggers.model import Answer, Delivery, Status
from stigmergy.triggers.queries import Shown

Id = Annotated[str, PathParameter(description="A delivery's id, which is the `webhook-id` of its requests.")]


class AnswerOut(msgspec.Struct, omit_defaults=True):
    """The last try: a status and the beginning of the body, or what went wrong instead."""

    at: wire.Moment
    took_ms: int
    status: int | None = None
    body: str | None = None
    error: str | None = None


class DeliveryOut(msgspec.Struct, kw_only=True):
    """One firing of a trigger. `lane` is what goes in order; `next_at` is when a failed one is tried again."""

    id: str
    trigger: str
    kind: str
    status: Status
    lane: str
    collection: str
    document_id: str
    document_version: int
    event: str
    seq: int
    tries: int
    answer: AnswerOut | None
    next_at: wire.Moment | None
    created_at: wire.Moment
    settled_at: wire.Moment | None
    version: int


class DeliveryPage(msgspec.Struct):
    """Newest first. `cursor` asks for what follows; without one there is no more."""

    items: list[DeliveryOut]
    cursor: str | None


class EventOut(msgspec.Struct):
    """What the receiver is told, however large it is."""

    id: str
    trigger: str
    event: dict[str, Any]


class DeliveryRoutes(Controller):
    path = "/v1/deliveries"
    tags = ("triggers",)
    guards = (operators_only,)

    @get(summary="List deliveries, newest first", operation_id="list_deliveries")
    async def find(
        self,
        request: AnyRequest,
        status: Annotated[Status | None, QueryParameter(description="Only these.")] = None,
        trigger: Annotated[str | None, QueryParameter(max_length=300, description="Only of this trigger.")] = None,
        limit: wire.Limit = 50,
        cursor: After = None,
    ) -> DeliveryPage:
        below = cursor or queries.NEWEST
        found: list[Delivery] = await read(
            request, queries.deliveries, status=status, trigger_id=trigger, below=below, limit=limit
        )
        return DeliveryPage([delivery_out(each) for each in found], found[-1].id if len(found) == limit else None)

    @get("/{id:str}", summary="One delivery", operation_id="get_delivery")
    async def one(self, request: AnyRequest, id: Id) -> DeliveryOut:
        return shown_out(await read(request, queries.delivery, id))

    @get("/{id:str}/event", summary="What its receiver is told", operation_id="get_delivery_event")
    async def event(self, request: AnyRequest, id: Id) -> EventOut:
        return EventOut(**await read(request, queries.event, id))

    @post("/{id:str}/retry", status_code=200, summary="Hand a dead delivery over once more", operation_id="retry_delivery")
    async def retry(self, request: AnyRequest, id: Id) -> DeliveryOut:
        return delivery_out(await write(request, commands.retry, id, grant="operate"))

    @post("/{id:str}/discard", status_code=200, summary="Give a delivery up", operation_id="discard_delivery")
    async def discard(self, request: AnyRequest, id: Id) -> DeliveryOut:
        return delivery_out(await write(request, commands.discard, id, grant="operate"))


def shown_out(shown: Shown) -> DeliveryOut:
    return delivery_out(shown.delivery, shown.tries, shown.answer, shown.next_at)


def delivery_out(
    delivery: Delivery, tries: int | None = None, answer: Answer | None = None, next_at: int | None = None
) -> DeliveryOut:
    return DeliveryOut(
        id=delivery.id,
        trigger=delivery.trigger_id,
        kind=delivery.kind,
        status=delivery.status,
        lane=delivery.lane,
        collection=delivery.collection,
        document_id=delivery.document_id,
        document_version=delivery.document_version,
        event=delivery.event,
        seq=delivery.change_seq,
        tries=delivery.tries if tries is None else tries,
        answer=_answer_out(answer or delivery.answer),
        next_at=_moment(next_at),
        created_at=wire.moment(delivery.created_at),
        settled_at=_moment(delivery.settled_at),
        version=delivery.version,
    )


def _answer_out(answer: Answer | None) -> AnswerOut | None:
    if answer is None:
        return None
    return AnswerOut(wire.moment(answer.at), answer.took_ms, answer.status, answer.body, answer.error)


def _moment(ms: int | None) -> Any:
    return None if ms is None else wire.moment(ms)


SHAPES: tuple[Any, ...] = (DeliveryOut, DeliveryPage, EventOut)
MORE: dict[str, tuple[int, ...]] = {
    "get_delivery": (404,),
    "get_delivery_event": (404,),
    "retry_delivery": (404, 409),
    "discard_delivery": (404, 409),
}
