"""A model that follows a script: deterministic, offline, streaming. For tests, for demos, for building without a key.

A script is a Python function from the request to a reply, or rules from a file (TOML or JSON), the first that fits:

    [[rules]]
    when = { last_role = "user", contains = "price of" }      # also: tool (the last result's tool), step, matches (a pattern)
    call = [{ name = "price", arguments = { symbol = "BTC" } }]
    thinking = "I need the price."

    [[rules]]
    when = { tool = "price" }
    reply = "It is {{ last }} dollars."                        # a template over last, first_user, results, step

The last rule may have no `when`. Where none fits, the reply says so.
"""

import asyncio
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import minijinja
import msgspec

from stigmergy.agents.models.port import Asked, JsonObject, OnText, Reply, Request, Thinking
from stigmergy.errors import Invalid

Script = Callable[[Request], "Reply | str"]


class When(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that is given must hold."""

    last_role: str | None = None
    contains: str | None = None
    matches: str | None = None
    tool: str | None = None
    step: int | None = None
    said: str | None = None


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    arguments: JsonObject = msgspec.field(default_factory=JsonObject)


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    when: When = When()
    reply: str = ""
    call: tuple[Call, ...] = ()
    thinking: str | None = None
    confidence: float | None = None
    pause_ms: int = 0


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rules: tuple[Rule, ...]


class ScriptedModel:
    """`pause` seconds between the pieces of a streamed answer."""

    def __init__(self, script: Script, *, name: str = "scripted", pause: float = 0.0) -> None:
        self.name = name
        self._script = script
        self._pause = pause

    async def request(self, request: Request, on_text: OnText | None = None) -> Reply:
        said = self._script(request)
        reply = Reply(text=said) if isinstance(said, str) else said
        if self._pause:
            await asyncio.sleep(self._pause)
        if on_text is not None and reply.text:
            for piece in pieces(reply.text):
                on_text(piece)
                if self._pause:
                    await asyncio.sleep(self._pause)
        return reply


def pieces(text: str) -> list[str]:
    """A text in the pieces in which it is streamed: words with the space after them."""
    return re.findall(r"\S+\s*|\s+", text)


class RuledModel:
    """A script of rules, as data."""

    def __init__(self, rules: tuple[Rule, ...], *, name: str) -> None:
        self.name = name
        self._rules = rules
        self._environment = minijinja.Environment()

    def check(self, rule: Rule) -> None:
        """Raises what a pattern or a template of the rule raises when it is none."""
        re.compile(rule.when.matches or "")
        self._filled([rule.reply, *(call.arguments for call in rule.call)], _facts(Request("", ())))

    async def request(self, request: Request, on_text: OnText | None = None) -> Reply:
        facts = _facts(request)
        rule = next((rule for rule in self._rules if _fits(rule.when, facts)), None)
        if rule is None:
            return Reply(text=f"(scripted) no rule of {self.name} fits: {facts['last']}")
        if rule.pause_ms:
            await asyncio.sleep(rule.pause_ms / 1000)
        script = ScriptedModel(lambda _: self._reply(rule, request, facts), name=self.name)
        return await script.request(request, on_text)

    def _reply(self, rule: Rule, request: Request, facts: JsonObject) -> Reply:
        step = facts["step"]
        calls = tuple(
            Asked(f"call_{step}_{place}", call.name, json.dumps(self._filled(call.arguments, facts)))
            for place, call in enumerate(rule.call)
        )
        thinking = (Thinking(rule.thinking, rule.confidence, "reported"),) if rule.thinking else ()
        return Reply(text=self._filled(rule.reply, facts), tool_calls=calls, thinking=thinking)

    def _filled(self, value: Any, facts: JsonObject) -> Any:
        if isinstance(value, str):
            return self._environment.render_str(value, **facts) if "{" in value else value
        if isinstance(value, dict):
            return {name: self._filled(each, facts) for name, each in cast(JsonObject, value).items()}
        if isinstance(value, list):
            return [self._filled(each, facts) for each in cast(list[Any], value)]
        return value


def _facts(request: Request) -> JsonObject:
    """What rules see of a request: its last message, what users said, the results of tools since."""
    messages = [message for message in request.messages if message.role != "system"]
    last = messages[-1] if messages else None
    users = [message.content for message in messages if message.role == "user"]
    return {
        "last": last.content if last else "",
        "last_role": last.role if last else "system",
        "tool": last.name if last is not None and last.role == "tool" else None,
        "first_user": users[0] if users else "",
        "last_user": users[-1] if users else "",
        "results": [message.content for message in messages if message.role == "tool"],
        "step": sum(message.role == "assistant" for message in messages) + 1,
        "system": "\n\n".join(message.content for message in request.messages if message.role == "system"),
    }


def _fits(when: When, facts: Mapping[str, Any]) -> bool:
    return (
        (when.last_role is None or facts["last_role"] == when.last_role)
        and (when.tool is None or facts["tool"] == when.tool)
        and (when.step is None or facts["step"] == when.step)
        and (when.contains is None or when.contains.lower() in facts["last"].lower())
        and (when.said is None or when.said.lower() in facts["system"].lower())
        and (when.matches is None or re.search(when.matches, facts["last"], re.IGNORECASE) is not None)
    )


def load_script(path: str) -> RuledModel:
    """The rules in a TOML or JSON file, as it is now. `Invalid`, with the place of the fault, when there are none."""
    try:
        found = Path(path).stat()
        return _loaded(path, found.st_mtime_ns, found.st_size)
    except FileNotFoundError:
        raise Invalid("there is no such script", path, "unknown_model") from None
    except OSError as error:
        raise Invalid(f"this script cannot be read ({error})", path) from error


@lru_cache(64)
def _loaded(path: str, _changed: int, _size: int) -> RuledModel:
    file = Path(path)
    try:
        text = file.read_text("utf-8")
        rules = msgspec.convert(tomllib.loads(text) if file.suffix == ".toml" else json.loads(text), _File).rules
    except ValueError as error:  # what TOML, JSON and msgspec raise are ValueErrors
        raise Invalid(f"this is no script ({error})", path) from error
    model = RuledModel(rules, name=f"scripted:{path}")
    for number, rule in enumerate(rules):
        try:
            model.check(rule)
        except (re.error, minijinja.TemplateError) as error:
            raise Invalid(f"this is no script ({str(error).splitlines()[0]} - at `$.rules[{number}]`)", path) from error
    return model
