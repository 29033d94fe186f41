"""A run in a worker's hands: its rows as they were last read or written, and the prompt that grows from them.

It is a copy and never the truth. The log's positions tell whether somebody else wrote to it; then it is read again.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from stigmergy.agents.models.port import Message
from stigmergy.engine.prompt import Transcript, groups_of
from stigmergy.runs.delegation import FINAL_ANSWER
from stigmergy.runs.model import RunMessage, ToolCall, Wait
from stigmergy.runs.settling import Settled
from stigmergy.runs.steps import REMARK, Loaded, Written
from stigmergy.runs.waits import before, pause_of

# How many calls back it is looked whether an agent repeats itself.
RECENT = 6
REPEATS = 3


class Live:
    def __init__(self, loaded: Loaded, bodies: Mapping[str, bytes]) -> None:
        self.run = loaded.run
        self.definition = loaded.definition
        self.pos = loaded.pos
        self.stale = False
        self._own = 0
        self._last = loaded.pos
        self.transcript = Transcript(loaded.definition.window, loaded.definition.history_tokens)
        self.calls = {call.id: call for call in loaded.calls if call.step == loaded.run.step}
        self.waits = list(loaded.waits)
        self._bodies = bodies
        self._rows: list[RunMessage] = []
        self._recent: deque[tuple[str, str]] = deque(maxlen=RECENT)
        self.repeated: set[tuple[str, str]] = set()  # the calls that were made over and over of late
        self._remarks_before, self.remarks = _remarks(loaded.messages)
        self._remember(loaded.calls)
        self._take(loaded.messages, loaded.calls)

    def _take(self, messages: Iterable[RunMessage], calls: Iterable[ToolCall]) -> None:
        """The log as it was read. The group of a step that is still under way is completed later."""
        rows = list(messages)
        system = next((row for row in rows if row.role == "system"), None)
        if system is not None:
            self.transcript.system = Message("system", system.content)
        rows = [row for row in rows if row.role != "system"]
        if self.open_calls:
            begun = next(place for place, row in enumerate(rows) if row.role == "assistant" and row.step == self.run.step)
            self._rows = rows[begun:]
            rows = rows[:begun]
        self.transcript.add(groups_of(rows, calls, self._bodies))

    @property
    def open_calls(self) -> list[ToolCall]:
        return [call for call in self.calls.values() if call.settled_pos is None]

    def waits_of(self, call_id: str) -> list[Wait]:
        return [wait for wait in self.waits if wait.call_id == call_id]

    @property
    def pause(self) -> Wait | None:
        """The wait for somebody's word on the whole step, if there is one that was not dealt with."""
        found = next(iter(self.waits_of(pause_of(self.run.step))), None)
        return None if found is None or (found.details or {}).get("done") else found

    @property
    def question(self) -> Wait | None:
        """The wait for somebody's word on the step that comes next, if there is one."""
        return next(iter(self.waits_of(before(self.run.step + 1))), None)

    @property
    def is_paused(self) -> bool:
        return any(wait is not None and wait.status == "open" for wait in (self.pause, self.question))

    @property
    def was_spoken_to(self) -> bool:
        """Whether somebody said something that the agent has not seen."""
        return self.transcript.ends_with_user

    def wrote(self, written: Written) -> None:
        remarks = self.remarks
        self.run = written.run
        self.pos = self._last = written.pos
        self._own = 0
        self.stale = self.stale or written.gap
        self.calls = {call.id: call for call in written.calls}
        self.waits = []
        self._remember(written.calls)
        self._rows = [written.message]
        self.remarks = 0
        self._remarks_before = remarks
        if written.remark is not None:
            self._rows.append(written.remark)
            self.remarks = remarks + 1
        self._close()

    def settled(self, settled: Settled) -> None:
        self.calls[settled.call.id] = settled.call
        self._own += 2
        self._last = max(self._last, settled.message.pos)
        self._rows.append(settled.message)
        if _is_no_answer(settled.message):
            self.remarks = self._remarks_before + 1
        self._close()

    def changed(self, call: ToolCall) -> None:
        self.calls[call.id] = call

    def _close(self) -> None:
        """When the last call of a step is settled, its group is whole, if nobody else wrote between."""
        if self.open_calls:
            return
        self.stale = self.stale or self._last != self.pos + self._own
        self.pos = self._last
        self._own = 0
        if not self.stale:
            self.transcript.add(groups_of(self._rows, self.calls.values(), self._bodies))
            self._rows = []

    def _remember(self, calls: Iterable[ToolCall]) -> None:
        self._recent.extend(signature(call.tool_name, call.args) for call in calls)
        self.repeated = {call for call in self._recent if self._recent.count(call) >= REPEATS}


def signature(tool: str, args: object) -> tuple[str, str]:
    """The same for two calls of a tool that mean the same, however a model writes them."""
    if isinstance(args, str):
        try:
            args = msgspec.json.decode(args)
        except (ValueError, RecursionError):
            return tool, str(args)
    return tool, msgspec.json.encode(args, order="sorted").decode()


def _is_no_answer(message: RunMessage) -> bool:
    """Whether this says that an answer would not do."""
    if message.role == "user":
        return message.name == REMARK
    return message.role == "tool" and message.name == FINAL_ANSWER and message.content.startswith("error: ")


class _Remarks(NamedTuple):
    """How many answers in a row would not do: up to the last step, and with it."""

    before: int
    now: int


def _remarks(messages: Iterable[RunMessage]) -> _Remarks:
    before = 0
    found = False
    for message in messages:
        if message.role == "assistant":
            before = before + 1 if found else 0
            found = False
        elif _is_no_answer(message):
            found = True
        elif message.role == "user":  # somebody spoke, and it may begin anew
            before, found = 0, False
    return _Remarks(before, before + 1 if found else 0)
