"""`/v1/clients`: the user interfaces that are connected for whoever asks, and the client tools that they answer."""

from typing import Annotated, Any

from litestar import Controller, delete, get, post
from litestar.params import JSONBody, PathParameter

from stigmergy.api.auth import claims_of
from stigmergy.api.requests import AnyRequest, read, write
from stigmergy.api.space_shapes import (
    ClientAnswerIn,
    ClientCallOut,
    ClientCallsOut,
    ClientIn,
    ClientOut,
    ClientsOut,
    out,
)
from stigmergy.spaces import clients
from stigmergy.spaces.service import Started, started

Id = Annotated[str, PathParameter(description="A client's id.")]


class ClientRoutes(Controller):
    path = "/v1/clients"
    tags = ("clients",)

    @get(summary="The clients that are connected for one", operation_id="list_clients")
    async def find(self, request: AnyRequest) -> ClientsOut:
        found = await read(request, clients.clients_of, claims_of(request).entity)
        return ClientsOut([out(ClientOut, client) for client in found])

    @post(summary="Connect a client", operation_id="connect_client")
    async def connect(self, request: AnyRequest, data: JSONBody[ClientIn]) -> ClientOut:
        return out(ClientOut, await write(request, clients.connect, claims_of(request).entity, data.name, data.tools))

    @post("/{id:str}/heartbeat", status_code=200, summary="Say that it is still there", operation_id="keep_client")
    async def stay(self, request: AnyRequest, id: Id) -> ClientOut:
        return out(ClientOut, await write(request, clients.stay, claims_of(request).entity, id))

    @delete("/{id:str}", summary="Disconnect a client", operation_id="disconnect_client")
    async def leave(self, request: AnyRequest, id: Id) -> None:
        await write(request, clients.disconnect, claims_of(request).entity, id)

    @get("/{id:str}/calls", summary="The tool calls that wait for it", operation_id="list_client_calls")
    async def calls(self, request: AnyRequest, id: Id) -> ClientCallsOut:
        found = await read(request, clients.calls_for, claims_of(request).entity, id)
        return ClientCallsOut([out(ClientCallOut, call) for call in found])

    @post("/{id:str}/results", status_code=200, summary="Answer one of these", operation_id="answer_client_call")
    async def answer(self, request: AnyRequest, id: Id, data: JSONBody[ClientAnswerIn]) -> Started:
        given = {"result": data.result, "error": data.error}
        me = claims_of(request).entity
        run = await write(request, clients.answer_call, me, id, data.run_id, data.call_id, **given)
        return started(run)


# ---- for the description of the API ----

SHAPES: tuple[Any, ...] = (ClientIn, ClientOut, ClientsOut, ClientCallOut, ClientCallsOut, ClientAnswerIn)
MORE: dict[str, tuple[int, ...]] = {
    "connect_client": (409,),
    "keep_client": (404,),
    "disconnect_client": (404,),
    "list_client_calls": (404,),
    "answer_client_call": (404, 409),
}
EXAMPLES: dict[str, Any] = {
    "connect_client": {"name": "the browser", "tools": ["pick_a_colour"]},
    "answer_client_call": {
        "run_id": "01890a5d-ac96-774b-bcce-b302099a8057",
        "call_id": "c1",
        "result": {"colour": "green"},
    },
}
