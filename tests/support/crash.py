"""Processes that are killed while they write, and what must be true of their store afterwards."""

import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar

import apsw
import msgspec
import psutil

from stigmergy.kernel.faults import POINTS
from support.crash_check import Journal, check_journal
from support.crash_child import Answer, Life, opener
from support.repository import ROOT

# How long a process may take to end once it is killed or has to kill itself.
PATIENCE_SECONDS = 60
# A process is killed at the latest after this much, and on average after half of it.
LONGEST_SECONDS = 0.25
# At the n-th passing of a point, with n up to this.
LATEST_PASSING = 30
POINTS_OF_WRITING = tuple(point for point in POINTS if point != "migration.applied")


class Mother:
    """A process from which others are forked, one at a time. `program` says what they do with their lives."""

    def __init__(self, program: str = "support.crash_child") -> None:
        self._program = program

    def __enter__(self) -> Self:
        environment = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
        command = [sys.executable, "-m", self._program]
        self._process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(PATIENCE_SECONDS)
        self._process.stdout.close()

    def bear(self, life: Life) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(msgspec.json.encode(life) + b"\n")
        self._child = int(self._process.stdout.readline())

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # it ended by itself, as `bury` will say
            os.kill(self._child, number)

    @property
    def stands_still(self) -> bool:
        """Whether the child was stopped by a signal."""
        return psutil.Process(self._child).status() == psutil.STATUS_STOPPED

    def bury(self) -> int:
        """Wait until it has ended, and say how."""
        assert self._process.stdout
        ended, _, _ = select.select([self._process.stdout], [], [], PATIENCE_SECONDS)
        if not ended:
            self.kill()
        how = int(self._process.stdout.readline())
        assert ended, f"it still lived after {PATIENCE_SECONDS} seconds"
        return how


T = TypeVar("T")


class Mortals(Generic[T]):
    """One process after the other on one store, each of them killed. What their callers were told is kept in `answers`."""

    # What they say, where they may be killed, how long they may live.
    said: type[T]
    points: Sequence[str] = POINTS_OF_WRITING
    longest_seconds = LONGEST_SECONDS
    latest_passing = LATEST_PASSING

    def __init__(self, mother: Mother, store: list[str], folder: Path, *, seed: int, name: str = "") -> None:
        self.store = store
        self.answers: list[T] = []
        self.kills = 0
        self._mother = mother
        self._random = random.Random(f"{seed} {name}")
        self._folder = folder
        self._seed = seed
        self._name = name
        self._life: Life | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._life is not None:
            self.kill()

    def begin(self, die_at: str = "", nth: int = 1) -> None:
        self.kills += 1
        name = f"{self._name}{self.kills}"
        self._life = Life(name, self.store, str(self._folder / f"answers {name}"), self._seed, die_at, nth)
        self._mother.bear(self._life)

    def wait(self) -> None:
        """Until it has killed itself."""
        assert self._life is not None
        life, self._life = self._life, None
        died = self._mother.bury()
        assert died == -signal.SIGKILL, f"it ended with {died} and should have been killed: {life}"
        path = Path(life.answers)
        if path.exists():
            # the last line may have been cut off
            whole = path.read_bytes().split(b"\n")[:-1]
            self.answers += [msgspec.json.decode(line, type=self.said) for line in whole]

    def kill(self) -> None:
        self._mother.kill()
        self.wait()

    def live_up_to(self, point: str, nth: int) -> None:
        self.begin(point, nth)
        self.wait()

    def live_a_while(self) -> None:
        """Killed at a random moment."""
        self.begin()
        time.sleep(self._random.uniform(0, self.longest_seconds))
        self.kill()

    def live_and_die_somehow(self) -> None:
        if self._random.random() < 0.5:
            self.live_a_while()
        else:
            self.live_up_to(self._random.choice(self.points), self._random.randint(1, self.latest_passing))


class Mortal(Mortals[Answer]):
    """Whoever writes notes."""

    said = Answer

    async def check(self, *beside: "Mortal") -> None:
        """Fail unless the store, opened again, holds what was acknowledged, once, and nothing else, and is whole."""
        store = await opener(self.store)()
        try:
            journals = await check_journal(store)
        finally:
            await store.close()
        check_answers(journals, [answer for mortal in (self, *beside) for answer in mortal.answers])
        if len(self.store) == 1:
            connection = apsw.Connection(self.store[0])
            assert connection.pragma("integrity_check") == "ok"
            connection.close()


def check_answers(journals: dict[str, Journal], answers: Iterable[Answer]) -> None:
    """Fail unless these journals tell what the callers were told."""
    stored: set[str] = set()
    for tenant, journal in journals.items():
        stored |= _markers(tenant, journal)
    steps = {(tenant, *step.place): step for tenant, journal in journals.items() for step in journal.steps}
    acknowledged: set[str] = set()
    for answer in answers:
        if answer.outcome == "refused":
            assert answer.marker not in stored, f"refused, and there: {answer}"
            continue
        step = steps.get((answer.tenant, "notes", answer.id, answer.version))
        assert step is not None, f"lost: {answer}"
        if answer.outcome == "deleted":
            assert step.event == "delete", f"{answer} is {step}"
            continue
        body = journals[answer.tenant].bodies[step.place]
        assert (step.seq, body.text) == (answer.seq, answer.marker), f"{answer} is {step} with {body}"
        acknowledged.add(answer.marker)
    # whoever is killed may have had one write without an answer
    unanswered = Counter(marker.rsplit(".", 1)[0] for marker in stored - acknowledged)
    assert not [caller for caller, count in unanswered.items() if count > 1]


def _markers(tenant: str, journal: Journal) -> set[str]:
    """The writes whose work is in a journal: each once, and each with both the records that it writes."""
    notes = {(id, version, body.text) for (name, id, version), body in journal.bodies.items() if name == "notes"}
    entries = {(body.note_id, body.pos, body.text) for (name, _, _), body in journal.bodies.items() if name == "entries"}
    assert notes == entries, f"{tenant}: half of a write is there: {notes ^ entries}"
    markers = {marker for _, _, marker in notes}
    assert len(markers) == len(notes), f"{tenant}: a write is there twice"
    return markers
