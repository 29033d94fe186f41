"""`/v1/agents/{name}/keys`, an operator's; and `/v1/agents/{name}/trigger`, for whoever has such a key and nothing else."""

from typing import Annotated, Any

from litestar import Controller, delete, get, post
from litestar.params import JSONBody, PathParameter

from stigmergy.api.auth import cause_of
from stigmergy.api.requests import AnyRequest, IdempotencyKey, database_of, operators_only, read, write
from stigmergy.api.responses import JsonResponse
from stigmergy.api.space_shapes import KeyIn, KeyOut, KeysOut, NewKeyOut, TriggerAgentIn, out
from stigmergy.kernel.transaction import Scope
from stigmergy.spaces import service
from stigmergy.spaces.service import Started, started

Name = Annotated[str, PathParameter(description="An agent's name.")]
KeyId = Annotated[str, PathParameter(description="A key's id.")]


class ServiceKeyRoutes(Controller):
    path = "/v1/agents/{name:str}/keys"
    tags = ("agents",)
    guards = (operators_only,)

    @get(summary="The keys with which programs outside start an agent", operation_id="list_keys")
    async def find(self, request: AnyRequest, name: Name) -> KeysOut:
        return KeysOut([out(KeyOut, key) for key in await read(request, service.keys_of, name)])

    @post(summary="Make a key; its text is shown this once", operation_id="create_key")
    async def create(self, request: AnyRequest, name: Name, data: JSONBody[KeyIn]) -> NewKeyOut:
        made: service.NewKey = await write(
            request, service.create_key, name, service.new_secret(), note=data.note, grant="operate"
        )
        return NewKeyOut(key=out(KeyOut, made.key), text=made.text)

    @delete("/{key_id:str}", status_code=200, summary="Let a key start nothing any more", operation_id="revoke_key")
    async def revoke(self, request: AnyRequest, name: Name, key_id: KeyId) -> KeyOut:
        return out(KeyOut, await write(request, service.revoke_key, name, key_id, grant="operate"))


@post(
    "/v1/agents/{name:str}/trigger",
    status_code=202,
    summary="Start an agent, with a key of its own",
    operation_id="trigger_agent",
    tags=["agents"],
)
async def trigger_agent(
    request: AnyRequest,
    name: Name,
    data: JSONBody[TriggerAgentIn],
    key: IdempotencyKey = None,
) -> JsonResponse[Started]:
    presented = service.parse_key(request.headers.get("authorization", "").removeprefix("Bearer ").strip())
    scope = Scope(presented.tenant, f"service:{presented.id}", *cause_of(request))
    run = await database_of(request).write(
        service.trigger, name, presented, data.instruction, metadata=data.metadata, idempotency_key=key, scope=scope
    )
    return JsonResponse(started(run), status_code=202)


# ---- for the description of the API ----

SHAPES: tuple[Any, ...] = (KeyIn, KeyOut, KeysOut, NewKeyOut, TriggerAgentIn, Started)
MORE: dict[str, tuple[int, ...]] = {"create_key": (404,), "revoke_key": (404,), "trigger_agent": (404, 409)}
EXAMPLES: dict[str, Any] = {
    "create_key": {"note": "the nightly job"},
    "trigger_agent": {"instruction": "Say what is new", "metadata": {"job": 42}},
}
