"""The run machine against a model in plain Python: any order of answers, replies, timers, cancels, deaths of workers, messages,
second deliveries and reopenings. After each of them the store holds what the model says, and what must hold of all runs.
"""

import asyncio
import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count, groupby
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from stigmergy import Agent, Asked, Reply, Request, ScriptedModel, tool
from stigmergy.agents.model import Limits, ToolSpec, queue_of
from stigmergy.agents.models.port import ModelFailed
from stigmergy.agents.store import declare_agents
from stigmergy.app import EFFECTS
from stigmergy.engine.code import Code
from stigmergy.engine.runtime import Runtime
from stigmergy.engine.step import Driver
from stigmergy.errors import Conflict, LeaseLost, NotFound
from stigmergy.kernel.clock import ManualClock
from stigmergy.kernel.database import Database
from stigmergy.kernel.faults import watch_points
from stigmergy.kernel.leases import Claim, bury, claim, enlist
from stigmergy.kernel.timers import fire, next_timers
from stigmergy.kernel.transaction import SHARED, Scope, Transaction
from stigmergy.runs import steps
from stigmergy.runs.commands import DEADLINE, Start, hear, start_run
from stigmergy.runs.endings import cancel_run
from stigmergy.runs.model import SETTLED
from stigmergy.runs.points import POINTS
from stigmergy.runs.settling import WAIT, timer_id
from stigmergy.runs.tools import Acting, Party, Waiting, builtin
from stigmergy.runs.waits import answer_tool, answer_wait
from support.crash_check import check_tenant as check_journal_of
from support.run_check import OF_RUNS, Books, Life, Lives, books_of, check_tenant
from support.run_model import DEADLINE_MS, DEEPEST, ENDED, MOST_STEPS, TWO_MS, Action, Call, Entry, Model, Run
from support.stores import OpenStore, postgres_opener, sqlite_opener

# ---- the agent, which does as the example says ----

TOOLS = {"note": "note", "once": "once", "boom": "boom", "client": "show", "two": "ask_two", "again": "reactivate_task"}
KINDS = {tool: kind for kind, tool in TOOLS.items()}


@tool(repeatable=True)
async def note(n: int) -> int:
    return n


@tool
async def once(n: int) -> int:
    return n


@tool
async def boom(n: int) -> int:
    raise LookupError(n)


SHOW = ToolSpec(name="show", parameters={"type": "object", "properties": {"n": {"type": "integer"}}}, execution_type="client")


class Numbered(msgspec.Struct):
    n: int


async def _ask_two(tx: Transaction, acting: Acting, args: dict[str, Any]) -> Waiting:
    parties = [Party(name, name, "human") for name in "bc"]
    return Waiting(kind="reply", parties=parties, timeout_ms=TWO_MS, question="well?")


ASK_TWO = builtin("ask_two", "Ask two.", Numbered, _ask_two)


class Script:
    """The next run's actions, and the tasks that there are to be given more to do."""

    def __init__(self) -> None:
        self.plan: deque[Action] = deque()
        self.first_task: str = ""
        self._numbers = count()

    def __call__(self, request: Request) -> Reply | str:
        action = self.plan.popleft() if self.plan else "answer"
        if action == "answer":
            return "done"
        if action == "fail":
            raise ModelFailed("it is tired")
        step = 1 + sum(message.role == "assistant" for message in request.messages)
        return Reply("", tuple(self._asked(kind, f"call_{step}_{place}") for place, kind in enumerate(action, 1)))

    def _asked(self, kind: str, call_id: str) -> Asked:
        arguments: dict[str, Any] = {"n": next(self._numbers)}
        if kind in ("child", "aside"):
            arguments = {"agent": "agent", "instruction": f"task {call_id}", "wait": kind == "child"}
        elif kind == "again":
            arguments = {"task_id": self.first_task or "none", "instruction": f"again {call_id}"}
        return Asked("x", TOOLS.get(kind, "create_task"), json.dumps(arguments))


SCRIPT = Script()
AGENT = Agent(
    "agent",
    ScriptedModel(SCRIPT),
    "Do as you are told.",
    tools=[note, once, boom, SHOW],
    delegates=["agent"],
    builtin_tools=("create_task", "reactivate_task", "ask_two"),
    limits=Limits(max_steps=MOST_STEPS, deadline_ms=DEADLINE_MS, nesting=DEEPEST, concurrent_runs=1_000, children=1_000),
    window=1_000,
)
QUEUE = queue_of(AGENT.definition)


# ---- what the store says, in the model's words ----


class Seen:
    """The runs of a tenant by their paths, and where to find them."""

    def __init__(self, lives: Lives, books: Books) -> None:
        self.path_of: dict[str, str] = {}
        for life in sorted(lives.of.values(), key=lambda life: life.run.nesting):
            run = life.run
            if run.parent_run_id is None:
                self.path_of[run.id] = run.cause_key or ""
            else:
                task = lives.tasks[run.task_id or ""]
                self.path_of[run.id] = f"{self.path_of[run.parent_run_id]}/{task.tool_call_id}"
        self.id_of = {path: id for id, path in self.path_of.items()}
        self.lives = {self.path_of[id]: life for id, life in lives.of.items()}
        self._task_path = {life.run.task_id: path for path, life in self.lives.items()}
        self.tasks = {task_path: id for id, task_path in self._task_path.items()}
        self.runs = {path: self._run(life, books, lives) for path, life in self.lives.items()}

    def _run(self, life: Life, books: Books, lives: Lives) -> Run:
        run = life.run
        return Run(
            status=run.status,
            step=run.step,
            most=run.max_steps,
            ready=run.id in books.ready,
            deadline=run.deadline if (DEADLINE, run.id) in books.timers else None,
            log=list(self._log(life)),
            calls={call.id: self._call(life, call, books) for call in life.calls if call.status not in SETTLED},
            completions=0 if run.task_id is None else lives.tasks[run.task_id].completions,
        )

    def _log(self, life: Life) -> Iterator[Entry]:
        calls = {call.id: call for call in life.calls}
        for message in life.messages:
            match message.role:
                case "system":
                    yield ("system",)
                case "tool":
                    yield "tool", message.tool_call_id or "", calls[message.tool_call_id or ""].status
                case "user" if message.name is not None:
                    _, task_id, number = message.name.split(":")
                    yield "user", f"task:{self._task_path[task_id]}:{number}"
                case _:
                    yield message.role, message.content

    def _call(self, life: Life, call: Any, books: Books) -> Call:
        kind = KINDS.get(call.tool_name) or ("child" if call.args.get("wait", True) else "aside")
        waits = [wait for wait in life.waits if wait.call_id == call.id]
        names = {wait.party: "client" if wait.kind == "tool" else self.path_of.get(wait.party, wait.party) for wait in waits}
        has_timer = (WAIT, timer_id(life.run.id, call.id)) in books.timers
        return Call(
            kind,
            {names[wait.party]: wait.status == "answered" for wait in waits},
            waits[0].deadline if waits and has_timer else None,
            self._task_path.get(call.args["task_id"]) if kind == "again" else None,
        )

    def wait_of(self, path: str, call_id: str, party: str) -> str:
        waits = self.lives[path].waits
        return next(wait.id for wait in waits if wait.call_id == call_id and wait.party in (party, "client:somebody"))


def in_any_order(log: Iterable[Entry]) -> list[list[Entry]]:
    """Results that stand beside each other came at once, in whatever order."""
    return [sorted(group) if is_tool else list(group) for is_tool, group in groupby(log, lambda entry: entry[0] == "tool")]


# ---- the machine ----

One = TypeVar("One", str, tuple[str, str, str])


class Dies(BaseException):
    """The worker, at the point that the example says."""


@contextmanager
def dying_at(point: str, nth: int = 1) -> Iterator[None]:
    passed = count(1)

    def reached(name: str) -> None:
        if name == point and next(passed) == nth:
            raise Dies

    watch_points(reached)
    try:
        yield
    finally:
        watch_points(None)


actions = st.one_of(
    st.sampled_from(("answer", "answer", "fail")),
    st.lists(st.sampled_from(("note", "once", "boom", "client", "two", "child", "child", "aside")), min_size=1, max_size=3).map(
        tuple
    ),
    st.lists(st.sampled_from(("again", "client", "child")), min_size=1, max_size=3, unique=True).map(tuple),
)
plans = st.lists(actions, max_size=3)
INNER_POINTS = tuple(point for point in POINTS if point not in ("run.claimed", "start.half", "answer.half", "expiry.half"))


# What an example draws never depends on what the store did: of calls that are made at once any may be first.
places = st.integers(0, 99)


def at(place: int, among: Iterable[One]) -> One | None:
    """One of these, if there are any."""
    found = sorted(among)
    return found[place % len(found)] if found else None


class RunMachine(RuleBasedStateMachine):
    """Runs on tenants that no example before had."""

    numbers = count()
    open_store: OpenStore
    runner: asyncio.Runner
    more: Mapping[str, Any]
    store: Database
    clock: ManualClock

    @initialize()
    def begin(self) -> None:
        self.scope = Scope(f"machine-{next(self.numbers)}", "somebody")
        self.model = Model()
        self.model.now = self.clock.now()
        self.look()
        self.enlist()

    def run(self, coroutine: Any) -> Any:
        return self.runner.run(coroutine)

    def write(self, unit: Any, *args: Any, **kwargs: Any) -> Any:
        return self.run(self.store.write(unit, *args, scope=self.scope, **kwargs))

    def enlist(self) -> None:
        self.runtime = Runtime(self.store, Code([AGENT]), builtins=[ASK_TWO])
        self.worker: str = self.write(enlist)

    def look(self) -> None:
        """Read everything, and check what must hold of all runs."""
        journal = self.run(self.store.read(check_journal_of, OF_RUNS, scope=self.scope)) if self.model.runs else None
        books = self.run(books_of(self.store, self.scope.tenant))
        self.seen = Seen(Lives({}, {}) if journal is None else check_tenant(journal, books), books)

    def refused(self, kind: type[Exception], unit: Any, *args: Any, **kwargs: Any) -> None:
        with pytest.raises(kind):
            self.write(unit, *args, **kwargs)

    def rolled_back(self, point: str, unit: Any, *args: Any, **kwargs: Any) -> None:
        """Whoever writes dies in the middle of it, if it comes to that."""
        with dying_at(point), pytest.raises(Dies):
            self.write(unit, *args, **kwargs)

    # ---- from outside ----

    @rule(again=st.booleans())
    def start(self, again: bool) -> None:
        path = f"r{len(self.model.runs)}"
        given = Start(agent="agent", owner_id="somebody", space_id="space", instruction=f"do {path}", cause_key=path)
        if again:
            self.rolled_back("start.half", start_run, given)
        run = self.write(start_run, given)
        assert self.write(start_run, given).id == run.id
        self.model.start(path, f"do {path}")

    @rule(which=places, n=st.integers(0, 9))
    def speak(self, which: int, n: int) -> None:
        path = at(which, self.model.runs)
        if path is None:
            return
        if self.model.hear(path, f"said {n}"):
            self.write(hear, self.seen.id_of[path], f"said {n}")
        else:
            self.refused(Conflict, hear, self.seen.id_of[path], f"said {n}")

    @rule(which=places, dies=st.booleans())
    def cancel(self, which: int, dies: bool) -> None:
        path = at(which, (path for path, run in self.model.runs.items() if run.status not in ENDED))
        if path is None:
            return
        if dies:
            self.rolled_back("end.half", cancel_run, self.seen.id_of[path])
        self.write(cancel_run, self.seen.id_of[path])
        self.model.cancel(path)

    def awaited(self) -> Iterator[tuple[str, str, str]]:
        """Who is waited for and is no run."""
        for path, run in self.model.runs.items():
            for id, call in run.calls.items():
                waited = call.parties if call.kind != "child" else {}
                yield from ((path, id, party) for party, answered in waited.items() if not answered)

    @rule(which=places, dies=st.booleans(), twice=st.booleans())
    def answer(self, which: int, dies: bool, twice: bool) -> None:
        awaited = at(which, self.awaited())
        if awaited is None:
            return
        path, call_id, party = awaited
        given = {"result": 1} if party == "client" else {"text": "so it is"}
        wait = self.seen.wait_of(path, call_id, party)
        if dies:
            self.rolled_back("answer.half", answer_wait, wait, given)
        self.write(answer_wait, wait, given)
        assert self.model.answer(path, call_id, party)
        if twice:
            self.refused(Conflict, answer_wait, wait, given)

    @rule(which=places, place=st.integers(1, 3))
    def answer_what_does_not_wait(self, which: int, place: int) -> None:
        path = at(which, self.model.runs)
        if path is None:
            return
        run = self.model.runs[path]
        call_id = f"call_{run.step}_{place}"
        if "client" in (run.calls[call_id].parties if call_id in run.calls else ()):
            return
        known = call_id in {call.id for call in self.seen.lives[path].calls}
        self.refused(Conflict if known else NotFound, answer_tool, self.seen.id_of[path], call_id, result=2)

    @rule(seconds=st.sampled_from((1, 6, 61, 700)))
    def time_passes(self, seconds: int) -> None:
        async def advance() -> None:
            self.clock.advance(seconds)

        self.run(advance())
        self.model.now = self.clock.now()
        self.fire_what_is_due()

    def fire_what_is_due(self) -> None:
        """In the order in which the store has them: of two that are due the first may take the second away."""
        while due := self.due():
            timer = due[0]
            assert self.run(self.store.write(fire, timer, EFFECTS[timer.kind], scope=Scope(timer.tenant, "clock")))
            if timer.kind in (DEADLINE, WAIT):
                run_id, _, call_id = timer.id.partition("/")
                self.model.fire(self.seen.path_of[run_id], call_id)

    def due(self) -> list[Any]:
        found = self.run(self.store.read(next_timers, EFFECTS, 10_000))
        return [timer for timer in found if timer.tenant == self.scope.tenant and timer.due_at <= self.clock.now()]

    @rule()
    def reopen(self) -> None:
        self.run(self.store.close())
        type(self).store = self.run(opened(self.open_store, self.clock, self.more))
        self.enlist()

    # ---- a worker ----

    def claimed(self) -> Claim | None:
        """The next run that is ready, with which a worker begins."""
        found = self.write(claim, QUEUE, self.worker, 1)
        assert bool(found) == any(run.ready for run in self.model.runs.values())
        if not found:
            return None
        path = self.seen.path_of[found[0].id]
        assert self.model.runs[path].ready
        self.first_task(path)
        return found[0]

    def first_task(self, path: str) -> None:
        tasks = self.model.tasks[path]
        SCRIPT.first_task = (self.seen.tasks.get(tasks[0]) if tasks else None) or ""

    @rule(plan=plans)
    def work(self, plan: list[Action]) -> None:
        claimed = self.claimed()
        if claimed is None:
            return
        SCRIPT.plan = deque(plan)
        self.run(Driver(self.runtime, self.worker, claimed).drive())
        self.model.drive(self.seen.path_of[claimed.id], plan)

    @rule(plan=plans, point=st.sampled_from(INNER_POINTS), nth=st.integers(1, 4))
    def work_and_die(self, plan: list[Action], point: str, nth: int) -> None:
        """What is there of the work of a worker that died is a beginning of it; another worker goes on from there."""
        claimed = self.claimed()
        if claimed is None:
            return
        SCRIPT.plan = deque(plan)
        with dying_at(point, nth):
            died = self.run(self.dies(Driver(self.runtime, self.worker, claimed)))
        if not died:
            self.model.drive(self.seen.path_of[claimed.id], plan)
            return
        dead = self.worker
        self.enlist()
        assert self.write(bury, dead, 0)
        self.refused(LeaseLost, steps.give_back, dead, claimed)
        before = self.seen
        self.fire_what_is_due()
        self.take_as_it_is(before)

    async def dies(self, driver: Driver) -> bool:
        """Whether it comes to that. Then nothing of it goes on."""
        before = asyncio.all_tasks()
        try:
            await driver.drive()
        except Dies:
            left = [task for task in asyncio.all_tasks() - before if task.get_name().startswith("stream")]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            return True
        return False

    def take_as_it_is(self, before: Seen) -> None:
        self.model.runs = {path: Run() for path in before.runs} or {"": Run()}
        self.look()
        for path, run in before.runs.items():
            assert self.seen.runs[path].log[: len(run.log)] == run.log
        self.model.runs = self.seen.runs
        self.model.tasks = {path: [] for path in self.seen.runs}
        for path in sorted(self.seen.runs, key=lambda path: self.seen.id_of[path]):
            if "/" in path:
                self.model.tasks[path.rpartition("/")[0]].append(path)

    # ---- after each ----

    @invariant()
    def the_store_is_as_the_model(self) -> None:
        if not hasattr(self, "seen"):
            return
        self.fire_what_is_due()
        self.look()
        assert set(self.seen.runs) == set(self.model.runs)
        for path, run in self.model.runs.items():
            seen = self.seen.runs[path]
            assert in_any_order(seen.log) == in_any_order(run.log), path
            run.log = seen.log
            assert seen == run, path

    def teardown(self) -> None:
        """Whatever is still going on can be stopped, and nothing of it stays. A child that ends may wake its parent."""
        if not hasattr(self, "seen"):
            return
        for path in sorted(self.model.runs, key=lambda path: -path.count("/")):
            self.write(cancel_run, self.seen.id_of[path])
        self.fire_what_is_due_in_the_end()

    def fire_what_is_due_in_the_end(self) -> None:
        for timer in self.due():
            self.run(self.store.write(fire, timer, EFFECTS[timer.kind], scope=Scope(timer.tenant, "clock")))
        books = self.run(books_of(self.store, self.scope.tenant))
        assert not books.ready
        assert not books.timers


async def opened(open_store: OpenStore, clock: ManualClock, more: Mapping[str, Any]) -> Database:
    return await open_store(clock=clock, **more)


def check(open_store: OpenStore, *, examples: int, **more: Any) -> None:
    with asyncio.Runner() as runner:
        clock = ManualClock()
        store = runner.run(opened(open_store, clock, more))
        runner.run(store.write(declare_agents, "machine", Code([AGENT]).definitions(), scope=Scope(SHARED)))
        about = {"open_store": staticmethod(open_store), "runner": runner, "more": more, "store": store, "clock": clock}
        machine = type("Machine", (RunMachine,), about)
        try:
            run_state_machine_as_test(
                machine,
                settings=settings(
                    max_examples=examples,
                    stateful_step_count=25,
                    deadline=None,
                    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # to shrink takes minutes
                    suppress_health_check=[HealthCheck.too_slow],
                ),
            )
        finally:
            runner.run(machine.store.close())


@pytest.mark.parametrize("examples", [100, pytest.param(3_000, marks=pytest.mark.soak)])
def test_runs_on_sqlite_are_their_model(tmp_path: Path, examples: int) -> None:
    check(sqlite_opener(tmp_path / "store.db"), examples=examples, synchronous="OFF")


@pytest.mark.postgres
@pytest.mark.parametrize("examples", [10, pytest.param(300, marks=pytest.mark.soak)])
def test_runs_on_postgres_are_their_model(postgres_database: Any, examples: int) -> None:
    check(postgres_opener(postgres_database), examples=examples)
