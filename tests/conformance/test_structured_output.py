"""Answers of a type: checked, sent back twice, typed for the program; by an answer in text or by `final_answer`."""

from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta

from stigmergy import App
from stigmergy.breadcrumbs.model import Schema
from stigmergy.engine.watching import RunFailed
from stigmergy.settings import Settings
from support.agents import Steps, agent, call, ended, heard, results, system


class Person(msgspec.Struct):
    name: str
    age: Annotated[int, Meta(ge=0)]


async def test_an_answer_is_of_its_type(settings: Settings) -> None:
    script = Steps('{"name": "Mia", "age": 7}')
    async with App(settings=settings, agents=[agent("ada", script, output=Person)]) as app:
        run = await app.runs.start("ada", "who?")
        assert await run.result(20) == Person("Mia", 7)
        assert (await run.view()).run.result == {"name": "Mia", "age": 7}
        assert '"age"' in system(script.asked[0])


@pytest.mark.parametrize("bad", ["Mia is seven", '{"name": "Mia"}', '{"name": "Mia", "age": -1}', "[]", "```\nno\n```"])
async def test_a_bad_answer_goes_back_to_the_model_twice_with_what_is_wrong(settings: Settings, bad: str) -> None:
    script = Steps(bad, bad, '```json\n{"name": "Mia", "age": 7}\n```')
    async with App(settings=settings, agents=[agent("ada", script, output=Person)]) as app:
        assert await app.ask("ada", "who?", timeout=20) == Person("Mia", 7)
        told = heard(script.asked[2])[1:]
        assert len(told) == 2
        assert all(text.startswith("This answer will not do: ") for text in told)


async def test_a_third_bad_answer_fails_the_run_with_what_was_wrong(settings: Settings) -> None:
    script = Steps("no")
    async with App(settings=settings, agents=[agent("ada", script, output=Person)]) as app:
        run = await app.runs.start("ada", "who?")
        with pytest.raises(RunFailed, match=r"failed: answer: .* \(3 tries\)"):
            await run.result(20)
        assert len(script.asked) == 3


async def test_what_went_well_between_begins_the_count_anew(settings: Settings) -> None:
    good = '{"name": "Mia", "age": 7}'
    script = Steps("no", "no", call("set_variable", key="a", value=1), "no", "no", good)
    ada = agent("ada", script, output=Person, builtin_tools=("set_variable",))
    async with App(settings=settings, agents=[ada]) as app:
        assert await app.ask("ada", "who?", timeout=20) == Person("Mia", 7)


async def test_the_tool_for_answers_takes_the_type_and_counts_alike(settings: Settings) -> None:
    good = call("final_answer", result={"name": "Mia", "age": 7})
    bad = call("final_answer", result={"name": "Mia", "age": "old"})
    async with App(settings=settings, agents=[agent("ada", Steps(bad, bad, good), output=Person)]) as app:
        assert await app.ask("ada", "who?", timeout=20) == Person("Mia", 7)
    script = Steps(bad, bad, bad, good)
    async with App(settings=settings, agents=[agent("ada", script, output=Person)]) as app:
        run = await ended(app, (await app.runs.start("ada", "who?")).id)
        assert str(run.error).startswith("answer: result.age: ")
        assert len(script.asked) == 3
        shown = next(shown for shown in script.asked[0].tools if shown.name == "final_answer")
        assert "Person" in str(shown.parameters)
        assert "error: result.age" in results(script.asked[1])[0]


@pytest.mark.parametrize("kind", [list[int], dict[str, float], int, str | None, Any])
async def test_any_type_that_has_a_schema_will_do(settings: Settings, kind: Any) -> None:
    script = Steps("null" if kind == str | None else "[1]", "{}", "1")
    async with App(settings=settings, agents=[agent("ada", script, output=kind)]) as app:
        run = await ended(app, (await app.runs.start("ada", "?")).id)
        assert run.status == "completed"


async def test_an_answer_that_its_breadcrumb_may_not_hold_fails_the_run(settings: Settings) -> None:
    ada = agent("ada", Steps("a text"), output={"schema_name": "strict.v1"})
    async with App(settings=settings, agents=[ada]) as app:
        await app.breadcrumbs.put_schema(Schema(name="strict.v1", json_schema={"type": "object", "required": ["n"]}))
        run = await ended(app, (await app.runs.start("ada", "?")).id)
        assert (run.status, str(run.error).split(":")[0]) == ("failed", "schema_violation")
        assert (await app.breadcrumbs.find({"schema_name": "strict.v1"})).items == []
