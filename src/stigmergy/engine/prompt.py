"""What a model is given: blocks that are not history, each kept once by the hash of its content, and the run's log.

The log is cut into groups: a message that was heard, or an assistant's message with the results of all its calls, in the order
of the calls. A window begins with a group, so that a result is never without its call. What was said while the assistant was
thinking or its tools were running comes after them, since the assistant has not seen it.

`canonical` gives the same messages from the rows at any later time.
"""

import hashlib
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec

from stigmergy.agents.models.port import Asked, Image, Message, Request, ToolShown
from stigmergy.runs.model import JsonObject, RunMessage, StepPrompt, ToolCall

Bodies = Mapping[str, bytes]
_NOTHING: Bodies = {}


class Block(NamedTuple):
    """A part of the prompt that is not history."""

    hash: str
    text: str

    @classmethod
    def of(cls, text: str) -> "Block":
        return cls(hashlib.sha256(text.encode()).hexdigest(), text)


class Group(NamedTuple):
    """What stands or falls together in a window."""

    first: int
    last: int
    messages: tuple[Message, ...]
    tokens: int


class Transcript:
    """A run's log as messages. It grows by whole groups, and forgets from its beginning what no window holds any more."""

    def __init__(self, window: int, tokens: int | None = None) -> None:
        self.system: Message | None = None
        self._window = window
        self._most_tokens = tokens
        self._groups: deque[Group] = deque()
        self._count = 0
        self._tokens = 0

    def add(self, groups: Iterable[Group]) -> None:
        for group in groups:
            self._groups.append(group)
            self._count += len(group.messages)
            self._tokens += group.tokens
        while len(self._groups) > 1 and self._is_over():
            gone = self._groups.popleft()
            self._count -= len(gone.messages)
            self._tokens -= gone.tokens

    def _is_over(self) -> bool:
        return self._count > self._window or (self._most_tokens is not None and self._tokens > self._most_tokens)

    @property
    def tokens(self) -> int:
        return self._tokens

    @property
    def first(self) -> int:
        return self._groups[0].first if self._groups else 1

    @property
    def ends_with_user(self) -> bool:
        return bool(self._groups) and self._groups[-1].messages[-1].role == "user"

    @property
    def last_answer(self) -> str:
        """What the assistant said last."""
        last = reversed(self._groups)
        return next((group.messages[0].content for group in last if group.messages[0].role == "assistant"), "")

    def messages(self) -> list[Message]:
        return [message for group in self._groups for message in group.messages]


def groups_of(rows: Sequence[RunMessage], calls: Iterable[ToolCall], bodies: Bodies = _NOTHING) -> list[Group]:
    """The log's rows, in order, as groups; the system's message is not among them."""
    by_step: dict[int, list[ToolCall]] = {}
    for call in calls:
        by_step.setdefault(call.step, []).append(call)
    results = {row.tool_call_id: row for row in rows if row.role == "tool"}
    heard = [row for row in rows if row.role == "user"]
    ends = _ends(rows, by_step) if heard else {}  # what may have come while the assistant was at something
    groups: list[list[RunMessage]] = []
    late: list[RunMessage] = []
    for row in rows:
        if row.role == "assistant":
            answers = [results[call.id] for call in by_step.get(row.step, ()) if call.id in results]
            groups.append([row, *answers])
        elif row.role == "user" and not _is_late(row, ends):
            groups.append([row])
        elif row.role == "user":
            late.append(row)
    for row in late:
        after = max(group[0].pos for group in groups if group[0].role == "assistant" and _covers(ends[group[0].pos], row.pos))
        next(group for group in groups if group[0].pos == after).append(row)
    return [_group(members, by_step, bodies) for members in groups]


class _Span(NamedTuple):
    """From what an assistant had seen to the last of what its calls brought."""

    seen: int
    end: int


def _ends(rows: Sequence[RunMessage], by_step: Mapping[int, list[ToolCall]]) -> dict[int, _Span]:
    spans: dict[int, _Span] = {}
    for row in rows:
        if row.role == "assistant":
            settled = [call.settled_pos + 1 for call in by_step.get(row.step, ()) if call.settled_pos is not None]
            seen = row.prompt.upto if row.prompt is not None else row.pos
            spans[row.pos] = _Span(seen, max(settled, default=row.pos))
    return spans


def _covers(span: _Span, pos: int) -> bool:
    return span.seen < pos <= span.end


def _is_late(row: RunMessage, spans: Mapping[int, _Span]) -> bool:
    return any(_covers(span, row.pos) for span in spans.values())


def _group(members: Sequence[RunMessage], by_step: Mapping[int, list[ToolCall]], bodies: Bodies) -> Group:
    places = [row.pos for row in members]
    messages = tuple([_message(row, by_step, bodies) for row in members])
    return Group(min(places), max(places), messages, sum([row.token_count for row in members]))


def _message(row: RunMessage, by_step: Mapping[int, list[ToolCall]], bodies: Bodies) -> Message:
    if row.role == "assistant":
        return Message("assistant", row.content, tool_calls=asked_in(by_step.get(row.step, ())), kept=row.kept)
    images: tuple[Image, ...] = ()
    if row.parts:
        shown = (part for part in row.parts if part.kind == "image" and part.block in bodies)
        images = tuple(Image(part.media_type, bodies[part.block], part.name) for part in shown)
    return Message(row.role, row.content, images, tool_call_id=row.tool_call_id, name=row.name)


def asked_in(calls: Iterable[ToolCall]) -> tuple[Asked, ...]:
    """A step's calls as a model wrote them."""
    return tuple([Asked(call.id, call.tool_name, arguments_text(call.args)) for call in calls])


def arguments_text(args: object) -> str:
    return args if isinstance(args, str) else msgspec.json.encode(args).decode()


def canonical(
    rows: Sequence[RunMessage], calls: Iterable[ToolCall], about: StepPrompt, blocks: Mapping[str, str], bodies: Bodies = _NOTHING
) -> tuple[Message, ...]:
    """The messages of a past step's prompt, from the rows of its window."""
    system = next((row for row in rows if row.role == "system"), None)
    wanted = [row for row in rows if row.role != "system" and about.first <= row.pos <= about.upto]
    within = [call for call in calls if call.settled_pos is not None and call.settled_pos <= about.upto]
    history = chain.from_iterable(group.messages for group in groups_of(wanted, within, bodies))
    return laid_out(
        None if system is None else Message("system", system.content),
        [Message("system", blocks[hash_]) for hash_ in about.blocks],
        history,
        about.notes,
    )


def laid_out(
    system: Message | None, blocks: Iterable[Message], history: Iterable[Message], notes: Iterable[str]
) -> tuple[Message, ...]:
    """Stable things first, so that a provider's cache of prompts hits; what the engine remarks comes last."""
    stable = () if system is None else (system,)
    return (*stable, *blocks, *history, *(Message("system", note) for note in notes))


class Prompt(NamedTuple):
    """A request, and what has to be stored so that it can be shown again."""

    request: Request
    about: StepPrompt
    blocks: Mapping[str, bytes]

    def rewritten(self, request: Request) -> "Prompt":
        """The same as a hook changed it. The messages that it changed are kept, since the log does not have them, and all of them
        only where there are more or fewer than before."""
        about, blocks = self.about, self.blocks
        if request.messages != self.request.messages:
            block = Block.of(msgspec.json.encode(Rewritten.of(self.request.messages, request.messages)).decode())
            about, blocks = msgspec.structs.replace(about, rewritten=block.hash), {**blocks, block.hash: block.text.encode()}
        if request.tools != self.request.tools:
            shown = Shown.of(request.tools).block
            about = msgspec.structs.replace(about, tools=None if shown is None else shown.hash)
            blocks = blocks if shown is None else {**blocks, shown.hash: shown.text.encode()}
        return Prompt(request, about, blocks)


class Rewritten(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a hook made of a prompt's messages: those that it changed, by their places, or all of them."""

    changed: dict[int, Message] = {}
    whole: tuple[Message, ...] | None = None

    @classmethod
    def of(cls, before: Sequence[Message], after: Sequence[Message]) -> "Rewritten":
        if len(before) != len(after):
            return cls(whole=tuple(after))
        pairs = enumerate(zip(before, after, strict=True))
        return cls({place: now for place, (was, now) in pairs if was != now})

    def applied(self, before: Sequence[Message]) -> tuple[Message, ...]:
        if self.whole is not None:
            return self.whole
        return tuple(self.changed.get(place, message) for place, message in enumerate(before))


def compose(
    model: str, transcript: Transcript, upto: int, frame: "Frame", settings: JsonObject, notes: Sequence[str] = ()
) -> Prompt:
    about = StepPrompt(frame.hashes, transcript.first, upto, frame.listed, tuple(notes))
    messages = laid_out(transcript.system, frame.messages, transcript.messages(), notes)
    return Prompt(Request(model, messages, frame.tools, settings), about, frame.bodies)


class Frame(NamedTuple):
    """What is around the history in every prompt of a run, laid out and hashed once for as long as a worker has it in hand."""

    hashes: tuple[str, ...]
    messages: tuple[Message, ...]
    tools: tuple[ToolShown, ...]
    listed: str | None
    bodies: Mapping[str, bytes]

    @classmethod
    def of(cls, blocks: Sequence[Block], tools: Sequence[ToolShown]) -> "Frame":
        shown = Shown.of(tools)
        kept = blocks if shown.block is None else [*blocks, shown.block]
        return cls(
            tuple(block.hash for block in blocks),
            tuple(Message("system", block.text) for block in blocks),
            shown.tools,
            None if shown.block is None else shown.block.hash,
            {block.hash: block.text.encode() for block in kept},
        )


class Shown(NamedTuple):
    """The tools that a model is told of, and the block that keeps them."""

    tools: tuple[ToolShown, ...]
    block: Block | None

    @classmethod
    def of(cls, tools: Sequence[ToolShown]) -> "Shown":
        return cls(tuple(tools), Block.of(msgspec.json.encode(tools).decode()) if tools else None)
