"""Search on both engines: what it finds, what it must never find, and the index behind it."""

import asyncio
import hashlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from stigmergy.breadcrumbs import commands, search_index
from stigmergy.breadcrumbs.assembly import gather
from stigmergy.breadcrumbs.audience import Reader
from stigmergy.breadcrumbs.embeddings import Vectors, normalised
from stigmergy.breadcrumbs.model import Breadcrumb, Draft, Patch, Schema
from stigmergy.breadcrumbs.search import Hits, Method, Query, Searcher, search
from stigmergy.breadcrumbs.search_index import POLL_SECONDS, fill, fill_all, index_stale
from stigmergy.breadcrumbs.search_memory import Memory
from stigmergy.breadcrumbs.subscriptions import parse_subscriptions
from stigmergy.errors import Invalid
from stigmergy.kernel.clock import ManualClock
from stigmergy.kernel.database import Database
from stigmergy.kernel.query import Statement
from stigmergy.kernel.selectors import parse_selector
from stigmergy.kernel.transaction import Scope, Snapshot
from support.stores import OpenStore

MIA = Scope("main", "mia")
AS_MIA = Reader("mia")
AS_TOM = Reader("tom")
METHODS: tuple[Method, ...] = ("text", "vector", "hybrid")


class Letters:
    """A model that knows words by their hash: the same words are near, others are not."""

    def __init__(self, name: str = "letters") -> None:
        self.name = name
        self.dimensions = 64
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.asked += texts
        rows = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            if "indigestible" in text:
                raise Invalid("no", code="not_embeddable")
            for word in re.findall(r"\w+", text.lower()):
                row[int(hashlib.md5(word.encode()).hexdigest(), 16) % self.dimensions] += 1
        return normalised(rows)


MODEL = Letters()


@pytest.fixture
def searcher() -> Searcher:
    return Searcher(MODEL)


async def create(store: Database, title: str = "", scope: Scope = MIA, **fields: Any) -> Breadcrumb:
    given: dict[str, Any] = {"schema_name": "note.v1", "title": title} | fields
    return await store.write(commands.create, Draft(**given), scope=scope)


async def find(
    store: Database,
    searcher: Searcher,
    text: str,
    selector: dict[str, Any] | None = None,
    *,
    reader: Reader = AS_MIA,
    tenant: str = "main",
    method: Method = "text",
    limit: int = 10,
) -> Hits:
    query = await searcher.ask(text)
    wanted = parse_selector(selector or {})
    return await store.read(search, reader, wanted, query, method=method, limit=limit, scope=Scope(tenant))


async def titles(store: Database, searcher: Searcher, text: str, *args: Any, **more: Any) -> list[str]:
    await fill_all(store, searcher.embedder)
    hits = await find(store, searcher, text, *args, **more)
    assert hits.stale == 0
    return [hit.crumb.title for hit in hits.hits]


@pytest.mark.parametrize("method", METHODS)
async def test_the_best_comes_first_and_no_more_than_asked_for(store: Database, searcher: Searcher, method: Method) -> None:
    await create(store, "the weather in Paris", context={"text": "rain and wind"})
    await create(store, "bitcoin price", context={"text": "bitcoin at a new high", "n": 64123})
    await create(store, "the price of bread")
    assert (await titles(store, searcher, "bitcoin price", method=method))[0] == "bitcoin price"
    assert await titles(store, searcher, "bitcoin price", method=method, limit=1) == ["bitcoin price"]


async def test_words_are_found_without_case_accents_and_in_other_scripts(store: Database, searcher: Searcher) -> None:
    await create(store, "Crème BRÛLÉE", description="a dessert", context={"deep": [{"why": "Straße 3e5"}]})
    await create(store, "東京タワー")
    for text in ("creme", "brûlée", "DESSERT", "strasse", "3E5"):
        assert await titles(store, searcher, text) == ["Crème BRÛLÉE"], text
    assert await titles(store, searcher, "京都") == ["東京タワー"]
    assert await titles(store, searcher, "brul") == []


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"schema_name": "x.v1"}, {"a", "d"}),
        ({"schema_name": "x.*"}, {"a", "c", "d"}),
        ({"all_tags": ["red"]}, {"a", "c"}),
        ({"any_tags": ["red", "blue"]}, {"a", "b", "c"}),
        ({"any_tags": []}, set[str]()),
        ({"none_tags": ["red"]}, {"b", "d"}),
        ({"all_tags": ["red"], "context_match": [{"path": "n", "op": "gt", "value": 1}]}, {"c"}),
        ({"where": "context.n == 2 || context.n == 4"}, {"b", "d"}),
    ],
)
async def test_a_selector_filters_what_is_found(
    store: Database, searcher: Searcher, selector: dict[str, Any], expected: set[str]
) -> None:
    same: dict[str, Any] = {"description": "needle"}
    await create(store, "a", schema_name="x.v1", tags=["red"], context={"n": 1}, **same)
    await create(store, "b", schema_name="y.v1", tags=["blue"], context={"n": 2}, **same)
    await create(store, "c", schema_name="x.v2", tags=["red", "blue"], context={"n": 3}, **same)
    await create(store, "d", schema_name="x.v1", context={"n": 4}, **same)
    for method in METHODS:
        assert set(await titles(store, searcher, "needle", selector, method=method)) == expected


@pytest.mark.parametrize("method", METHODS)
async def test_what_a_selector_leaves_is_found_behind_many_that_rank_higher(
    store: Database, searcher: Searcher, method: Method
) -> None:
    await store.write(
        commands.create_many, [Draft(schema_name="note.v1", title="needle", context={"n": n}) for n in range(300)], scope=MIA
    )
    await create(store, "far", description="one needle in a long text of other words", context={"n": -1})
    selector = {"context_match": [{"path": "n", "op": "lt", "value": 0}]}
    assert await titles(store, searcher, "needle", selector, method=method, limit=2) == ["far"]


async def test_a_frequent_word_finds_what_rare_words_do_not(
    store: Database, searcher: Searcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stigmergy.breadcrumbs.search.FREQUENT", 5)
    await store.write(commands.create_many, [Draft(schema_name="note.v1", title=f"common {n}") for n in range(9)], scope=MIA)
    await create(store, "rare")
    found = await titles(store, searcher, "common rare", limit=20)
    assert (found[0], len(found)) == ("rare", 10)
    assert len(await titles(store, searcher, "common", limit=20)) == 9


@pytest.mark.parametrize("method", METHODS)
async def test_tenants_find_their_own(store: Database, searcher: Searcher, method: Method) -> None:
    for tenant in ("main", "other"):
        await create(store, f"needle of {tenant}", Scope(tenant, "mia"))
    for tenant in ("main", "other", "third"):
        expected = [] if tenant == "third" else [f"needle of {tenant}"]
        assert await titles(store, searcher, "needle", tenant=tenant, method=method) == expected


@pytest.mark.parametrize("method", METHODS)
async def test_an_audience_finds_what_it_may_see(store: Database, searcher: Searcher, method: Method) -> None:
    await create(store, "needle mine", audience="private")
    await create(store, "needle ours", audience="team", space_id="s1")
    await create(store, "needle all")
    assert await titles(store, searcher, "needle", reader=AS_TOM, method=method) == ["needle all"]
    member = Reader("tom", frozenset({"s1"}))
    assert set(await titles(store, searcher, "needle", reader=member, method=method)) == {"needle all", "needle ours"}
    assert len(await titles(store, searcher, "needle", reader=Reader("root", everything=True), method=method)) == 3


@pytest.mark.parametrize("method", METHODS)
async def test_the_expired_are_not_found(open_store: OpenStore, searcher: Searcher, method: Method) -> None:
    clock = ManualClock()
    store = await open_store(clock=clock)
    await create(store, "needle", expires_at=clock.now() + 5_000)
    assert await titles(store, searcher, "needle", method=method) == ["needle"]
    clock.advance(5)
    assert await titles(store, searcher, "needle", method=method) == []
    await store.close()


@pytest.mark.parametrize("method", METHODS)
async def test_updates_deletions_and_undeletions_are_seen(store: Database, searcher: Searcher, method: Method) -> None:
    made = await create(store, "first")
    other = await create(store, "second")
    assert (await titles(store, searcher, "first", method=method))[0] == "first"
    await store.write(commands.patch, AS_MIA, made.id, Patch(title="changed"), scope=MIA)
    assert (await titles(store, searcher, "changed", method=method))[0] == "changed"
    assert "first" not in await titles(store, searcher, "first", method=method)
    await store.write(commands.delete, AS_MIA, made.id, scope=MIA)
    hits = await find(store, searcher, "changed second", method=method)
    assert ([hit.crumb.id for hit in hits.hits], hits.stale) == ([other.id], 0)
    await store.write(commands.replace, AS_MIA, made.id, Draft(schema_name="note.v1", title="back"), scope=MIA)
    assert (await titles(store, searcher, "back", method=method))[0] == "back"


async def test_what_is_stale_is_counted_and_not_found_until_it_is_filled(store: Database, searcher: Searcher) -> None:
    made = await create(store, "needle")
    await create(store, "needle too")
    assert await find(store, searcher, "needle") == Hits([], 2)
    assert await fill(store, MODEL, "main") == 2
    hits = await find(store, searcher, "needle")
    assert (len(hits.hits), hits.stale) == (2, 0)
    await store.write(commands.retag, AS_MIA, made.id, add=["new"], scope=MIA)
    hits = await find(store, searcher, "needle", {"all_tags": ["new"]})
    assert ([hit.crumb.tags for hit in hits.hits], hits.stale) == ([["new"]], 0)
    await store.write(commands.patch, AS_MIA, made.id, Patch(context={"n": 1}), scope=MIA)
    hits = await find(store, searcher, "needle")
    assert ([hit.crumb.title for hit in hits.hits], hits.stale) == (["needle too"], 1)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("text", ["", "  \n", "x" * 10_241])
async def test_a_search_for_nothing_is_refused(store: Database, searcher: Searcher, text: str, method: Method) -> None:
    with pytest.raises(Invalid, match="query"):
        await searcher.ask(text)
    with pytest.raises(Invalid, match="query"):
        await store.read(search, AS_MIA, parse_selector({}), Query(text), method=method)


ODD = [
    "'", '"', '""" OR needle', "needle AND", "NOT needle", "NEAR(needle, 2)", "words : needle", "need*", "^needle", "a-b + c",
    "nee\0dle", "🎉", "🎉 needle", "'; DROP TABLE breadcrumbs; --", "needle & | ! ( ) <-> :*", "\\", "%_", "\ud800 needle",
    "needle " * 1_400, "x" * 10_240, " ".join(f"w{n}" for n in range(1_700)), "٣ ① ² ﬁ İ", "{each:ids} :tenant {json}",
]  # fmt: skip


async def test_no_text_is_a_syntax_error(store: Database, searcher: Searcher) -> None:
    for text in ODD:
        await create(store, "a needle", context={"odd": text.replace("\0", "").replace("\ud800", "")})
    await fill_all(store, MODEL)
    for text in ODD:
        for method in METHODS:
            hits = await find(store, searcher, text, method=method)
            assert hits.stale == 0
            assert ("needle" not in text) or len(hits.hits) == 10
    assert await titles(store, searcher, "needle", limit=200) == ["a needle"] * len(ODD)


async def test_a_search_says_what_it_cannot_do(store: Database, searcher: Searcher) -> None:
    await create(store, "needle")
    await fill_all(store, MODEL)
    with pytest.raises(Invalid, match="needs an embedder"):
        await store.read(search, AS_MIA, parse_selector({}), "needle", method="vector")
    for limit in (0, 201):
        with pytest.raises(Invalid, match="limit"):
            await find(store, searcher, "needle", limit=limit)
    hits = await store.read(search, AS_MIA, parse_selector({}), "needle", method="text")
    assert len(hits.hits) == 1


async def test_what_hints_hide_is_not_found(store: Database, searcher: Searcher) -> None:
    await create(store, "own", context={"open": "apple", "secret": "pear"}, llm_hints={"exclude": ["secret"]})
    made = await create(store, "schema", context={"open": "apple", "secret": "pear"})
    assert set(await titles(store, searcher, "apple")) == {"own", "schema"}
    assert await titles(store, searcher, "pear") == ["schema"]
    await store.write(commands.put_schema, Schema(name="note.v1", llm_hints={"exclude": ["secret"]}), scope=MIA)
    hits = await find(store, searcher, "pear")
    assert (hits.hits, hits.stale) == ([], 1), "not even before the index is filled again"
    assert await titles(store, searcher, "pear") == []
    assert set(await titles(store, searcher, "apple")) == {"own", "schema"}
    MODEL.asked.clear()
    await store.write(commands.patch, AS_MIA, made.id, Patch(context={"open": "plum"}), scope=MIA)
    assert await titles(store, searcher, "plum") == ["schema"]
    assert not any("pear" in text for text in MODEL.asked), "what is hidden is not sent to the model"
    await store.write(commands.delete_schema, "note.v1", scope=MIA)
    assert await titles(store, searcher, "pear") == ["schema"]


async def test_hints_that_fail_show_nothing_to_search_either(store: Database, searcher: Searcher) -> None:
    hints = {"transform": {"k": {"type": "template", "template": "{{ context.secret / 2 }}"}}}
    await create(store, "broken", context={"secret": "pear"}, llm_hints=hints)
    assert await titles(store, searcher, "pear") == []
    assert await titles(store, searcher, "broken") == ["broken"]


async def test_several_may_fill_at_once(store: Database, searcher: Searcher) -> None:
    drafts = [Draft(schema_name="note.v1", title=f"needle {n}") for n in range(150)]
    made = await store.write(commands.create_many, drafts, scope=MIA)
    changes = [store.write(commands.patch, AS_MIA, crumb.id, Patch(title="changed"), scope=MIA) for crumb in made[:40]]
    await asyncio.gather(*(fill(store, MODEL, "main") for _ in range(4)), *changes)
    assert len(await titles(store, searcher, "needle", limit=200)) == 110
    assert len(await titles(store, searcher, "changed", limit=200)) == 40
    counts = Statement(
        "test.counts",
        """SELECT (SELECT count(*) FROM search_entries WHERE tenant = :tenant),
                  (SELECT count(DISTINCT stamp) FROM search_vectors WHERE tenant = :tenant)""",
    )

    async def counted(tx: Snapshot) -> Any:
        return await tx.rows(counts)

    assert await store.read(counted) == [(150, 150)]


async def test_a_change_while_an_entry_is_made_leaves_it_stale(store: Database, searcher: Searcher) -> None:
    made = await create(store, "first")
    work = await store.read(search_index.read_stale, 10)
    entries = search_index.make_entries("main", work, MODEL)
    await store.write(commands.patch, AS_MIA, made.id, Patch(title="second"), scope=MIA)
    assert await store.write(search_index.put_entries, entries, MODEL.name) == 0
    assert (await find(store, searcher, "first")).stale == 1
    assert await titles(store, searcher, "first") == []
    assert await titles(store, searcher, "second") == ["second"]


async def test_what_the_model_refuses_is_found_by_its_words(store: Database, searcher: Searcher) -> None:
    await create(store, "indigestible needle")
    await create(store, "good needle")
    assert set(await titles(store, searcher, "needle")) == {"indigestible needle", "good needle"}
    assert await titles(store, searcher, "needle", method="vector") == ["good needle"]


async def test_a_memory_follows_the_rows(store: Database) -> None:
    """The exact search in memory, on both engines: what pgvector would answer."""
    memory = Memory(most_bytes=1)
    drafts = [Draft(schema_name="note.v1", title=f"w{n}") for n in range(100)]
    made = await store.write(commands.create_many, drafts, scope=MIA)
    await fill_all(store, MODEL)

    async def nearest(text: str, among: list[str] | None = None, tenant: str = "main") -> list[str]:
        wanted = MODEL.embed([text])[0]
        ranked = await store.read(memory.nearest, MODEL.name, wanted, 3, among, scope=Scope(tenant))
        return [id for id, _ in ranked]

    assert made[7].id in await nearest("w7")
    assert await nearest("w7", among=[made[8].id, "unknown"]) == [made[8].id]
    await store.write(commands.delete, AS_MIA, made[7].id, scope=MIA)
    assert made[7].id not in await nearest("w7")
    await store.write(commands.patch, AS_MIA, made[8].id, Patch(title="w7"), scope=MIA)
    await fill_all(store, MODEL)
    assert made[8].id in await nearest("w7")
    assert await nearest("w7", tenant="other") == []
    assert made[8].id in await nearest("w7")


async def test_the_indexer_fills_and_renews_what_another_model_made(open_store: OpenStore) -> None:
    store = await open_store(clock=ManualClock())
    await create(store, "needle")
    await fill_all(store, Letters("old"))
    new = Searcher(Letters("new"))
    assert (await find(store, new, "needle", method="vector")).hits == []
    renewed = asyncio.Event()

    class Clock(ManualClock):
        looked = 0

        async def sleep(self, seconds: float) -> None:
            """Let it look once; it rests between, in proportion to its work."""
            if seconds == POLL_SECONDS:
                self.looked += 1
            if self.looked == 2:
                renewed.set()
                await asyncio.Event().wait()

    store.clock = Clock()
    task = asyncio.create_task(index_stale(store, new.embedder))
    async with asyncio.timeout(10):
        await renewed.wait()
    assert [hit.crumb.title for hit in (await find(store, new, "needle", method="vector")).hits] == ["needle"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await store.close()


async def test_sources_are_searched_with_the_trigger_or_with_a_template_over_it(store: Database, searcher: Searcher) -> None:
    await create(store, "bitcoin price")
    await create(store, "weather in Paris", context={"secret": "storm"}, llm_hints={"exclude": ["secret"]})
    trigger = await create(
        store, "what is the price of bitcoin", schema_name="note.v1", context={"city": "Paris", "secret": 1}, audience="public"
    )
    await fill_all(store, MODEL)

    async def seen(**fetch: Any) -> list[str]:
        sources = [
            {"schema_name": "x", "role": "trigger"},
            {"schema_name": "note.v1", "as": "notes", "fetch": fetch | {"limit": 2}},
        ]
        subscriptions = parse_subscriptions(sources)
        assembly = await gather(store, searcher, AS_MIA, subscriptions, trigger, scope=Scope())
        return [note["title"] for note in assembly.context["notes"]]

    for method in METHODS:
        assert "bitcoin price" in await seen(method=method), method
        assert "weather in Paris" in await seen(method=method, query="weather in {{ context.city }}")
    assert await seen(method="text", query="{{ context.city }}") == ["weather in Paris"]
    assert await seen(method="text", query="storm") == []
    assert await seen(method="hybrid", query="{{ context.missing }}") == []
    with pytest.raises(Invalid, match=r"fetch\.query"):
        await seen(method="hybrid", query="{{")
