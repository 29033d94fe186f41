"""A backup taken while agents work is of one moment, is well, and goes on from there."""

import asyncio
import itertools
import json
import subprocess
from pathlib import Path

from stigmergy import Agent, App, Reply, Request, ScriptedModel, tool
from stigmergy.agents.models.port import Asked
from stigmergy.kernel.database import Database
from stigmergy.kernel.transaction import Snapshot
from stigmergy.runs.store import RUNS
from stigmergy.settings import Settings
from support.agents import until
from support.commands import COMMAND

ALL = RUNS.query("test_all", "WHERE tenant = :tenant")


@tool
async def look(at: int) -> str:
    """Look at something."""
    await asyncio.sleep(0.001)
    return f"seen {at}"


def script(request: Request) -> Reply:
    """Three steps with a call each, then the answer."""
    asked = sum(message.role == "tool" for message in request.messages)
    return Reply(tool_calls=(Asked(f"c{asked}", "look", f'{{"at": {asked}}}'),)) if asked < 3 else Reply("done")


def program(path: Path) -> App:
    agent = Agent("ada", ScriptedModel(script), "Look.", tools=[look])
    return App(agents=[agent], settings=Settings(store=str(path), embedder="off", lease_seconds=1.0))


async def statuses(database: Database) -> list[str]:
    async def read(tx: Snapshot) -> list[str]:
        return [run.status for run in await tx.find(ALL)]

    return await database.read(read)


async def unwell(path: Path) -> list[str]:
    """What the doctor finds, as a person asks it."""
    command = [COMMAND, "doctor", "--store", str(path), "--json"]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
    return [finding["check"] for finding in json.loads(done.stdout) if not finding["well"]]


async def test_a_backup_while_agents_work_is_well_and_its_runs_go_on(tmp_path: Path) -> None:
    async def ten_are_done() -> bool | None:
        return (await statuses(app.database)).count("completed") >= 10 or None

    async def all_are_done() -> bool | None:
        return {*await statuses(copy.database)} == {"completed"} or None

    async with program(tmp_path / "store.db") as app:
        starting = [asyncio.create_task(start_on(app, numbers)) for numbers in (itertools.count(), itertools.count())]
        await until(ten_are_done)
        await app.database.backup(tmp_path / "copy.db")
        for task in starting:
            task.cancel()
        await asyncio.gather(*starting, return_exceptions=True)
    assert await unwell(tmp_path / "copy.db") == []
    async with program(tmp_path / "copy.db") as copy:
        before = await statuses(copy.database)
        assert before.count("completed") >= 10
        assert {*before} - {"completed"}, "nothing was under way"
        await until(all_are_done)
    assert await unwell(tmp_path / "copy.db") == []


async def start_on(app: App, numbers: "itertools.count[int]") -> None:
    for number in numbers:
        await app.runs.start("ada", f"go {number}")
        await asyncio.sleep(0.005)
