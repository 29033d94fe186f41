"""Entities, spaces and what is said in them, as stored, and the rules about them. Pure.

`pos` numbers the messages of a space: unique, gapless, in the order in which they were said. (On the wire it is called `seq`;
in the store that word belongs to the journal.) An edit and a deletion are versions of the message, which keeps its number.
"""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from stigmergy.agents.model import entity_of
from stigmergy.breadcrumbs.model import LARGEST_CONTEXT, holds_nul
from stigmergy.errors import Invalid
from stigmergy.kernel.record import Record, declare
from stigmergy.runs.model import Part

JsonObject = dict[str, Any]
EntityType = Literal["human", "agent"]
Role = Literal["human", "agent", "system", "tool"]
GoalStatus = Literal["open", "done", "dropped"]
PlanKind = Literal["once", "after", "cron"]

LONGEST_MESSAGE = 64 * 1024
LONGEST_NAME = 120
LONGEST_SPACE_NAME = 200
LONGEST_ID = 200
LONGEST_TEXT = 10_000
MOST_MEMBERS = 1_000
MOST_MENTIONS = 32
# What the ids of agents begin with.
AGENT = entity_of("")
# Who speaks where nobody does: failures that are told, questions that are forwarded.
SYSTEM = "system"


class Entity(Record, frozen=True, kw_only=True):
    """A human or an agent. There is one entity for each definition of an agent."""

    id: str
    type: EntityType
    name: str
    agent: str | None = None


class Space(Record, frozen=True, kw_only=True):
    """A conversation. It has an owner, as every record has, and no administrator: all members are equal."""

    id: str
    owner_id: str
    name: str = ""
    about: str = ""
    metadata: JsonObject = msgspec.field(default_factory=JsonObject)


class Membership(Record, frozen=True, kw_only=True):
    """An entity in a space, and the last message that it has dealt with."""

    space_id: str
    entity_id: str
    joined_pos: int = 0
    last_processed_message_id: str | None = None
    last_processed_pos: int = 0


class SpaceMessage(Record, frozen=True, kw_only=True):
    """What was said. `mentions` are the entities that it names, `wakes` those agents for which it starts a run."""

    id: str
    space_id: str
    pos: int
    owner_id: str
    role: Role
    author: str
    author_name: str
    content: str
    parts: list[Part] | None = None
    metadata: JsonObject | None = None
    mentions: list[str] = msgspec.field(default_factory=list[str])
    wakes: list[str] = msgspec.field(default_factory=list[str])
    run_id: str | None = None
    reply_to: str | None = None
    stream_id: str | None = None
    deleted: bool = False


class Client(Record, frozen=True, kw_only=True):
    """A user interface that is connected for an entity and answers these client tools, until it goes or is silent too long."""

    id: str
    entity_id: str
    name: str = ""
    tools: list[str] = msgspec.field(default_factory=list[str])
    expires_at: int = 0


class Memory(Record, frozen=True, kw_only=True):
    entity_id: str
    key: str
    value: Any
    importance: float = 0.5


class Goal(Record, frozen=True, kw_only=True):
    id: str
    entity_id: str
    text: str
    status: GoalStatus = "open"
    priority: int = 0


class Plan(Record, frozen=True, kw_only=True):
    """What an agent is to do at a time. `spec` is a moment for `once`, milliseconds for `after`, an expression for `cron`."""

    id: str
    entity_id: str
    owner_id: str
    what: str
    kind: PlanKind
    spec: str
    time_zone: str = "UTC"
    next_at: int | None = None
    last_at: int | None = None
    firings: int = 0
    enabled: bool = True


class ServiceKey(Record, frozen=True, kw_only=True):
    """With this a program outside starts one agent. `digest` is the hash of what it was given; it is shown to nobody."""

    id: str
    agent: str
    owner_id: str
    note: str = ""
    digest: str = ""
    revoked_at: int | None = None


SCHEMA_NAMES: dict[Role, str] = {
    "human": "user.message.v1",
    "agent": "agent.message.v1",
    "system": "system.message.v1",
    "tool": "tool.message.v1",
}


def _schema_name(message: SpaceMessage) -> str:
    return SCHEMA_NAMES[message.role]


def _tags(message: SpaceMessage) -> list[str]:
    return [f"space:{message.space_id}"]


def _context(message: SpaceMessage) -> JsonObject:
    context: JsonObject = {
        "text": message.content,
        "space_id": message.space_id,
        "author": {"id": message.author, "name": message.author_name},
        "mentions": message.mentions,
    }
    if message.reply_to is not None:
        context["reply_to"] = message.reply_to
    return context | ({"metadata": message.metadata} if message.metadata else {})


ENTITIES = declare(Entity, "entities", path="entities/{id}", schema_name="entity.v1")
SPACES = declare(Space, "spaces", path="users/{owner_id}/orch-chats/{id}")
MEMBERSHIPS = declare(Membership, "memberships", path="spaces/{space_id}/members/{entity_id}", key=("space_id", "entity_id"))
SPACE_MESSAGES = declare(
    SpaceMessage,
    "space_messages",
    path="users/{owner_id}/orch-chats/{space_id}/messages",
    schema_name=_schema_name,
    tags=_tags,
    context=_context,
)
CLIENTS = declare(Client, "clients", path="entities/{entity_id}/clients")
MEMORIES = declare(Memory, "memories", path="entities/{entity_id}/memories", key=("entity_id", "key"), schema_name="memory.v1")
GOALS = declare(Goal, "goals", path="entities/{entity_id}/goals")
PLANS = declare(Plan, "plans", path="entities/{entity_id}/plans")
SERVICE_KEYS = declare(ServiceKey, "service_keys", path="agents/{agent}/keys")


class Member(msgspec.Struct, frozen=True):
    """Somebody in a space."""

    id: str
    type: EntityType
    name: str
    agent: str | None = None


class Roster:
    """A space and all who are in it, in the order in which they came."""

    def __init__(self, space: Space, members: Sequence[Member] = ()) -> None:
        self.space = space
        self.members = tuple(members)
        self.by_id = {member.id: member for member in self.members}
        # how they can be called: by their ids and by their display names, whatever the case
        self.by_name: dict[str, list[Member]] = {}
        for member in self.members:
            for name in {member.id.casefold(), member.name.casefold()}:
                self.by_name.setdefault(name, []).append(member)
        self.names = sorted(self.by_name, key=len, reverse=True)

    def others(self, entity_id: str) -> list[Member]:
        return [member for member in self.members if member.id != entity_id]


def check_id(id: str, where: str) -> str:
    if not 0 < len(id) <= LONGEST_ID or "\0" in id or "/" in id:
        raise Invalid(f"an id has 1 to {LONGEST_ID} characters, no slash and no NUL", where)
    return id


def check_entity_name(name: str) -> str:
    """A display name, such as can stand after an `@`."""
    if not 0 < len(name.strip()) <= LONGEST_NAME or "\0" in name or "@" in name or "\n" in name:
        raise Invalid(f"a display name has 1 to {LONGEST_NAME} characters on one line, no `@` and no NUL", "name")
    return name.strip()


def check_plain_text(text: str, where: str, longest: int = LONGEST_TEXT, *, empty: bool = False) -> str:
    if len(text) > longest or "\0" in text or not (empty or text.strip()):
        raise Invalid(f"a text has {0 if empty else 1} to {longest:,} characters and no NUL", where)
    return text


def check_content(content: str, parts: Sequence[Part] | None) -> str:
    """What a message may say: something, within the limit."""
    size = len(content.encode("utf-8", "surrogatepass"))
    if size > LONGEST_MESSAGE:
        message = (
            f"a message has at most {LONGEST_MESSAGE:,} bytes, this one {size:,}; put a long text into a part or a breadcrumb"
        )
        raise Invalid(message, "content", code="too_large")
    if "\0" in content:
        raise Invalid("a text may not contain NUL", "content")
    if not content.strip() and not parts:
        raise Invalid("a message says something, or has parts", "content")
    return content


def check_metadata(metadata: JsonObject | None, where: str = "metadata") -> JsonObject | None:
    if metadata is None:
        return None
    try:
        encoded = msgspec.json.encode(metadata)
    except (UnicodeEncodeError, TypeError, OverflowError, RecursionError, ValueError) as error:
        raise Invalid(f"this cannot be written as JSON ({error})", where) from error
    if len(encoded) > LARGEST_CONTEXT:
        raise Invalid(f"at most 1 MiB, this is {len(encoded):,} bytes", where, code="too_large")
    if b"\\u0000" in encoded and holds_nul(metadata):
        raise Invalid("a text may not contain NUL", where)
    return metadata
