"""Where a command finds runs and agents: a server that it talks to, a program that works in this process, the store itself."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

from cyclopts import Parameter

from stigmergy.app import App
from stigmergy.cli.program import load_program
from stigmergy.cli.store import Store, opened
from stigmergy.client import Stigmergy
from stigmergy.engine.namespace import Agents, Runs
from stigmergy.errors import Invalid
from stigmergy.kernel.ids import check_tenant
from stigmergy.kernel.transaction import Scope
from stigmergy.settings import changed, load


@Parameter(name="*")
@dataclass(frozen=True)
class Where:
    url: Annotated[
        str | None, Parameter(env_var="STIGMERGY_URL", help="The server to talk to. Without one it is the store itself.")
    ] = None
    token: Annotated[str | None, Parameter(env_var="STIGMERGY_TOKEN", help="Who comes, to a server.")] = None
    store: Store = None
    tenant: Annotated[str, Parameter(help="Whose, in a store; a server knows it by the token.")] = "main"
    entity: Annotated[str, Parameter(name="--as", help="Who acts, in a store; a server knows it by the token.")] = "cli"

    def __str__(self) -> str:
        """As it is written on the command line."""
        said = {"--url": self.url, "--store": self.store, "--tenant": None if self.tenant == "main" else self.tenant}
        return "".join(f" {name} {value}" for name, value in said.items() if value is not None)


HERE = Where()
Program = Annotated[
    str | None,
    Parameter(name="--app", help="A program whose agents work in this process: `module:app`, or `path/to/file.py:app`."),
]


class Door(NamedTuple):
    """Runs and agents, as a program has them or as a client has; and how another command finds the same."""

    runs: Any
    agents: Any
    where: Where


@asynccontextmanager
async def door(where: Where) -> AsyncGenerator[Door]:
    """To look and to say something; nobody works on runs here."""
    if where.url is not None:
        async with Stigmergy(where.url, where.token) as client:
            yield Door(client.runs, client.agents, where)
        return
    scope = Scope(check_tenant(where.tenant), where.entity)
    async with opened(load({"store": where.store})) as database:
        yield Door(Runs(database, scope, {}), Agents(database, scope), where)


@asynccontextmanager
async def working_door(where: Where, program: str | None) -> AsyncGenerator[Door]:
    """The same; unless a server has workers of its own, this process works on runs meanwhile."""
    if where.url is not None:
        if program is not None:
            raise Invalid("the agents of a server work there; give --url or --app", "--app")
        async with door(where) as opened_door:
            yield opened_door
        return
    if program is None:
        app = App(tenant=where.tenant, entity=where.entity, settings=load({"store": where.store}))
    else:
        app = load_program(program)
    app.settings = changed(app.settings, {"store": where.store, "work": True})
    async with app:
        yield Door(app.runs, app.agents, replace(where, store=app.settings.store))
