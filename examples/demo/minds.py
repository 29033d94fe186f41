"""What the team thinks with: scripts that branch on what they read. They say so; put a model's name in their place in
`team.py`, and the same agents think for themselves.

A script is a function from the request, as any model gets it, to a reply: a text, or the tools that it wants to use.
"""

import json
import re
from typing import Any

from library import excerpt, words

from stigmergy import Asked, Reply, Request

NOTE = "(scripted: I match words, I do not think)"


def call(tool: str, **arguments: Any) -> Reply:
    return Reply(tool_calls=(Asked(f"call_{tool}", tool, json.dumps(arguments)),))


def heard(request: Request) -> tuple[str | None, str]:
    """The message that began this run: its id, if it was said in a space, and what it says."""
    first = next(message.content for message in request.messages if message.role == "user")
    said = re.match(r"(\S+) [^:]*: (.*)\nsenderExpectsReply", first, re.DOTALL)
    return (said[1], re.sub(r"@\w+,?\s*", "", said[2]).strip()) if said else (None, first)


def last_result(request: Request) -> tuple[str | None, Any]:
    """The tool whose result came last, and the result. At the beginning there is none."""
    last = request.messages[-1]
    if last.role != "tool":
        return None, None
    try:
        return last.name, json.loads(last.content)
    except ValueError:
        return last.name, last.content


def guide(request: Request) -> Reply | str:
    """Speaks with people. What it has to look up, it has the librarian look up; what it must know, it asks."""
    message, question = heard(request)
    tool, result = last_result(request)

    def answer(text: str) -> Reply:
        text = f"{text} {NOTE}"
        return call("send_reply", text=text, reply_to=message) if message else call("send_message", text=text)

    match tool:
        case None if question.lower().startswith("note"):
            return call("keep_note", text=question[4:].lstrip(": ").removeprefix("that ") or "nothing")
        case None if words(question):
            return call("create_task", agent="librarian", instruction=question)
        case None:
            return call("ask_user", question="What would you like to know about? Breadcrumbs, triggers, tokens, conditions, …?")
        case "ask_user":
            if not result["replies"]:
                return answer("You did not say, so I leave it at that.")
            return call("create_task", agent="librarian", instruction=result["replies"][0]["text"])
        case "create_task":
            return answer(result.get("result") or f"The librarian could not help: {result.get('error')}")
        case "keep_note":
            return answer(f"Kept: {result['kept']}." if isinstance(result, dict) else "Then I keep nothing.")
        case _:
            return "done"


def librarian(request: Request) -> Reply | str:
    """Knows where things are written. Whoever asks, in a task or in the space, gets a place and its words."""
    message, question = heard(request)
    tool, result = last_result(request)

    def answer(text: str) -> Reply | str:
        return call("send_reply", text=f"{text} {NOTE}", reply_to=message) if message else text

    match tool:
        case None:
            return call("search_docs", query=question)
        case "search_docs" if result:
            return call("read_docs", page=result[0]["page"], heading=result[0]["heading"])
        case "search_docs":
            return answer(f"The documentation does not speak of “{question}”.")
        case "read_docs":
            found = next(m for m in reversed(request.messages) if m.role == "tool" and m.name == "search_docs")
            place = json.loads(found.content)[0]
            return answer(f"“{excerpt(str(result))}” That is docs/{place['page']}, “{place['heading']}”.")
        case _:
            return "done"
