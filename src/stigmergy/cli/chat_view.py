"""How a conversation looks in a terminal. Pure: from what happened to what is printed.

What others wrote is text, never markup: it cannot colour, move or write over anything.
"""

import hashlib
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
from rich.text import Text

from stigmergy.spaces.following import Event
from stigmergy.spaces.model import JsonObject
from stigmergy.spaces.queries import Message

COLOURS = ("cyan", "magenta", "green", "blue", "bright_cyan", "bright_magenta", "bright_green", "bright_blue")
# Characters of a tool's arguments or result in one line.
LONGEST_SHOWN = 160
INDENT = "      "


def colour_of(entity_id: str) -> str:
    """The same for the same one, wherever and whenever."""
    return COLOURS[hashlib.sha256(entity_id.encode()).digest()[0] % len(COLOURS)]


def plain(text: str) -> str:
    """Without what would make a terminal do something."""
    return "".join(sign if sign in "\n\t" or sign.isprintable() else "\ufffd" for sign in text)


def shown_message(message: Message, me: str | None = None) -> Text:
    line = Text(datetime.fromtimestamp(message.created_at / 1000, UTC).astimezone().strftime("%H:%M "), style="dim")
    if message.role == "tool":
        return line.append_text(_tool_use(message))
    if message.role == "system":
        return line.append(plain(message.content), style="yellow")
    name = "you" if message.author == me else plain(message.author_name)
    line.append(name, style=f"bold {colour_of(message.author)}")
    if message.reply_to is not None:
        line.append(" ↩", style="dim")
    line.append("  ")
    if message.deleted:
        return line.append("(taken back)", style="dim italic")
    line.append(plain(message.content).replace("\n", f"\n{INDENT}"))
    if message.version > 1:
        line.append(" (changed)", style="dim")
    for part in message.parts or ():
        line.append(f"\n{INDENT}[{part.kind} {plain(part.name or part.block[:12])}, {part.size:,} bytes]", style="dim")
    return line


def _tool_use(message: Message) -> Text:
    tool: JsonObject = (message.metadata or {}).get("tool") or {}
    line = Text(plain(message.author_name), style=f"dim {colour_of(message.author)}")
    name = plain(str(tool.get("name", "a tool")))
    if tool.get("type") == "call":
        return line.append(f"  ⚙ {name}{_arguments(tool)}", style="dim")
    if tool.get("status") == "failed":
        return line.append(f"  ✗ {name}: {_clipped(tool.get('error', 'failed'))}", style="red")
    result = f" → {_clipped(tool['result'])}" if "result" in tool else ""
    return line.append(f"  ✓ {name}{result}", style="dim")


def _arguments(tool: JsonObject) -> str:
    args: Any = tool.get("args")
    if not isinstance(args, dict):
        return ""
    known = cast(JsonObject, args)
    return "(" + ", ".join(f"{plain(name)}={_clipped(value)}" for name, value in known.items()) + ")"


def _clipped(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    text = " ".join(plain(text).split())
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]} …"


def shown_event(event: Event, names: dict[str, str], me: str) -> Text | None:
    """What is printed for what happened; None for what is shown elsewhere, or nowhere."""
    who = "you" if event.entity_id == me else plain(names.get(event.entity_id or "", event.entity_id or ""))
    if event.message is not None:
        if event.kind == "message.created":
            return shown_message(event.message, me)
        what = "took back a message" if event.kind == "message.deleted" else f"changed it: {plain(event.message.content)}"
        return Text(f"{INDENT}{who} {what} (message {event.message.seq})", style="dim")
    if event.kind == "member.joined":
        return Text(f"{INDENT}{who} came in", style="dim")
    if event.kind == "member.left":
        return Text(f"{INDENT}{who} left", style="dim")
    return None


def shown_wait(number: int, event: Event) -> Text | None:
    """A question that a message does not show already: an approval, or a tool that a client answers."""
    details = event.details or {}
    if event.wait_kind == "approval":
        line = Text(f"   ?{number} ", style="bold yellow").append(plain(event.question or "May this go on?"))
        if "args" in details:
            line.append(f"\n{INDENT}{plain(str(details.get('tool')))}{_arguments(details)}", style="dim")
        words = [f"/{word}" for word in details.get("decisions", ("approve", "reject")) if word != "modify"]
        return line.append(f"\n{INDENT}answer with {', '.join(words)}", style="dim")
    if event.wait_kind == "tool":
        line = Text(f"   ?{number} ", style="bold yellow").append(f"{plain(str(details.get('tool')))}{_arguments(details)}")
        return line.append(f"\n{INDENT}waits for its result: /answer, and JSON or a text", style="dim")
    return None
