"""A secret that a gateway tool uses is sent to the service, and is nowhere else: not in the store, not in what was asked of a
model, not in an event, not in a log."""

import asyncio
import json
import logging
from pathlib import Path

import pytest

from stigmergy import Agent, App, Asked, Reply, Request, ScriptedModel
from stigmergy.agents.config import parse_config
from stigmergy.settings import Settings
from stigmergy.spaces.following import Event
from support.web import Web

SECRET = "sw0rdf1sh-9c1d"


def weatherman(web: Web, prompts: list[str]) -> Agent:
    def script(request: Request) -> Reply | str:
        prompts.append(repr(request))
        last = request.messages[-1]
        return Reply(tool_calls=(Asked("1", "weather", "{}"),)) if last.role != "tool" else f"I heard {last.content}"

    tool = {
        "name": "weather",
        "executionType": "gateway",
        "visibility": "visible",
        "execution": {
            "url": f"{web.url}/now?key={{{{secret.WEATHER}}}}",
            "method": "POST",
            "headers": {"Authorization": "Bearer {{secret.WEATHER}}"},
            "body": {"key": "{{secret.WEATHER}}"},
        },
    }
    tools = parse_config({"name": "weatherman", "model": "m", "tools": [tool]}).definition.tools
    return Agent("weatherman", ScriptedModel(script), tools=tools)


def whole_store(folder: Path) -> bytes:
    """Every byte of it, the log that is not yet in the file too."""
    return b"".join(file.read_bytes() for file in sorted(folder.glob("app.db*")))


@pytest.mark.parametrize("status", [200, 500])
async def test_a_secret_is_in_no_record_prompt_event_or_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    monkeypatch.setenv("STIGMERGY_SECRET_WEATHER", SECRET)
    caplog.set_level(logging.DEBUG)
    prompts: list[str] = []
    events: list[Event] = []
    with Web() as web:
        web.answer_json({"you_sent": SECRET}, status)  # a service that says it back
        async with App(settings=Settings(store=str(tmp_path / "app.db")), agents=[weatherman(web, prompts)]) as app:
            mia = app.spaces_of("mia")
            space = await mia.create("us", members=["agent:weatherman"])
            await mia.post(space.id, "how is it?")
            async with asyncio.timeout(20):
                async for event in mia.follow(space.id, after=0, text=True):
                    events.append(event)
                    if event.kind == "agent.inactive" and event.status in ("completed", "failed"):
                        break
        (asked,) = web.asked
    assert SECRET in asked.path
    assert asked.headers["authorization"] == f"Bearer {SECRET}"
    assert json.loads(asked.body) == {"key": SECRET}
    assert len(prompts) == 2
    assert SECRET not in "".join(prompts)
    assert any(event.message is not None and event.message.role == "tool" for event in events)
    assert SECRET not in repr(events)
    assert SECRET not in caplog.text
    stored = whole_store(tmp_path)
    assert SECRET.encode() not in stored
    assert b"secret.WEATHER" in stored
