"""A run in a worker's hands: its rows as they were last read or written, and the prompt that grows from them.

It is a copy and never the truth. The log's positions tell whether somebody else wrote to it; then it is read again.
"""

from collections import deque
from collections.abc import Iterable, Mapping

from stigmergy.agents.models.port import Message
from stigmergy.engine.prompt import Transcript, arguments_text, groups_of
from stigmergy.runs.model import RunMessage, ToolCall, Wait
from stigmergy.runs.settling import Settled
from stigmergy.runs.steps import REMARK, Loaded, Written
from stigmergy.runs.waits import pause_of

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
        self.remarks = _remarks(loaded.messages)
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
        """The wait for somebody's word on the whole step, if there is one."""
        return next(iter(self.waits_of(pause_of(self.run.step))), None)

    def wrote(self, written: Written) -> None:
        before = self.remarks
        self.run = written.run
        self.pos = self._last = written.pos
        self._own = 0
        self.stale = self.stale or written.gap
        self.calls = {call.id: call for call in written.calls}
        self.waits = []
        self._remember(written.calls)
        self._rows = [written.message]
        self.remarks = 0
        if written.remark is not None:
            self._rows.append(written.remark)
            self.remarks = before + 1
        self._close()

    def settled(self, settled: Settled) -> None:
        self.calls[settled.call.id] = settled.call
        self._own += 2
        self._last = max(self._last, settled.message.pos)
        self._rows.append(settled.message)
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
        self._recent.extend((call.tool_name, arguments_text(call.args)) for call in calls)
        self.repeated = {call for call in self._recent if self._recent.count(call) >= REPEATS}


def _remarks(messages: Iterable[RunMessage]) -> int:
    """How many answers in a row, at the end of a log, would not do."""
    count = 0
    for message in messages:
        if message.role == "user":
            count = count + 1 if message.name == REMARK else 0
        elif message.role == "tool":
            count = 0
    return count
