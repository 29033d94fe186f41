"""The OpenAPI document: Litestar writes the routes and parameters, msgspec the shapes, and here is said what neither knows:
every route's problems, the examples, who may come in."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from litestar import Litestar
from litestar.openapi.config import OpenAPIConfig

from stigmergy.api import (
    agents,
    clients,
    deliveries,
    entities,
    messages,
    problems,
    run_shapes,
    runs,
    service_keys,
    space_events,
    spaces,
    sub_agents,
    tasks,
    triggers,
    waits,
    wire,
)
from stigmergy.api.assembly import PreviewIn
from stigmergy.api.search import SearchedOut, SearchIn
from stigmergy.breadcrumbs.assembly import Assembly

Json = dict[str, Any]
# What each says of its own routes.
OF_SPACES = (spaces, messages, entities, clients, service_keys)

SHAPES: tuple[Any, ...] = (
    wire.BreadcrumbOut,
    wire.BreadcrumbPage,
    wire.DraftIn,
    wire.PatchIn,
    wire.TagsIn,
    wire.SchemaIn,
    wire.SchemaOut,
    wire.SchemaPage,
    wire.Health,
    wire.BrowserToken,
    SearchIn,
    SearchedOut,
    PreviewIn,
    Assembly,
    problems.Problem,
    *triggers.SHAPES,
    *deliveries.SHAPES,
    *tasks.SHAPES,
    *sub_agents.SHAPES,
    *agents.SHAPES,
    *run_shapes.SHAPES,
    *space_events.SHAPES,
    *(shape for part in OF_SPACES for shape in part.SHAPES),
)

ABOUT: dict[int, str] = {
    401: "There is no token, or it is no good.",
    403: "The token does not allow this, or the caller's Host or Origin is not welcome.",
    404: "There is no such thing, or not for this reader.",
    408: "The body did not arrive in time (the setting `request_seconds`).",
    409: "The id is taken, or the idempotency key was used with another body.",
    410: "It was there, and its body was erased.",
    412: "The record has another version than If-Match says.",
    413: "The body is larger than the setting `max_body`.",
    415: "The body is not JSON.",
    422: "A parameter or the body is refused; `where` is the place of the fault.",
    500: "A defect of the server.",
    503: "The store cannot be used now.",
    504: "There was no answer in time (the setting `request_seconds`). A write may have been done.",
    507: "The store has no space left; nothing was written.",
}
ALWAYS = (500, 503, 504)
BEHIND_THE_GATE = (401, 403, 422)
WITH_A_BODY = (408, 413, 415)
WRITES = (507,)
# What a route may answer besides.
MORE: dict[str, tuple[int, ...]] = {
    **triggers.MORE,
    **deliveries.MORE,
    **tasks.MORE,
    **sub_agents.MORE,
    **agents.MORE,
    **runs.MORE,
    **waits.MORE,
    **{id: statuses for part in OF_SPACES for id, statuses in part.MORE.items()},
    "follow_space": (404,),
    "create_breadcrumb": (409,),
    "create_breadcrumbs": (409,),
    "get_breadcrumb": (404,),
    "get_breadcrumb_full": (404,),
    "get_breadcrumb_history": (404,),
    "get_breadcrumb_version": (404, 410),
    "patch_breadcrumb": (404, 412),
    "replace_breadcrumb": (404, 412),
    "retag_breadcrumb": (404,),
    "delete_breadcrumb": (404, 412),
    "get_schema": (404,),
    "delete_schema": (404,),
    "preview_assembly": (404, 410),
}
TAGGED = {"create_breadcrumb", "get_breadcrumb", "get_breadcrumb_full", "get_breadcrumb_version"} | {
    "patch_breadcrumb",
    "replace_breadcrumb",
    "retag_breadcrumb",
    *triggers.TAGGED,
    *tasks.TAGGED,
    *sub_agents.TAGGED,
    *agents.TAGGED,
    *spaces.TAGGED,
    *messages.TAGGED,
}
FEEDS = {"follow_events", "follow_space", "watch_run"}
OTHER_SCHEMES = {"trigger_agent": ("service_key",)} | dict.fromkeys(FEEDS, ("token", "browser_token"))
NOTE: Json = {
    "schema_name": "user.message.v1",
    "title": "A question",
    "tags": ["session:42"],
    "context": {"text": "Where is the report?", "user": {"name": "Mia", "email": "mia@example.org"}},
    "llm_hints": {"exclude": ["user.email"]},
}
EXAMPLES: dict[str, Any] = {
    **triggers.EXAMPLES,
    **tasks.EXAMPLES,
    **sub_agents.EXAMPLES,
    **agents.EXAMPLES,
    **runs.EXAMPLES,
    **waits.EXAMPLES,
    **{id: example for part in OF_SPACES for id, example in part.EXAMPLES.items()},
    "create_breadcrumb": NOTE,
    "create_breadcrumbs": [NOTE],
    "replace_breadcrumb": NOTE,
    "patch_breadcrumb": {"context": {"text": "Where is the new report?", "user": {"email": None}}},
    "retag_breadcrumb": {"add": ["urgent"], "remove": ["session:42"]},
    "put_schema": {
        "json_schema": {"type": "object", "required": ["text"]},
        "llm_hints": {"include": ["text"]},
        "ttl_ms": 86_400_000,
    },
    "search_breadcrumbs": {"query": "Where is the report?", "selector": {"schema_name": "user.*"}, "method": "text"},
    "preview_assembly": {
        "subscriptions": [{"schema_name": "user.message.v1"}],
        "trigger_id": "01890a5d-ac96-774b-bcce-b302099a8057",
    },
}


def document(handlers: Sequence[Any], version: str) -> Json:
    """What these routes are, for programs."""
    config = OpenAPIConfig(title="Stigmergy", version=version, description="A state and run engine for LLM agents.")
    # an application of its own: the one that serves has no routes but ours
    described = Litestar(route_handlers=handlers, openapi_config=config, logging_config=None).openapi_schema.to_schema()
    for path, name, operation in _operations(described):
        _complete(operation, path, name == "get")
    _, shapes = msgspec.json.schema_components(SHAPES, ref_template="#/components/schemas/{name}")
    described["components"] = {"schemas": shapes, "responses": _responses(), "securitySchemes": _security()}
    return described


def _operations(described: Json) -> Iterator[tuple[str, str, Json]]:
    for path, methods in described["paths"].items():
        for name, operation in methods.items():
            yield path, name, operation


def _complete(operation: Json, path: str, only_reads: bool) -> None:
    id: str = operation["operationId"]
    responses: Json = operation["responses"]
    responses.pop("400", None)  # Litestar's own; ours are 422
    body = operation.get("requestBody")
    statuses = {*ALWAYS, *MORE.get(id, ())}
    if path.startswith("/v1/"):
        statuses |= set(BEHIND_THE_GATE)
        operation["security"] = [{scheme: []} for scheme in OTHER_SCHEMES.get(id, ("token",))]
    if body is not None:
        statuses |= set(WITH_A_BODY)
        body["content"]["application/json"]["examples"] = {"a good one": {"value": EXAMPLES[id]}}
    if not only_reads:
        statuses |= set(WRITES)
    for status in sorted(statuses):
        responses[str(status)] = {"$ref": f"#/components/responses/{status}"}
    _complete_success(id, responses)
    for parameter in operation.get("parameters", ()):
        _without_null(parameter["schema"])


def _complete_success(id: str, responses: Json) -> None:
    if id in TAGGED:
        etag = {"description": "The version, for If-Match and If-None-Match.", "schema": {"type": "string"}}
        for status in ("200", "201"):
            if status in responses:
                responses[status]["headers"] = {"ETag": etag}
    if id in ("get_breadcrumb", "get_breadcrumb_full", "get_breadcrumb_version"):
        responses["304"] = {"description": "The caller has this version already."}
        responses["200"]["content"]["application/json"]["schema"] = {"$ref": "#/components/schemas/BreadcrumbOut"}
    if id == "create_sub_agent":
        responses["200"] = {**responses["201"], "description": "It was taken up before."}
    if id in FEEDS:
        responses["200"]["content"] = {"text/event-stream": {"schema": {"type": "string"}}}


def _without_null(schema: Json) -> None:
    """A parameter is there or not; it is never null."""
    members = [member for member in schema.get("oneOf", ()) if member != {"type": "null"}]
    if len(members) == 1:
        del schema["oneOf"]
        schema.update(members[0])


def _responses() -> Json:
    content = {problems.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {str(status): {"description": about, "content": content} for status, about in ABOUT.items()}


def _security() -> Json:
    return {
        "token": {"type": "http", "scheme": "bearer", "description": "Made with `stigmergy token create`."},
        "service_key": {"type": "http", "scheme": "bearer", "description": "Made with `POST /v1/agents/{name}/keys`."},
        "browser_token": {"type": "apiKey", "in": "query", "name": "token", "description": "Of `POST /v1/tokens/browser`."},
    }
