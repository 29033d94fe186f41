"""The run machine as plain Python: what runs, their calls and waits are, and what each thing that happens makes of them.

A run is known by its path: what started it, and by which calls. What a model of the tests does in a step is an `Action`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

MOST_STEPS = 4
DEEPEST = 2
DEADLINE_MS = 60_000
CLIENT_MS = 600_000
TWO_MS = 5_000
GRACE_MS = 5_000
ENDED = ("completed", "failed", "canceled")

Kind = Literal["note", "once", "boom", "client", "two", "child", "aside", "again"]
Status = Literal["queued", "running", "waiting_tool", "waiting_reply", "completed", "failed", "canceled"]
Entry = tuple[str, ...]
Action = tuple[Kind, ...] | Literal["answer", "fail"]
"""Calls to make, the answer, or the model's failure."""


@dataclass
class Call:
    """An open call of the last step. `parties` are those who are waited for, and whether they have answered; `task` is the one to
    reactivate, as the model of the tests knew it when it asked."""

    kind: str
    parties: dict[str, bool] = field(default_factory=dict[str, bool])
    due: int | None = None
    task: str | None = None


@dataclass
class Run:
    status: Status = "queued"
    step: int = 0
    most: int = MOST_STEPS
    ready: bool = True
    deadline: int | None = 0
    log: list[Entry] = field(default_factory=list[Entry])
    calls: dict[str, Call] = field(default_factory=dict[str, Call])
    completions: int = 0


def parent_of(path: str) -> str | None:
    return path.rpartition("/")[0] or None


class Model:
    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        # who gave which tasks, in which order
        self.tasks: dict[str, list[str]] = {}
        self.now = 0
        # the task that a run knows of when a worker takes it up
        self.known_task: str | None = None

    # ---- what happens from outside ----

    def start(self, path: str, instruction: str) -> None:
        self.runs[path] = Run(deadline=self.now + DEADLINE_MS, log=[("system",), ("user", instruction)])
        self.tasks[path] = []

    def hear(self, path: str, text: str) -> bool:
        """Whether it could be said."""
        run = self.runs[path]
        if run.status in ("failed", "canceled"):
            return False
        run.log.append(("user", text))
        if run.status == "completed":
            self._wake(run)
        return True

    def cancel(self, path: str) -> None:
        if self.runs[path].status not in ENDED:
            self._end(path, "canceled")

    def answer(self, path: str, call_id: str, party: str) -> bool:
        """Whether it was waited for."""
        call = self.runs[path].calls.get(call_id)
        if call is None or call.parties.get(party, True):
            return False
        call.parties[party] = True
        if all(call.parties.values()):
            self._settle(path, call_id, "success")
        return True

    def timers(self) -> set[tuple[str, str, int]]:
        """Every timer there is: of a run's deadline, or of one of its calls."""
        found = {(path, "", run.deadline) for path, run in self.runs.items() if run.deadline is not None}
        waits = ((path, id, call.due) for path, run in self.runs.items() for id, call in run.calls.items())
        return found | {(path, id, due) for path, id, due in waits if due is not None}

    def fire(self, path: str, call_id: str) -> None:
        """The time is over, of a run or of a call."""
        if not call_id:
            return self._end(path, "failed")
        kind = self.runs[path].calls[call_id].kind
        return self._settle(path, call_id, "success" if kind == "two" else "failed")

    # ---- a worker takes a run and goes on with it as far as it goes ----

    def drive(self, path: str, plan: Iterable[Action]) -> None:
        run, actions = self.runs[path], iter(plan)
        self.known_task = self.tasks[path][0] if self.tasks[path] else None
        run.status, run.ready = "running", False
        self._perform(path, again=True)
        while run.status == "running":
            if run.calls:
                asks = any(call.kind == "two" for call in run.calls.values())
                run.status = "waiting_reply" if asks else "waiting_tool"
            elif run.step >= run.most:
                self._end(path, "failed")
            else:
                self._step(path, actions)

    def _step(self, path: str, actions: Iterator[Action]) -> None:
        run, action = self.runs[path], next(actions, "answer")
        if action == "fail":
            return self._end(path, "failed")
        run.step += 1
        if action == "answer":
            run.log.append(("assistant", "done"))
            return self._end(path, "completed")
        run.log.append(("assistant", ""))
        asked = ((kind, self.known_task if kind == "again" else None) for kind in action)
        run.calls = {f"call_{run.step}_{place}": Call(kind, task=task) for place, (kind, task) in enumerate(asked, 1)}
        return self._perform(path)

    def _perform(self, path: str, *, again: bool = False) -> None:
        """Make the calls that wait for nobody. Of one that was begun by somebody else nobody knows what came of it."""
        run = self.runs[path]
        for id, call in list(run.calls.items()):
            if call.parties:
                continue
            match call.kind:
                case "client":
                    call.parties, call.due = {"client": False}, self.now + CLIENT_MS
                case "two":
                    call.parties, call.due = {"b": False, "c": False}, self.now + TWO_MS
                case "child" | "aside":
                    self._delegate(path, id, call)
                case "again":
                    heard = call.task is not None and self.hear(call.task, f"again {id}")
                    self._settle(path, id, "success" if heard else "failed", goes_on=False)
                case "once" if not again:
                    self._settle(path, id, "success", goes_on=False)
                case "note":
                    self._settle(path, id, "success", goes_on=False)
                case _:
                    self._settle(path, id, "failed", goes_on=False)

    def _delegate(self, path: str, call_id: str, call: Call) -> None:
        if path.count("/") >= DEEPEST:
            return self._settle(path, call_id, "failed", goes_on=False)
        child = f"{path}/{call_id}"
        self.start(child, f"task {call_id}")
        self.tasks[path].append(child)
        if call.kind == "aside":
            return self._settle(path, call_id, "success", goes_on=False)
        call.parties, call.due = {child: False}, self.now + DEADLINE_MS + GRACE_MS
        return None

    # ---- what follows from it ----

    def _settle(self, path: str, call_id: str, status: str, *, goes_on: bool = True) -> None:
        """A call is over. Settled by somebody else than its worker, the last one of a step has the run go on."""
        run = self.runs[path]
        del run.calls[call_id]
        run.log.append(("tool", call_id, status))
        if goes_on and not run.calls:
            run.status, run.ready = "running", True

    def _wake(self, run: Run) -> None:
        run.status, run.ready = "running", True
        run.most, run.deadline = run.step + MOST_STEPS, self.now + DEADLINE_MS

    def _end(self, path: str, status: Status) -> None:
        if status != "completed":
            self._stop_calls(path)
            for under in [each for each in self.runs if each.startswith(f"{path}/")]:
                if self.runs[under].status not in ENDED:
                    self._stop_calls(under)
                    self._over(under, "canceled")
        self._over(path, status)
        parent = parent_of(path)
        if parent is not None and self.runs[parent].status not in ("failed", "canceled"):
            self._tell(parent, path)

    def _stop_calls(self, path: str) -> None:
        run = self.runs[path]
        run.log += [("tool", id, "canceled") for id in run.calls]
        run.calls = {}

    def _over(self, path: str, status: Status) -> None:
        run = self.runs[path]
        run.status, run.ready, run.deadline = status, False, None
        run.completions += "/" in path

    def _tell(self, path: str, child: str) -> None:
        call_id, run = child.rpartition("/")[2], self.runs[path]
        if self.answer(path, call_id, child):
            return
        run.log.append(("user", f"task:{child}:{self.runs[child].completions}"))
        if run.status == "completed":
            self._wake(run)
