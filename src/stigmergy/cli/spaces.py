"""`stigmergy spaces …`: conversations of humans and agents, on a running server."""

import asyncio
from datetime import UTC, datetime
from typing import Annotated

import msgspec
from cyclopts import App, Parameter
from rich.markup import escape
from rich.table import Table

from stigmergy.cli.chat_view import shown_message
from stigmergy.cli.remote import Token, Url, all_spaces, find_space, server
from stigmergy.cli.store import AsJson, out, print_json
from stigmergy.spaces.model import Space

app = App(name="spaces", help="Conversations of humans and agents: ls, show, create, add, post, history.")

SpaceName = Annotated[str, Parameter(help="A space of yours, by its id or its name.")]


@app.command
def ls(*, url: Url = None, token: Token = None, json: AsJson = False) -> None:
    """Show the spaces that one is in."""

    async def run() -> None:
        async with server(url, token) as stigmergy:
            found = [space async for space in all_spaces(stigmergy)]
        if json:
            return print_json([_fields(space) for space in found])
        for space in found:
            out.print(f"[bold]{escape(space.id)}[/]  {escape(space.name)}  [dim]{escape(space.about)}[/]".rstrip())
        return None

    asyncio.run(run())


@app.command
def show(space: SpaceName, *, url: Url = None, token: Token = None, json: AsJson = False) -> None:
    """Show a space: who is in it, and how far each has read."""

    async def run() -> None:
        async with server(url, token) as stigmergy:
            found = await find_space(stigmergy, space)
            members = await stigmergy.spaces.members(found.id)
        if json:
            return print_json(_fields(found) | {"members": [msgspec.to_builtins(member) for member in members]})
        out.print(f"[bold]{escape(found.name or found.id)}[/]  {escape(found.about)}".rstrip())
        out.print(f"[dim]{found.id}, of {escape(found.owner_id)}, since {_time(found.created_at)}[/]")
        table = Table("who", "", "id", "has read up to", box=None, header_style="dim", pad_edge=False)
        for member in members:
            table.add_row(escape(member.name), member.type, escape(member.entity_id), str(member.last_processed_seq or ""))
        out.print(table)
        return None

    asyncio.run(run())


@app.command
def create(
    name: str,
    *,
    member: Annotated[list[str] | None, Parameter(help="Who is in it besides you; an agent is `agent:NAME`.")] = None,
    about: Annotated[str, Parameter(help="What it is for. Its agents read it.")] = "",
    id: str | None = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Make a space and print its id."""

    async def run() -> None:
        async with server(url, token) as stigmergy:
            made = await stigmergy.spaces.create(name, members=member or [], about=about, id=id)
        out.print(made.id, markup=False)

    asyncio.run(run())


@app.command
def add(space: SpaceName, *entities: str, url: Url = None, token: Token = None) -> None:
    """Let entities in.

    Parameters
    ----------
    entities
        Their ids; an agent is `agent:NAME`.
    """

    async def run() -> None:
        async with server(url, token) as stigmergy:
            found = await find_space(stigmergy, space)
            for entity in entities:
                member = await stigmergy.spaces.add(found.id, entity)
                out.print(f"{member.name} is in.", markup=False)

    asyncio.run(run())


@app.command
def post(
    space: SpaceName,
    text: Annotated[str, Parameter(help="What to say; `@Name` in it has somebody act.", allow_leading_hyphen=True)],
    *,
    reply_to: Annotated[str | None, Parameter(help="The id of the message that this answers.")] = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Say something in a space, and print the id of the message."""

    async def run() -> None:
        async with server(url, token) as stigmergy:
            found = await find_space(stigmergy, space)
            said = await stigmergy.spaces.post(found.id, text, reply_to=reply_to)
        out.print(said.id, markup=False)

    asyncio.run(run())


@app.command
def history(
    space: SpaceName,
    *,
    limit: Annotated[int, Parameter(help="How many messages, the last ones.")] = 50,
    before: Annotated[int | None, Parameter(help="Only what was said before the message with this number.")] = None,
    url: Url = None,
    token: Token = None,
    json: AsJson = False,
) -> None:
    """Show what was said in a space, in order."""

    async def run() -> None:
        async with server(url, token) as stigmergy:
            found = await find_space(stigmergy, space)
            messages = await stigmergy.spaces.messages(found.id, before=before, limit=limit)
        if json:
            return print_json([msgspec.to_builtins(message) for message in messages])
        for message in messages:
            out.print(shown_message(message))
        return None

    asyncio.run(run())


def _fields(space: Space) -> dict[str, object]:
    names = ("id", "name", "about", "owner_id", "metadata", "version", "created_at", "updated_at")
    return {name: getattr(space, name) for name in names}


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
