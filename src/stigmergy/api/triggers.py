"""`/v1/triggers`: an operator's, as they say what this server does to others."""

from typing import Annotated, Any

import msgspec
from litestar import Controller, delete, get, post, put
from litestar.params import JSONBody, PathParameter, QueryParameter
from msgspec import Meta

from stigmergy.api import wire
from stigmergy.api.auth import claims_of
from stigmergy.api.requests import AnyRequest, IfMatch, database_of, operators_only, read, write
from stigmergy.api.responses import JsonResponse
from stigmergy.errors import AlreadyExists, Invalid
from stigmergy.kernel.rules import Diagnostic, Rule
from stigmergy.kernel.transaction import Scope, Transaction
from stigmergy.settings import Settings
from stigmergy.triggers import commands, queries
from stigmergy.triggers.definitions import Definition, Reading, parse_definition, parse_definitions
from stigmergy.triggers.lint import lint
from stigmergy.triggers.model import shown_action
from stigmergy.triggers.namespace import retry_all
from stigmergy.triggers.queries import Supposed
from stigmergy.triggers.running import reach_of

Id = Annotated[str, PathParameter(description="A trigger's id.")]
After = Annotated[str | None, QueryParameter(max_length=300, description="Where the page before ended.")]


class TriggerIn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A trigger as a file has it, but for its id, which is in the address."""

    collection: str
    event: str | list[str]
    action: str | dict[str, Any]
    condition: str | None = None
    enabled: bool = True
    order: Annotated[int, Meta(ge=-(2**31), le=2**31)] = 0
    max_depth: Annotated[int, Meta(ge=1, le=32)] = 32


class TriggerOut(msgspec.Struct, kw_only=True):
    """A trigger in force. The secret of its action is not told. `owner` gave it: an entity, a file, a program."""

    id: str
    collection: str
    event: list[str]
    condition: str | None
    action: dict[str, Any]
    enabled: bool
    order: int
    max_depth: int
    owner: str
    version: int
    created_at: wire.Moment
    updated_at: wire.Moment


class TriggerPage(msgspec.Struct):
    """By id. `cursor` asks for what follows; without one there is no more."""

    items: list[TriggerOut]
    cursor: str | None


class CheckIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Definitions, as a file has them: to be looked at, or to be put, all or none."""

    triggers: list[dict[str, Any]]


class TriggersOut(msgspec.Struct):
    """In the order in which they came."""

    items: list[TriggerOut]


class FindingOut(msgspec.Struct):
    """Something that looks wrong about a trigger that can be put all the same."""

    trigger: str
    code: str
    message: str


class CheckOut(msgspec.Struct):
    triggers: int
    findings: list[FindingOut]


class ChangeIn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A change to ask about: one of the journal, by its `seq`, or one that is only supposed."""

    seq: Annotated[int, Meta(ge=1, le=10**15)] | None = None
    collection: str | None = None
    event: str = "create"
    data: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    before: dict[str, Any] | None = None
    actor: str = "someone"


class ToldOut(msgspec.Struct):
    """Whether a trigger fires, and if not what speaks against it."""

    id: str
    fires: bool
    why_not: str | None


class TestOut(msgspec.Struct):
    triggers: list[ToldOut]


class DiagnosticOut(msgspec.Struct):
    """What went wrong while a trigger was matched: once for each version of it and kind of fault."""

    kind: str
    message: str
    change_seq: int
    created_at: wire.Moment


class DiagnosticsOut(msgspec.Struct):
    items: list[DiagnosticOut]


class RetriedOut(msgspec.Struct):
    """How many deliveries are handed over once more."""

    retried: int


class TriggerRoutes(Controller):
    path = "/v1/triggers"
    tags = ("triggers",)
    guards = (operators_only,)

    @get(summary="List triggers", operation_id="list_triggers")
    async def find(self, request: AnyRequest, limit: wire.Limit = 50, cursor: After = None) -> TriggerPage:
        rules: list[Rule] = await read(request, queries.triggers, after=cursor or "", limit=limit)
        return TriggerPage([trigger_out(rule) for rule in rules], rules[-1].id if len(rules) == limit else None)

    @post(summary="Add a trigger", operation_id="create_trigger")
    async def create(self, request: AnyRequest, data: JSONBody[Definition]) -> JsonResponse[TriggerOut]:
        rule = parse_definition(data, reading_of(request))
        return answer(await write(request, _create, rule, grant="operate"), 201)

    @post("/bulk", status_code=200, summary="Put many triggers, all or none", operation_id="put_triggers")
    async def put_all(self, request: AnyRequest, data: JSONBody[CheckIn]) -> TriggersOut:
        rules = parse_definitions(data.triggers, reading_of(request))
        return TriggersOut([trigger_out(rule) for rule in await write(request, commands.put_triggers, rules, grant="operate")])

    @get("/{id:str}", summary="One trigger", operation_id="get_trigger")
    async def one(self, request: AnyRequest, id: Id) -> JsonResponse[TriggerOut]:
        return answer(await read(request, queries.trigger, id))

    @put("/{id:str}", summary="Put a trigger in the place of what is there", operation_id="put_trigger")
    async def put(
        self, request: AnyRequest, id: Id, data: JSONBody[TriggerIn], if_match: IfMatch = None
    ) -> JsonResponse[TriggerOut]:
        rule = parse_definition(msgspec.to_builtins(data) | {"id": id}, reading_of(request))
        return answer(await write(request, commands.put_trigger, rule, grant="operate", if_match=wire.expected(if_match)))

    @delete("/{id:str}", summary="Take a trigger away", operation_id="delete_trigger")
    async def remove(self, request: AnyRequest, id: Id, if_match: IfMatch = None) -> None:
        await write(request, commands.delete_trigger, id, grant="operate", if_match=wire.expected(if_match))

    @post("/check", status_code=200, summary="What looks wrong about triggers", operation_id="check_triggers")
    async def check(self, request: AnyRequest, data: JSONBody[CheckIn]) -> CheckOut:
        rules = parse_definitions(data.triggers, reading_of(request))
        return CheckOut(len(rules), [FindingOut(*finding) for finding in lint(rules)])

    @post(
        "/test",
        status_code=200,
        summary="Which triggers a change would fire, and why not the others",
        operation_id="test_triggers",
    )
    async def test(self, request: AnyRequest, data: JSONBody[ChangeIn]) -> TestOut:
        if (data.seq is None) == (data.collection is None):
            raise Invalid("say the `seq` of a change, or the `collection` of one that is supposed", "seq")
        if data.seq is not None:
            told = await read(request, queries.would_fire_at, data.seq)
        else:
            supposed = Supposed(
                collection=data.collection or "", event=data.event, data=data.data, before=data.before, actor=data.actor
            )
            told = await read(request, queries.would_fire, supposed)
        return TestOut([ToldOut(*each) for each in told])

    @get("/{id:str}/diagnostics", summary="What went wrong while it was matched", operation_id="get_trigger_diagnostics")
    async def diagnostics(self, request: AnyRequest, id: Id) -> DiagnosticsOut:
        found: list[Diagnostic] = await read(request, queries.diagnostics, id)
        return DiagnosticsOut(
            [DiagnosticOut(each.kind, each.message, each.change_seq, wire.moment(each.created_at)) for each in found]
        )

    @post("/{id:str}/retry", status_code=200, summary="Hand all its dead deliveries over once more", operation_id="retry_trigger")
    async def retry(self, request: AnyRequest, id: Id) -> RetriedOut:
        claims = claims_of(request)
        return RetriedOut(await retry_all(database_of(request), Scope(claims.tenant, claims.entity), id))


async def _create(tx: Transaction, rule: Rule) -> Rule:
    if await tx.get(Rule, rule.id) is not None:
        raise AlreadyExists(f"there is a trigger {rule.id} already; put it to change it")
    return await commands.put_trigger(tx, rule)


def reading_of(request: AnyRequest) -> Reading:
    settings: Settings = request.app.state.settings
    return Reading(claims_of(request).entity, settings.webhook_base, reach_of(settings))


def answer(rule: Rule, status: int = 200) -> JsonResponse[TriggerOut]:
    return JsonResponse(trigger_out(rule), status_code=status, headers={"ETag": wire.etag(rule.version)})


def trigger_out(rule: Rule) -> TriggerOut:
    return TriggerOut(
        id=rule.id,
        collection=rule.collection,
        event=rule.events,
        condition=rule.condition,
        action=shown_action(rule),
        enabled=rule.enabled,
        order=rule.position,
        max_depth=rule.max_depth,
        owner=rule.owner,
        version=rule.version,
        created_at=wire.moment(rule.created_at),
        updated_at=wire.moment(rule.updated_at),
    )


# ---- for the description of the API ----

SHAPES: tuple[Any, ...] = (
    *(Definition, TriggerIn, TriggerOut, TriggerPage, TriggersOut),
    *(CheckIn, CheckOut, ChangeIn, TestOut, DiagnosticsOut, RetriedOut),
)
MORE: dict[str, tuple[int, ...]] = {
    "create_trigger": (409,),
    "get_trigger": (404,),
    "get_trigger_diagnostics": (404,),
    "put_trigger": (412,),
    "delete_trigger": (404, 412),
    "test_triggers": (404, 410),
    "retry_trigger": (404,),
}
TAGGED = {"create_trigger", "get_trigger", "put_trigger"}
_TRIGGER = {
    "collection": "users/*/orch-chats/*/tasks",
    "event": "update (status='success')",
    "action": {"type": "webhook", "url": "http://127.0.0.1:9000/webhook/orchestrator-finalize"},
}
EXAMPLES: dict[str, Any] = {
    "create_trigger": {"id": "on-task-completed"} | _TRIGGER,
    "put_trigger": _TRIGGER,
    "put_triggers": {"triggers": [{"id": "on-task-completed"} | _TRIGGER]},
    "check_triggers": {"triggers": [{"id": "on-task-completed"} | _TRIGGER]},
    "test_triggers": {
        "collection": "tasks",
        "event": "update",
        "data": {"status": "success"},
        "before": {"status": "running"},
    },
}
