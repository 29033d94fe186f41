"""What must be true of runs whatever happened to who worked on them, worked out from the journal and the tables alone."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from stigmergy.engine.calls import UNKNOWN_OUTCOME
from stigmergy.kernel.database import Database
from stigmergy.kernel.query import Statement
from stigmergy.kernel.transaction import Scope, Snapshot
from stigmergy.runs.commands import DEADLINE
from stigmergy.runs.endings import TASK_END
from stigmergy.runs.model import (
    CALL_TRANSITIONS,
    ENDED,
    RUN_TRANSITIONS,
    SETTLED,
    TASK_TRANSITIONS,
    WAITING,
    Checkpoint,
    Run,
    RunMessage,
    Task,
    Thought,
    ToolCall,
    Variable,
    Wait,
)
from stigmergy.runs.settling import WAIT, timer_id
from support.crash_check import ROWS, Journal, check_journal

WAIT_TRANSITIONS = {"open": {"answered", "expired", "canceled"}, "answered": {"answered"}, "expired": set(), "canceled": set()}
TRANSITIONS: dict[type, Mapping[str, Iterable[str]]] = {
    Run: RUN_TRANSITIONS,
    Task: TASK_TRANSITIONS,
    ToolCall: CALL_TRANSITIONS,
    Wait: WAIT_TRANSITIONS,
}
# How a run ends that takes with it what it left at work.
BROKEN_OFF = ("failed", "canceled")
FIRST = {Run: {"queued"}, Task: {"pending"}, ToolCall: {"pending", "running"}, Wait: {"open"}}

# The tables of a program that has no notes.
OF_RUNS = {name: query for name, query in ROWS.items() if name not in ("notes", "entries")}
HEADS = Statement("check.run_heads", "SELECT run_id, pos, active, parked FROM run_heads WHERE tenant = :tenant")
READY = Statement("check.ready", "SELECT id, worker FROM ready WHERE tenant = :of")
TIMERS = Statement("check.timers", "SELECT kind, id FROM timers WHERE tenant = :of")
GOING_ON = Statement(
    "check.going_on",
    "SELECT id, status FROM runs WHERE tenant = :tenant AND status NOT IN ('completed', 'failed', 'canceled')",
)
WORKERS = Statement("check.workers", "SELECT id FROM workers WHERE alive")


class Head(NamedTuple):
    run_id: str
    pos: int
    active: bool
    parked: bool


class Books(NamedTuple):
    """What is kept beside the records of a tenant."""

    heads: dict[str, Head]
    ready: dict[str, str | None]
    timers: set[tuple[str, str]]


class Left(NamedTuple):
    """What keeps a tenant's runs from being at rest."""

    runs: list[tuple[str, str]]
    ready: dict[str, str | None]
    timers: set[tuple[str, str]]


class Life(NamedTuple):
    """A run and everything of it, each thing as it is now."""

    run: Run
    messages: list[RunMessage]
    thoughts: list[Thought]
    variables: list[Variable]
    calls: list[ToolCall]
    checkpoints: list[Checkpoint]
    waits: list[Wait]


class Lives(NamedTuple):
    """All runs and tasks of a tenant."""

    of: dict[str, Life]
    tasks: dict[str, Task]


async def check_runs(store: Database) -> dict[str, Lives]:
    """Fail unless the runs of every tenant are whole, whether they go on or have ended."""
    journals = await check_journal(store, OF_RUNS)
    return {tenant: check_tenant(journal, await books_of(store, tenant)) for tenant, journal in journals.items()}


def check_tenant(journal: Journal, books: Books) -> Lives:
    check_transitions(journal)
    lives = lives_of(journal)
    for life in lives.of.values():
        check_life(life)
        check_books(life, books)
        check_task(life, lives)
        check_place_in_tree(life, lives)
    check_tasks(lives)
    assert set(books.heads) == set(lives.of)
    return lives


async def books_of(store: Database, tenant: str) -> Books:
    return await store.read(_books, tenant, scope=Scope(tenant))


async def check_all_ended(store: Database) -> dict[str, Lives]:
    """Fail unless, besides, every run has ended and nothing is left of what was kept for them."""
    found = await check_runs(store)
    for tenant in found:
        left = await left_of(store, tenant)
        assert not left.runs, f"{tenant}: these never ended: {left.runs}"
        assert not left.ready, f"{tenant}: these are left in a queue: {left.ready}"
        assert not left.timers, f"{tenant}: these timers are left: {left.timers}"
    return found


async def left_of(store: Database, tenant: str = "main") -> Left:
    """What is not over yet."""

    async def read(tx: Snapshot) -> Left:
        books = await _books(tx, tenant)
        return Left([(row[0], row[1]) for row in await tx.rows(GOING_ON)], books.ready, books.timers)

    return await store.read(read, scope=Scope(tenant))


async def workers(store: Database) -> list[str]:
    """Who counts as living."""

    async def read(tx: Snapshot) -> list[str]:
        return [row[0] for row in await tx.rows(WORKERS)]

    return await store.read(read)


async def _books(tx: Snapshot, tenant: str) -> Books:
    heads = [Head(*row) for row in await tx.rows(HEADS)]
    ready = [(row[0], row[1]) for row in await tx.rows(READY, of=tenant)]
    timers = [(row[0], row[1]) for row in await tx.rows(TIMERS, of=tenant)]
    return Books({head.run_id: head for head in heads}, dict(ready), set(timers))


def lives_of(journal: Journal) -> Lives:
    last: dict[tuple[str, str], Any] = {}
    for (collection, id, version), body in journal.bodies.items():
        if (collection, id) not in last or last[collection, id].version < version:
            last[collection, id] = body
    parts: dict[tuple[type, str], list[Any]] = defaultdict(list)
    for body in last.values():
        parts[type(body), getattr(body, "run_id", "")].append(body)
    runs = [body for body in last.values() if isinstance(body, Run)]
    kinds = (RunMessage, Thought, Variable, ToolCall, Checkpoint, Wait)
    lives = {run.id: Life(run, *(sorted(parts[kind, run.id], key=_place) for kind in kinds)) for run in runs}
    return Lives(lives, {body.id: body for body in last.values() if isinstance(body, Task)})


def _place(record: Any) -> Any:
    return getattr(record, "pos", None) or getattr(record, "opened_pos", None) or record.seq


def check_transitions(journal: Journal) -> None:
    """Everything only ever moved as the tables say, one step at a time."""
    before: dict[tuple[str, str], Any] = {}
    for (collection, id, _), body in sorted(journal.bodies.items(), key=lambda item: item[0]):
        if type(body) not in TRANSITIONS:
            continue
        was = before.get((collection, id))
        if was is None:
            assert body.status in FIRST[type(body)], f"{collection} {id} began as {body.status}"
        else:
            allowed = {was.status, *TRANSITIONS[type(body)][was.status]}
            assert body.status in allowed, f"{collection} {id} went from {was.status} to {body.status}"
        before[collection, id] = body
    settled = Counter(
        (body.run_id, body.id) for body in journal.bodies.values() if isinstance(body, ToolCall) and body.settled_pos is not None
    )
    assert not [call for call, times in settled.items() if times > 1], f"settled more than once: {settled}"


def check_life(life: Life) -> None:
    _check_log(life)
    _check_opening(life)
    _check_calls(life)
    _check_steps(life)
    _check_waits(life)


def _check_log(life: Life) -> None:
    """Each thing has its place, and no place is empty."""
    places = [each.pos for each in (*life.messages, *life.thoughts, *life.variables)]
    places += [call.opened_pos for call in life.calls]
    places += [call.settled_pos for call in life.calls if call.settled_pos is not None]
    assert sorted(places) == list(range(1, len(places) + 1)), f"the log of {life.run.id} has gaps, or two in one place: {places}"


def _check_opening(life: Life) -> None:
    systems = [message.pos for message in life.messages if message.role == "system"]
    assert systems in ([], [1]), f"run {life.run.id} has these system messages: {systems}"
    doubled = [name for name, times in Counter(message.name for message in life.messages).items() if _once(name) and times > 1]
    assert not doubled, f"run {life.run.id} was told more than once: {doubled}"


def _once(name: str | None) -> bool:
    """A message under such a name is written once."""
    return name is not None and name.startswith(("task:", "space:"))


def _check_calls(life: Life) -> None:
    """Each call is settled once, and the model is told of it once, in the same breath."""
    told = Counter(message.tool_call_id for message in life.messages if message.role == "tool")
    at = {message.pos: message for message in life.messages}
    assert set(told.values()) <= {1}, f"run {life.run.id} was told a result more than once: {told}"
    for call in life.calls:
        assert (call.status in SETTLED) == (call.settled_pos is not None), call
        assert (call.id in told) == (call.settled_pos is not None), call
        if call.settled_pos is not None:
            message = at[call.settled_pos + 1]
            assert (message.role, message.tool_call_id, message.step) == ("tool", call.id, call.step), message
    going_on = [call for call in life.calls if call.settled_pos is None]
    if life.run.status in ENDED:
        assert not going_on, f"run {life.run.id} is over, and these are not: {going_on}"
    assert {call.step for call in going_on} <= {life.run.step}, f"run {life.run.id} went on without {going_on}"


def _check_steps(life: Life) -> None:
    """A step is one assistant's message, its calls and one checkpoint: all of it, or nothing."""
    numbers = list(range(1, life.run.step + 1))
    said = [message for message in life.messages if message.role == "assistant"]
    assert [message.step for message in said] == numbers, f"run {life.run.id}: {said}"
    marks = [each for each in life.checkpoints if each.reason in ("step_complete", "low_confidence")]
    assert sorted(mark.step for mark in marks) == numbers, f"run {life.run.id}: {marks}"
    opened = Counter(call.step for call in life.calls)
    by_step = {mark.step: mark for mark in marks}
    for message in said:
        mark = by_step[message.step]
        remarks = sum(each.role == "user" and message.pos < each.pos <= mark.pos for each in life.messages)
        assert mark.pos == message.pos + opened[message.step] + remarks, f"half a step: {message}, {mark}"
        assert message.prompt is not None
        assert message.prompt.upto < message.pos
    failed = {call.settled_pos + 1 for call in life.calls if call.settled_pos is not None and call.status == "failed"}
    errors = [mark.pos for mark in life.checkpoints if mark.reason == "tool_error"]
    assert len(set(errors)) == len(errors)
    assert set(errors) <= failed


def _check_waits(life: Life) -> None:
    run, calls = life.run, {call.id: call for call in life.calls}
    for wait in life.waits:
        if (call := calls.get(wait.call_id)) is not None and wait.status == "open":
            assert call.settled_pos is None, f"{wait} waits for what is settled: {call}"
    still_open = [wait for wait in life.waits if wait.status == "open"]
    assert not still_open or run.status not in ENDED, f"run {run.id} is over and waits for {still_open}"
    assert still_open or run.status not in WAITING, f"run {run.id} waits for nothing"


def check_books(life: Life, books: Books) -> None:
    """Who is to go on is in a queue or waits for room in one; who waits has a timer that ends it; of who has ended nothing is
    left."""
    run, head = life.run, books.heads[life.run.id]
    places = len(life.messages) + len(life.thoughts) + len(life.variables) + len(life.calls)
    assert head.pos == places + sum(call.settled_pos is not None for call in life.calls), f"run {run.id}: {head}"
    assert not (head.active and head.parked)
    goes_on = run.status in ("queued", "running")
    assert not goes_on or run.id in books.ready or head.parked, f"run {run.id} is {run.status}, and nobody will take it up"
    assert not head.parked or run.id not in books.ready, f"run {run.id} waits for room, and is in the queue"
    assert ((DEADLINE, run.id) in books.timers) == (run.status not in ENDED), f"run {run.id} is {run.status}; {books.timers}"
    waited_for = {timer_id(run.id, wait.call_id) for wait in life.waits if wait.status == "open"}
    timers = {id for kind, id in books.timers if kind == WAIT and id.startswith(f"{run.id}/")}
    assert timers == waited_for, f"run {run.id} waits for {waited_for} and has the timers {timers}"
    if run.status in ENDED or run.status in WAITING:
        assert not head.active, f"run {run.id} is {run.status} and counts as one that works"


def check_task(life: Life, lives: Lives) -> None:
    """A run and its task are in the same place."""
    run = life.run
    if run.task_id is None:
        return
    task = lives.tasks[run.task_id]
    assert task.run_id == run.id, f"{task} has another run than {run}"
    told = [message for message in life.messages[:2] if message.role == "user"]
    assert told[0].content == task.instruction, f"run {run.id} was told something else: {told}"
    if run.status in TASK_END:
        expected = TASK_END[run.status]
        assert (task.status, task.result, task.error) == (expected, run.result, run.error), f"{task} is not as {run}"
    else:
        assert task.status == ("waiting" if run.status == "waiting_reply" else "running"), f"{task} is not as {run}"


def check_tasks(lives: Lives) -> None:
    runs = Counter(life.run.task_id for life in lives.of.values() if life.run.task_id is not None)
    assert set(runs.values()) <= {1}, f"a task has more than one run: {runs}"
    assert set(runs) == {task.id for task in lives.tasks.values() if task.run_id is not None}
    keys = Counter(life.run.cause_key for life in lives.of.values() if life.run.cause_key is not None)
    assert set(keys.values()) <= {1}, f"a cause started more than one run: {keys}"


def check_place_in_tree(life: Life, lives: Lives) -> None:
    """A run is where its parent says, and each knows how the other fares."""
    run = life.run
    if run.parent_run_id is None:
        assert (run.nesting, run.root_id) == (0, run.id)
        return
    parent = lives.of[run.parent_run_id]
    assert (run.nesting, run.root_id) == (parent.run.nesting + 1, parent.run.root_id)
    if parent.run.status in BROKEN_OFF and not _was_told_since(life, parent.run.ended_at or 0):
        assert run.status in ENDED, f"{run} goes on under {parent.run}"
    waits = [wait for wait in parent.waits if wait.party == run.id]
    for wait in waits:
        if wait.status == "open":
            assert run.status not in ENDED, f"{wait} waits for a run that is over: {run}"
        if wait.status == "answered" and run.task_id is not None:
            assert (wait.answer or {}).get("run_id") == run.id
    if run.task_id is not None and not waits and parent.run.status not in BROKEN_OFF and not _was_stopped_from_above(run, lives):
        task = lives.tasks[run.task_id]
        told = [message.name for message in parent.messages if (message.name or "").startswith(f"task:{task.id}:")]
        assert told == [f"task:{task.id}:{number}" for number in range(1, task.completions + 1)], f"{parent.run} heard {told}"


def _was_stopped_from_above(run: Run, lives: Lives) -> bool:
    """It ended with a whole tree. Who is in there is told of nothing any more, since that would wake who is done."""
    above = run
    while run.status == "canceled" and above.parent_run_id is not None:
        above = lives.of[above.parent_run_id].run
        if above.status in BROKEN_OFF:
            return True
    return False


def _was_told_since(life: Life, moment: int) -> bool:
    """Somebody gave a run more to do, whatever became of its parent."""
    return any(message.role == "user" and message.created_at >= moment for message in life.messages)


def check_done_once(lives: Lives, lines: Iterable[str], tools: Iterable[str] = ("once",)) -> None:
    """Each line is a tool's that must not run twice for a call: it did not, and it is known to have run."""
    times = Counter(lines)
    assert not [call for call, count in times.items() if count > 1], f"ran more than once: {times}"
    calls = {f"{call.run_id}/{call.id}": call for life in lives.of.values() for call in life.calls if call.tool_name in tools}
    assert set(times) <= set(calls), f"ran without a record that it would: {set(times) - set(calls)}"
    for key, call in calls.items():
        assert call.status != "success" or times[key] == 1, f"never ran: {call}"
        if call.status == "failed" and times[key]:
            assert call.error == UNKNOWN_OUTCOME, f"it did run: {call}"
