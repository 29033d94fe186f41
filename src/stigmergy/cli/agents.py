"""`stigmergy agents …`: who acts. A program's own are listed; definitions that are data are put and taken away."""

import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
from cyclopts import App, Parameter
from rich.text import Text

from stigmergy.agents.model import AgentRecord
from stigmergy.cli.doors import HERE, Where
from stigmergy.cli.pictures import one_line
from stigmergy.cli.runs import asked
from stigmergy.cli.store import AsJson, out, print_json
from stigmergy.errors import Invalid

app = App(name="agents", help="Who acts: ls, show, put, rm.")


@app.command
def ls(*, where: Where = HERE, json: AsJson = False) -> None:
    """List the agents that runs can be started with."""
    records: list[AgentRecord] = asked(where, lambda door: door.agents.list(limit=500))
    if json:
        return print_json(records)
    for record in records:
        of = record.definition
        line = Text.assemble((record.name, "bold"), f"  {of.model}", (f"  of {record.owner}", "dim"))
        line.append(f"  {', '.join(tool.name for tool in of.tools)}" if of.tools else "")
        out.print(line + Text(f"  {one_line(of.description, 100)}" if of.description else ""))
    return None


@app.command
def show(name: str, /, *, where: Where = HERE, json: AsJson = False) -> None:
    """Show an agent's whole definition.

    Parameters
    ----------
    name
        Its name.
    """
    record: AgentRecord = asked(where, lambda door: door.agents.get(name))
    if json:
        return print_json(record)
    definition = msgspec.to_builtins(record.definition)
    out.print(Text.assemble((record.name, "bold"), (f"  version {record.version}  of {record.owner}", "dim")))
    instructions = definition.pop("instructions", "")
    if instructions:
        out.print(Text(instructions))
    definition.pop("name")
    print_json(definition)
    return None


@app.command
def put(
    file: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    name: Annotated[str | None, Parameter(help="The agent's name, where the file does not say it.")] = None,
    where: Where = HERE,
    json: AsJson = False,
) -> None:
    """Define an agent, or change what is there, by a file.

    Parameters
    ----------
    file
        A definition, or a config of other programs (`configJson`), as JSON or TOML; - is standard input, as JSON.
    """
    config = _read(file)
    if name is None and "name" not in config:
        name = None if str(file) == "-" else file.name.split(".")[0]
    declared = asked(where, lambda door: door.agents.put(config, name=name))
    if json:
        return print_json(declared._asdict())
    for notice in declared.notices:
        out.print(Text.assemble(("notice ", "yellow"), notice))
    out.print(f"{declared.record.name} is there, in version {declared.record.version}.", markup=False)
    return None


@app.command
def rm(*names: str, where: Where = HERE) -> None:
    """Take definitions away. Runs that have begun go on with them.

    Parameters
    ----------
    names
        Names of agents that are data; those of a program are taken out of its code.
    """
    for name in names:
        asked(where, lambda door, name=name: door.agents.delete(name))
        out.print(f"{name} is there no more.", markup=False)


def _read(file: Path) -> dict[str, Any]:
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text("utf-8")
        config: object = tomllib.loads(text) if file.suffix == ".toml" else msgspec.json.decode(text)
    except OSError as error:
        raise Invalid(f"it cannot be read ({error})", str(file)) from None
    except (ValueError, tomllib.TOMLDecodeError) as error:
        raise Invalid(f"this is no definition ({error})", str(file)) from None
    if not isinstance(config, dict):
        raise Invalid("a definition is an object", str(file))
    return cast(dict[str, Any], config)
