"""Whatever is written and whoever asks: a search finds what a list by the same selector has, and nothing else."""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stigmergy.breadcrumbs import commands, queries
from stigmergy.breadcrumbs.audience import Reader
from stigmergy.breadcrumbs.embeddings import Vectors, normalised
from stigmergy.breadcrumbs.model import Draft, Patch
from stigmergy.breadcrumbs.search import Method, Searcher, search
from stigmergy.breadcrumbs.search_index import fill_all, words_of
from stigmergy.kernel.database import Database
from stigmergy.kernel.selectors import Selector
from stigmergy.kernel.sqlite import SqliteDatabase
from stigmergy.kernel.transaction import Scope
from support.stores import SOURCES

TENANTS = ("main", "other", "third")
ENTITIES = ("mia", "tom")
METHODS: tuple[Method, ...] = ("text", "vector", "hybrid")


class Alike:
    """Everything is near everything."""

    name = "alike"
    dimensions = 4

    def embed(self, texts: Sequence[str]) -> Vectors:
        return normalised(np.ones((len(texts), self.dimensions)))


TAGS = st.sampled_from(["red", "blue", "green"])
SOME = st.lists(TAGS, max_size=2).map(tuple)
SELECTORS = st.builds(
    Selector,
    schema_name=st.sampled_from([None, "a.v1", "a.*", "b.v1"]),
    any_tags=st.none() | SOME,
    all_tags=st.none() | SOME,
    none_tags=st.none() | SOME,
    where=st.sampled_from([None, "context.n > 2"]),
)
DRAFTS = st.fixed_dictionaries(
    {
        "tenant": st.sampled_from(TENANTS),
        "owner": st.sampled_from(ENTITIES),
        "schema_name": st.sampled_from(["a.v1", "a.v2", "b.v1"]),
        "tags": st.lists(TAGS, max_size=2),
        "n": st.integers(0, 5),
        "audience": st.sampled_from(["public", "private"]),
        "then": st.sampled_from(["stay", "stay", "patch", "delete"]),
    }
)


async def write(store: Database, each: dict[str, Any]) -> None:
    scope = Scope(each["tenant"], each["owner"])
    reader = Reader(each["owner"])
    draft = Draft(
        schema_name=each["schema_name"],
        title=f"needle of {each['tenant']}",
        tags=each["tags"],
        context={"n": each["n"]},
        audience=each["audience"],
    )
    made = await store.write(commands.create, draft, scope=scope)
    if each["then"] == "patch":
        await store.write(commands.patch, reader, made.id, Patch(context={"n": each["n"] + 1}), scope=scope)
    if each["then"] == "delete":
        await store.write(commands.delete, reader, made.id, scope=scope)


async def compare(drafts: list[dict[str, Any]], selectors: list[Selector], fill_after: int) -> None:
    searcher = Searcher(Alike())
    query = await searcher.ask("needle")
    with tempfile.TemporaryDirectory() as folder:
        store = await SqliteDatabase.open(Path(folder) / "store.db", sources=SOURCES, synchronous="OFF")
        for place, each in enumerate(drafts):
            await write(store, each)
            if place == fill_after:
                await fill_all(store, searcher.embedder)
        await fill_all(store, searcher.embedder)
        for tenant in TENANTS:
            for entity in ENTITIES:
                for selector in selectors:
                    listed = await store.read(queries.find, Reader(entity), selector, limit=200, scope=Scope(tenant))
                    for method in METHODS:
                        found = await store.read(
                            search, Reader(entity), selector, query, method=method, limit=200, scope=Scope(tenant)
                        )
                        assert {hit.crumb.id for hit in found.hits} == {crumb.id for crumb in listed.crumbs}
                        assert {hit.crumb.tenant for hit in found.hits} <= {tenant}
                        assert (found.stale, found.cut) == (0, False)
        await store.close()


@settings(max_examples=25)
@given(st.lists(DRAFTS, min_size=1, max_size=15), st.lists(SELECTORS, min_size=1, max_size=3), st.integers(0, 15))
def test_a_search_finds_what_a_list_has(drafts: list[dict[str, Any]], selectors: list[Selector], fill_after: int) -> None:
    asyncio.run(compare(drafts, selectors, fill_after))


@given(st.text(), st.sampled_from(TENANTS))
def test_words_are_plain_and_the_same_however_they_are_written(text: str, tenant: str) -> None:
    words = words_of(tenant, text)
    assert all(word.isalnum() for word in words)
    assert words == words_of(tenant, text.casefold())
    assert not set(words) & set(words_of("another", text))
