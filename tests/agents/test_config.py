"""Agents' configs as other programs hold them: the second form as written, the first migrated with a notice."""

from typing import Any

import pytest

from stigmergy.agents.config import parse_config
from stigmergy.agents.model import ToolSpec
from stigmergy.errors import Invalid

# as the seed has it
FETCH_WEATHER: dict[str, Any] = {
    "name": "fetchWeather",
    "description": "Get current weather for a city",
    "executionType": "gateway",
    "visibility": "visible",
    "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "execution": {"url": "https://api.weather.com/current?city={{input.city}}", "method": "GET", "timeout": 10000},
}


def one_tool(tool: dict[str, Any]) -> tuple[ToolSpec, list[str]]:
    parsed = parse_config({"name": "weatherman", "model": "scripted:x", "tools": [tool]})
    return parsed.definition.tools[0], parsed.notices


def test_the_second_form_is_taken_as_written() -> None:
    tool, notices = one_tool(FETCH_WEATHER)
    assert not notices
    assert (tool.name, tool.execution_type, tool.visibility, tool.timeout_ms) == ("fetchWeather", "gateway", "visible", 10_000)
    assert tool.parameters == FETCH_WEATHER["inputSchema"]
    assert tool.execution == FETCH_WEATHER["execution"]
    assert tool.repeatable


def test_a_whole_agent_in_camel_case() -> None:
    config = {
        "displayName": "Weather Man",
        "model": "openai:gpt-5-mini",
        "systemPrompt": "You tell the weather.",
        "maxSteps": 4,
        "secondMessage": "same_run",
        "tools": [FETCH_WEATHER],
    }
    definition = parse_config(config, name="weatherman").definition
    assert (definition.name, definition.display_name, definition.instructions) == (
        "weatherman",
        "Weather Man",
        "You tell the weather.",
    )
    assert (definition.limits.max_steps, definition.second_message) == (4, "same_run")


def test_our_own_form_is_taken_as_it_is() -> None:
    ours = {"name": "a", "model": "m", "tools": [{"name": "t", "execution_type": "client", "parameters": {"type": "object"}}]}
    tool = parse_config(ours).definition.tools[0]
    assert (tool.execution_type, tool.visibility) == ("client", "visible")


@pytest.mark.parametrize(
    ("first_form", "visibility"),
    [
        ({"displayTool": True}, "visible"),
        ({"displayTool": False}, "hidden"),
        ({"display": {"mode": "full"}}, "visible"),
        ({"display": {"mode": "minimal"}}, "result-only"),
        ({"display": {"mode": "hidden"}}, "hidden"),
        ({"displayTool": True, "display": {"mode": "hidden"}}, "hidden"),
        ({"displayTool": False, "display": {"mode": "minimal"}}, "result-only"),
    ],
)
def test_the_first_form_is_migrated_with_a_notice(first_form: dict[str, Any], visibility: str) -> None:
    tool, notices = one_tool({"name": "t", **first_form})
    assert tool.visibility == visibility
    assert len(notices) == 1
    assert "tools[0]" in notices[0]
    assert f"'{visibility}'" in notices[0]


def test_what_is_new_wins_over_what_is_old_and_the_rest_of_display_stays() -> None:
    display = {"mode": "full", "customUI": "Chart", "showInput": False, "showOutput": True}
    tool, notices = one_tool({"name": "t", "visibility": "hidden", "displayTool": True, "display": display})
    assert tool.visibility == "hidden"
    assert tool.display == {"customUI": "Chart", "showInput": False, "showOutput": True}
    assert len(notices) == 1


@pytest.mark.parametrize(
    ("execution_type", "visibility"),
    [("internal", "hidden"), ("mcp", "hidden"), ("gateway", "visible"), ("client", "visible"), ("space", "visible")],
)
def test_a_tool_that_does_not_say_is_seen_by_its_kind(execution_type: str, visibility: str) -> None:
    tool, _ = one_tool({"name": "t", "executionType": execution_type, "execution": {"url": "https://example.org/"}})
    assert tool.visibility == visibility
    assert tool.execution_type == ("client" if execution_type == "space" else execution_type)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"name": 3}, "tools[0].name"),
        ({"name": "a tool"}, "tools[0].name"),
        ({"executionType": "magic"}, "tools[0].executionType"),
        ({"visibility": "sometimes"}, "tools[0].visibility"),
        ({"inputSchema": {"type": "nothing"}}, "tools[0].inputSchema"),
        ({"inputSchema": []}, "tools[0].inputSchema"),
        ({"display": {"mode": "maximal"}, "visibility": None}, "tools[0].display.mode"),
        ({"displayTools": True}, "tools[0]"),
        ({"execution": None}, "tools[0].execution"),
        ({"execution": {"url": "ftp://example.org"}}, "tools[0].execution.url"),
        ({"execution": {"url": "https://{{input.host}}/"}}, "tools[0].execution.url"),
        ({"execution": {"url": "https://me:secret@example.org/"}}, "tools[0].execution.url"),
        ({"execution": {"url": "https://example.org:0/"}}, "tools[0].execution.url"),
        ({"execution": {"url": "https://example.org/", "method": "CONNECT"}}, "tools[0].execution.method"),
        ({"execution": {"url": "https://example.org/", "headers": {"a b": "c"}}}, "tools[0].execution.headers.a b"),
        ({"execution": {"url": "https://example.org/", "headers": {"host": "x"}}}, "tools[0].execution.headers.host"),
        ({"execution": {"url": "https://example.org/", "headers": {"x": "{{secret.key}}"}}}, "tools[0].execution"),
        ({"execution": {"url": "https://example.org/", "timeout": 0}}, "tools[0].execution.timeout"),
        ({"execution": {"url": "https://example.org/", "maxBytes": 1 << 30}}, "tools[0].execution.maxBytes"),
        ({"execution": {"url": "https://example.org/", "retries": 3}}, "tools[0].execution"),
    ],
)
def test_a_bad_tool_is_refused_with_its_place(change: dict[str, Any], where: str) -> None:
    with pytest.raises(Invalid) as refused:
        one_tool(FETCH_WEATHER | change)
    assert refused.value.where == where


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(Invalid, match="two tools"):
        parse_config({"name": "a", "model": "m", "tools": [FETCH_WEATHER, FETCH_WEATHER]})
