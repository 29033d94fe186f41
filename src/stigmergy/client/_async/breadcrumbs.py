"""`stigmergy.breadcrumbs`: what `App.breadcrumbs` is in the program itself."""

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from stigmergy.breadcrumbs.assembly import Assembly
from stigmergy.breadcrumbs.events import Event
from stigmergy.breadcrumbs.model import Audience, Draft, JsonObject, Schema
from stigmergy.breadcrumbs.namespace import Listed, Searched, Selecting
from stigmergy.breadcrumbs.queries import View, ViewKind
from stigmergy.breadcrumbs.search import Method
from stigmergy.client import wire
from stigmergy.client._async.http import Http
from stigmergy.client.calls import Call, an_id, breadcrumb_path, read, schema_path
from stigmergy.kernel.ids import new_id


class Breadcrumbs:
    def __init__(self, http: Http) -> None:
        self._http = http

    async def create(
        self,
        schema_name: str,
        title: str = "",
        *,
        context: JsonObject | None = None,
        tags: Sequence[str] = (),
        id: str | None = None,
        owner_id: str | None = None,
        description: str | None = None,
        llm_hints: JsonObject | None = None,
        audience: Audience = "public",
        space_id: str | None = None,
        expires_at: int | None = None,
    ) -> View:
        """Write a breadcrumb. Gives it as a model sees it. The owner is who comes with the token; no other may be named."""
        draft = Draft(
            schema_name=schema_name,
            title=title,
            context=context or {},
            tags=list(tags),
            id=id,
            owner_id=owner_id,
            description=description,
            llm_hints=llm_hints,
            audience=audience,
            space_id=space_id,
            expires_at=expires_at,
        )
        return wire.view(await self._http.call(Call("POST", "/v1/breadcrumbs", body=wire.draft(draft), key=new_id())))

    async def create_many(self, drafts: Iterable[Draft]) -> list[View]:
        """All of them, in one transaction, or none; at most 1,000."""
        body = [wire.draft(draft) for draft in drafts]
        return wire.views(await self._http.call(Call("POST", "/v1/breadcrumbs/bulk", body=body, key=new_id()))) if body else []

    async def get(self, id: str, *, view: ViewKind = "context") -> View:
        path = breadcrumb_path(id, "full") if view == "full" else breadcrumb_path(id)
        return wire.view(await self._http.call(read(path)))

    async def find(self, selector: Selecting = None, *, limit: int = 50, cursor: int | None = None) -> Listed:
        """What a selector matches, newest first."""
        params = {"selector": wire.selector(selector), "limit": limit, "cursor": cursor}
        return wire.listed(await self._http.call(read("/v1/breadcrumbs", params)))

    async def search(self, query: str, selector: Selecting = None, *, method: Method = "hybrid", limit: int = 10) -> Searched:
        """What a text finds among what the selector matches: by its words, by its meaning, or by both."""
        body = {"query": query, "selector": selector, "method": method, "limit": limit}
        return wire.searched(await self._http.call(Call("POST", "/v1/breadcrumbs/search", body=body, is_read=True)))

    async def history(self, id: str, *, limit: int = 50) -> list[View]:
        """Every version, newest first."""
        return wire.listed(await self._http.call(read(breadcrumb_path(id, "history"), {"limit": limit}))).items

    async def at_version(self, id: str, version: int) -> View:
        return wire.view(await self._http.call(read(breadcrumb_path(id, "versions", str(version)))))

    async def patch(self, id: str, *, if_match: int | None = None, **fields: Any) -> View:
        """Change these fields; `context` is a JSON Merge Patch."""
        return wire.view(await self._http.call(Call("PATCH", breadcrumb_path(id), body=wire.patch(fields), if_match=if_match)))

    async def replace(self, id: str, draft: Draft, *, if_match: int | None = None) -> View:
        """Put a whole breadcrumb there; a deleted one comes back."""
        return wire.view(await self._http.call(Call("PUT", breadcrumb_path(id), body=wire.draft(draft), if_match=if_match)))

    async def retag(self, id: str, *, add: Iterable[str] = (), remove: Iterable[str] = ()) -> View:
        body = {"add": list(add), "remove": list(remove)}
        return wire.view(await self._http.call(Call("POST", breadcrumb_path(id, "tags"), body=body)))

    async def delete(self, id: str, *, if_match: int | None = None) -> None:
        await self._http.call(Call("DELETE", breadcrumb_path(id), if_match=if_match))

    async def put_schema(self, schema: Schema) -> Schema:
        return wire.schema(await self._http.call(Call("PUT", schema_path(schema.name), body=wire.schema_body(schema))))

    async def schema(self, name: str) -> Schema:
        """What is said of a schema name."""
        return wire.schema(await self._http.call(read(schema_path(name))))

    async def schemas(self, *, after: str = "", limit: int = 100) -> list[Schema]:
        """What is said of schema names, in their order, behind one of them."""
        params = {"cursor": after or None, "limit": limit}
        return wire.schemas(await self._http.call(read("/v1/schemas", params)))

    async def delete_schema(self, name: str) -> None:
        await self._http.call(Call("DELETE", schema_path(name)))

    async def preview(self, subscriptions: Any, trigger_id: str, *, budget: int | None = None) -> Assembly:
        """Exactly what an agent with these subscriptions would see, were it triggered by this breadcrumb."""
        body = {"subscriptions": subscriptions, "trigger_id": an_id(trigger_id), "budget": budget}
        return wire.assembly(await self._http.call(Call("POST", "/v1/assembly/preview", body=body, is_read=True)))

    async def follow(self, selector: Selecting = None, *, after: int | None = None) -> AsyncIterator[Event]:
        """Every change that the selector matches, once, in order; from now on, or after a position. It comes back by itself
        when the connection is lost."""
        call = read("/v1/events", {"collection": "breadcrumbs", "selector": wire.selector(selector)})
        async for event in self._http.follow(call, after, wire.event):
            yield event
