"""What is known of a tree of runs, kept up to date by its events. Pure, but for the clock."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from stigmergy.engine.watching import RunEvent
from stigmergy.runs.model import ENDED


@dataclass
class CallLine:
    """A tool call. `child` is the run that it is for."""

    tool: str
    args: Any
    status: str
    began: float
    took: float | None = None
    result: Any = None
    error: str | None = None
    child: str | None = None


@dataclass
class RunLine:
    id: str
    agent: str
    parent: str | None
    began: float
    status: str = "queued"
    took: float | None = None
    steps: int = 0
    tokens: int = 0
    result: Any = None
    error: str | None = None
    text: str = ""
    asks: dict[str, RunEvent] = field(default_factory=dict[str, RunEvent])
    calls: dict[str, CallLine] = field(default_factory=dict[str, CallLine])
    children: list[str] = field(default_factory=list[str])


class Board:
    def __init__(self, root: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.root = root
        self.runs: dict[str, RunLine] = {}
        self._clock = clock

    def take(self, event: RunEvent) -> None:
        take = getattr(self, f"_take_{event.kind}")
        if event.kind == "status" or event.run_id in self.runs:
            take(event)

    def seconds(self, line: RunLine | CallLine) -> float:
        """How long it took, or has taken so far."""
        return self._clock() - line.began if line.took is None else line.took

    def depth(self, line: RunLine) -> int:
        return 0 if line.parent not in self.runs else 1 + self.depth(self.runs[line.parent])

    def _take_status(self, event: RunEvent) -> None:
        line = self.runs.get(event.run_id)
        if line is None:
            line = self.runs[event.run_id] = RunLine(event.run_id, event.agent, event.parent_run_id, self._clock())
            self._put_under(line)
        line.status = event.status or line.status
        line.steps = max(line.steps, event.step or 0)
        line.tokens = max(line.tokens, event.tokens_used or 0)
        line.result, line.error = event.result, event.error
        if line.status in ENDED:
            line.took = self.seconds(line)
            line.text = ""
            line.asks.clear()
        else:
            line.took = None

    def _put_under(self, line: RunLine) -> None:
        """Under the call that began it, as far as that can be told: the first that has no run yet and names its agent."""
        parent = self.runs.get(line.parent or "")
        if parent is None:
            return
        for call in parent.calls.values():
            if call.child is None and call.took is None and _named_in(call.args) == line.agent:
                call.child = line.id
                return
        parent.children.append(line.id)

    def _take_message(self, event: RunEvent) -> None:
        line = self.runs[event.run_id]
        if event.role == "assistant":
            line.text = event.text or ""
            line.steps = max(line.steps, event.step or 0)
            line.tokens += event.tokens or 0

    def _take_text(self, event: RunEvent) -> None:
        line = self.runs[event.run_id]
        line.text = line.text[: event.offset or 0] + (event.text or "")

    def _take_withdrawn(self, event: RunEvent) -> None:
        self.runs[event.run_id].text = ""

    def _take_call(self, event: RunEvent) -> None:
        calls = self.runs[event.run_id].calls
        known = calls.get(event.call_id or "")
        if known is None:
            calls[event.call_id or ""] = CallLine(event.tool or "", event.args, event.status or "", self._clock())
        else:
            known.status, known.args = event.status or known.status, event.args

    def _take_result(self, event: RunEvent) -> None:
        self._take_call(event)
        line = self.runs[event.run_id]
        call = line.calls[event.call_id or ""]
        call.took = self.seconds(call)
        call.result, call.error = event.result, event.error
        line.asks.pop(event.call_id or "", None)

    def _take_wait(self, event: RunEvent) -> None:
        self.runs[event.run_id].asks[event.call_id or ""] = event


def _named_in(args: Any) -> Any:
    return cast(dict[str, Any], args).get("agent") if isinstance(args, dict) else None
