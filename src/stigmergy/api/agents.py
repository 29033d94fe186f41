"""`/v1/agents`: who acts. Definitions that are data are put and taken away by operators; a program's own stay its code's.

Every reader is told what an agent is for and what it can do; its whole definition, with its instructions and how its tools are
called, operators alone.
"""

from typing import Annotated, Any

import msgspec
from litestar import Controller, delete, get, put
from litestar.params import JSONBody, PathParameter, QueryParameter

from stigmergy.access.model import Claims
from stigmergy.agents import store
from stigmergy.agents.model import AgentRecord, Execution, JsonObject, ToolSpec, Visibility
from stigmergy.api import wire
from stigmergy.api.auth import claims_of
from stigmergy.api.requests import AnyRequest, Cursor, IfMatch, operators_only, read, write
from stigmergy.api.responses import JsonResponse
from stigmergy.engine.defining import delete_agent, put_agent, read_definition, tools_of, versions_of
from stigmergy.kernel.transaction import SHARED

Name = Annotated[str, PathParameter(description="An agent's name.")]
After = Annotated[str | None, QueryParameter(max_length=200, description="Where the page before ended.")]


class AgentOut(msgspec.Struct, kw_only=True):
    """An agent. `of_program`: declared by the code of the program `owner`. `definition` is told to operators."""

    name: str
    display_name: str | None
    description: str
    model: str
    tools: list[str]
    delegates: list[str]
    owner: str
    of_program: bool
    version: int
    created_at: wire.Moment
    updated_at: wire.Moment
    definition: JsonObject | None


class AgentPage(msgspec.Struct):
    """By name. `cursor` asks for what follows; without one there is no more."""

    items: list[AgentOut]
    cursor: str | None


class AgentVersions(msgspec.Struct):
    """Newest first. `cursor` asks for what follows; without one there is no more."""

    items: list[AgentOut]
    cursor: str | None


class PutOut(msgspec.Struct):
    """A definition as it is stored now, and what had to be changed of an older config to make it one."""

    agent: AgentOut
    notices: list[str]


class ToolOut(msgspec.Struct):
    """A tool that an agent may call. How a gateway's tool is called is told to operators, with the definition."""

    name: str
    description: str
    parameters: JsonObject
    execution_type: Execution
    visibility: Visibility
    category: str | None


class ToolCatalog(msgspec.Struct):
    agent: str
    tools: list[ToolOut]


class AgentRoutes(Controller):
    path = "/v1/agents"
    tags = ("agents",)

    @get(summary="List the agents that runs can be started with", operation_id="list_agents")
    async def find(self, request: AnyRequest, limit: wire.Limit = 50, cursor: After = None) -> AgentPage:
        found: list[AgentRecord] = await read(request, store.listed, after=cursor or "", limit=limit)
        claims = claims_of(request)
        return AgentPage([agent_out(each, claims) for each in found], found[-1].name if len(found) == limit else None)

    @get("/{name:str}", summary="One agent", operation_id="get_agent")
    async def one(self, request: AnyRequest, name: Name) -> JsonResponse[AgentOut]:
        record: AgentRecord = await read(request, store.named, name)
        return JsonResponse(agent_out(record, claims_of(request)), headers={"ETag": wire.etag(record.version)})

    @put("/{name:str}", summary="Define an agent", operation_id="put_agent", guards=[operators_only])
    async def put(
        self, request: AnyRequest, name: Name, data: JSONBody[JsonObject], if_match: IfMatch = None
    ) -> JsonResponse[PutOut]:
        definition, notices = read_definition(data, name)
        record: AgentRecord = await write(
            request, put_agent, definition, grant="operate", if_match=wire.expected(if_match), as_operator=True
        )
        out = PutOut(agent_out(record, claims_of(request)), notices)
        return JsonResponse(out, headers={"ETag": wire.etag(record.version)})

    @delete("/{name:str}", summary="Take an agent away", operation_id="delete_agent", guards=[operators_only])
    async def remove(self, request: AnyRequest, name: Name, if_match: IfMatch = None) -> None:
        await write(request, delete_agent, name, grant="operate", if_match=wire.expected(if_match), as_operator=True)

    @get("/{name:str}/versions", summary="What it was before, newest first", operation_id="list_agent_versions")
    async def versions(self, request: AnyRequest, name: Name, limit: wire.Limit = 50, cursor: Cursor = None) -> AgentVersions:
        found: list[AgentRecord] = await read(request, versions_of, name, below=wire.below(cursor), limit=limit)
        more = str(found[-1].version) if len(found) == limit and found[-1].version > 1 else None
        claims = claims_of(request)
        return AgentVersions([agent_out(each, claims) for each in found], more)

    @get("/{name:str}/tools", summary="What it may call", operation_id="list_agent_tools")
    async def tools(self, request: AnyRequest, name: Name) -> ToolCatalog:
        found: list[ToolSpec] = await read(request, tools_of, name)
        return ToolCatalog(name, [tool_out(tool) for tool in found])


def agent_out(record: AgentRecord, claims: Claims) -> AgentOut:
    definition = record.definition
    return AgentOut(
        name=record.name,
        display_name=definition.display_name,
        description=definition.description,
        model=definition.model,
        tools=[tool.name for tool in definition.tools],
        delegates=list(definition.delegates),
        owner=record.owner,
        of_program=record.tenant == SHARED,
        version=record.version,
        created_at=wire.moment(record.created_at),
        updated_at=wire.moment(record.updated_at),
        definition=msgspec.to_builtins(definition) if "operate" in claims.grants else None,
    )


def tool_out(tool: ToolSpec) -> ToolOut:
    return ToolOut(tool.name, tool.description, tool.parameters, tool.execution_type, tool.visibility, tool.category)


# ---- for the description of the API ----

SHAPES: tuple[Any, ...] = (AgentOut, AgentPage, AgentVersions, PutOut, ToolCatalog)
MORE: dict[str, tuple[int, ...]] = {
    "get_agent": (404,),
    "list_agent_versions": (404,),
    "list_agent_tools": (404,),
    "put_agent": (412,),
    "delete_agent": (404, 409, 412),
}
TAGGED = {"get_agent", "put_agent"}
EXAMPLES: dict[str, Any] = {
    "put_agent": {
        "model": "openai:gpt-5-mini",
        "instructions": "You know prices.",
        "tools": [
            {
                "name": "price",
                "description": "The current price of a coin, in dollars.",
                "executionType": "gateway",
                "inputSchema": {"type": "object", "properties": {"symbol": {"type": "string"}}, "required": ["symbol"]},
                "execution": {"method": "GET", "url": "https://prices.example/{{input.symbol}}"},
            }
        ],
        "maxSteps": 5,
    }
}
