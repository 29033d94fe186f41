"""The shapes of spaces on the wire: times are ISO 8601 in UTC, the number of a message in its space is its `seq`."""

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from stigmergy.api.wire import Moment, moment
from stigmergy.runs.model import Part
from stigmergy.spaces.commands import Said
from stigmergy.spaces.following import Event, Kind
from stigmergy.spaces.keeping import Timing
from stigmergy.spaces.model import EntityType, GoalStatus, JsonObject, PlanKind, Role
from stigmergy.spaces.queries import Message

T = TypeVar("T", bound=msgspec.Struct)
TIMES = frozenset(
    {"created_at", "updated_at", "joined_at", "expires_at", "next_at", "last_at", "revoked_at", "deadline"},
)


def out(kind: type[T], source: Any, **more: Any) -> T:
    """The fields of this shape from what is stored, with its times as they are on the wire."""
    fields: dict[str, Any] = {name: getattr(source, name) for name in kind.__struct_fields__ if name not in more}
    for name in TIMES & fields.keys():
        fields[name] = None if fields[name] is None else moment(fields[name])
    return kind(**fields, **more)


# ---- spaces and who is in them ----


class SpaceIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A space to make. Its owner, who asks for it, is in it; so are these members. An agent is `agent:NAME`."""

    name: str = ""
    about: str = ""
    members: list[str] = msgspec.field(default_factory=list[str])
    id: str | None = None
    metadata: JsonObject | None = None


class SpaceChangeIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to change; what is not given stays."""

    name: str | UnsetType = UNSET
    about: str | UnsetType = UNSET
    metadata: JsonObject | UnsetType = UNSET


class SpaceOut(msgspec.Struct, kw_only=True):
    id: str
    owner_id: str
    name: str
    about: str
    metadata: JsonObject
    version: int
    created_at: Moment
    updated_at: Moment


class SpacePage(msgspec.Struct):
    """Oldest first. `cursor` asks for what follows; without one there is no more."""

    items: list[SpaceOut]
    cursor: str | None


class MemberOut(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Somebody in a space. `last_processed_seq` is the last message that they have dealt with."""

    entity_id: str
    type: str
    name: str
    joined_at: Moment
    last_processed_seq: int
    last_processed_message_id: str | None = None


class MembersOut(msgspec.Struct):
    """In the order in which they came."""

    items: list[MemberOut]


# ---- messages ----


class MessageIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something to say. `@Name` in it has somebody act; `mentions`, where it is given, names them in its place."""

    content: str = ""
    id: str | None = None
    mentions: list[str] | None = None
    reply_to: str | None = None
    parts: list[Part] | None = None
    metadata: JsonObject | None = None

    def said(self) -> Said:
        return Said(**{name: getattr(self, name) for name in self.__struct_fields__})


class EditIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    content: str


class MessageOut(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What was said. `seq` is its number in the space: unique, without gaps."""

    id: str
    space_id: str
    seq: int
    role: Role
    author: str
    author_name: str
    content: str
    version: int
    created_at: Moment
    updated_at: Moment
    mentions: list[str] = []
    parts: list[Part] | None = None
    metadata: JsonObject | None = None
    run_id: str | None = None
    reply_to: str | None = None
    stream_id: str | None = None
    deleted: bool = False


class MessagePage(msgspec.Struct):
    """Newest first, or with `after` in order. `cursor` asks for what was said before these."""

    items: list[MessageOut]
    cursor: str | None


class ReadIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Up to which message one has read."""

    message_id: str


class TypingIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    active: bool = True


class SpaceEventOut(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Something that happened in a space."""

    kind: Kind
    seq: int | None = None
    message: MessageOut | None = None
    entity_id: str | None = None
    run_id: str | None = None
    status: str | None = None
    last_processed_seq: int | None = None
    stream_id: str | None = None
    offset: int | None = None
    text: str | None = None
    wait_id: str | None = None
    wait_kind: str | None = None
    call_id: str | None = None
    question: str | None = None
    details: JsonObject | None = None


def message_out(message: Message) -> MessageOut:
    return out(MessageOut, message)


def event_out(event: Event) -> SpaceEventOut:
    said = None if event.message is None else message_out(event.message)
    return out(SpaceEventOut, event, message=said)


# ---- entities and what they keep ----


class EntityOut(msgspec.Struct, kw_only=True):
    id: str
    type: EntityType
    name: str
    agent: str | None
    version: int
    created_at: Moment
    updated_at: Moment


class EntityPage(msgspec.Struct):
    """By id. `cursor` asks for what follows; without one there is no more."""

    items: list[EntityOut]
    cursor: str | None


class EntityIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How an entity is to be called, in every space."""

    name: str


class MemoryIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    value: Any
    importance: Annotated[float, Meta(ge=0, le=1)] = 0.5


class MemoryOut(msgspec.Struct, kw_only=True):
    entity_id: str
    key: str
    value: Any
    importance: float
    version: int
    created_at: Moment
    updated_at: Moment


class MemoriesOut(msgspec.Struct):
    """The most important first."""

    items: list[MemoryOut]


class GoalIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str
    priority: int = 0


class GoalChangeIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to change; what is not given stays."""

    text: str | None = None
    status: GoalStatus | None = None
    priority: int | None = None


class GoalOut(msgspec.Struct, kw_only=True):
    id: str
    entity_id: str
    text: str
    status: GoalStatus
    priority: int
    version: int
    created_at: Moment
    updated_at: Moment


class GoalsOut(msgspec.Struct):
    """The most urgent first."""

    items: list[GoalOut]


class PlanIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an agent is to do, and when: exactly one of a moment, a while in milliseconds and a cron expression."""

    what: str
    at: str | None = None
    after_ms: int | None = None
    cron: str | None = None
    time_zone: str = "UTC"


class PlanChangeIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to change; what is not given stays, the time zone too."""

    what: str | None = None
    enabled: bool | None = None
    at: str | None = None
    after_ms: int | None = None
    cron: str | None = None
    time_zone: str | None = None


class PlanOut(msgspec.Struct, kw_only=True):
    id: str
    entity_id: str
    owner_id: str
    what: str
    kind: PlanKind
    spec: str
    time_zone: str
    next_at: Moment | None
    last_at: Moment | None
    firings: int
    enabled: bool
    version: int
    created_at: Moment
    updated_at: Moment


class PlansOut(msgspec.Struct):
    items: list[PlanOut]


def timing(given: PlanIn | PlanChangeIn) -> Timing:
    return Timing(at=given.at, after_ms=given.after_ms, cron=given.cron, time_zone=given.time_zone)


# ---- clients, and programs outside ----


class ClientIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A user interface, and the client tools that it answers; none named are all."""

    name: str = ""
    tools: list[str] = msgspec.field(default_factory=list[str])


class ClientOut(msgspec.Struct, kw_only=True):
    """It counts as gone at `expires_at`, unless it says before that it is still there."""

    id: str
    entity_id: str
    name: str
    tools: list[str]
    expires_at: Moment
    created_at: Moment


class ClientsOut(msgspec.Struct):
    items: list[ClientOut]


class ClientCallOut(msgspec.Struct, kw_only=True):
    """A tool call that waits for a client. `custom_ui` names the component that shows it."""

    run_id: str
    call_id: str
    tool: str
    args: JsonObject
    custom_ui: str | None
    space_id: str | None
    deadline: Moment


class ClientCallsOut(msgspec.Struct):
    """The oldest first."""

    items: list[ClientCallOut]


class ClientAnswerIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What came of a call: its result, or an error."""

    run_id: str
    call_id: str
    result: Any = None
    error: str | None = None


class KeyIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    note: str = ""


class KeyOut(msgspec.Struct, kw_only=True):
    """A key with which a program outside starts one agent."""

    id: str
    agent: str
    owner_id: str
    note: str
    created_at: Moment
    revoked_at: Moment | None


class NewKeyOut(msgspec.Struct, kw_only=True):
    """`text` is what the program sends. It is shown this once."""

    key: KeyOut
    text: str


class KeysOut(msgspec.Struct):
    items: list[KeyOut]


class TriggerAgentIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the agent is to do."""

    instruction: str
    metadata: JsonObject | None = None
