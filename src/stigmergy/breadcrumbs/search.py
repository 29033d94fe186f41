"""Search: breadcrumbs by their words, by their meaning, or by both, with any selector as filter.

`text` ranks by BM25 (on PostgreSQL by ts_rank_cd), `vector` by the cosine of embeddings, `hybrid` by reciprocal rank fusion of
the two. A hit is one that the reader may see, that is live, and that the selector matches. What is marked stale is not found
until the index is filled again; `stale` counts these.

A unit of work cannot wait for a model, so the question is asked of it first: `query = await searcher.ask("…")`, then
`await database.read(search, reader, selector, query)`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, NamedTuple

from stigmergy.breadcrumbs import queries, search_postgres, search_sqlite
from stigmergy.breadcrumbs.audience import Reader, with_spaces
from stigmergy.breadcrumbs.embeddings import Embedder, NoEmbedder, OpenAIEmbedder, Vectors
from stigmergy.breadcrumbs.model import Breadcrumb
from stigmergy.breadcrumbs.search_index import ENGINE, words_of
from stigmergy.breadcrumbs.search_memory import Memory, Ranked
from stigmergy.breadcrumbs.store import FOUND, as_given
from stigmergy.errors import Invalid
from stigmergy.kernel.predicates import ConditionFailed
from stigmergy.kernel.query import Statement, as_each, either
from stigmergy.kernel.selectors import Selector, compile_selector
from stigmergy.kernel.transaction import Snapshot

Method = Literal["text", "vector", "hybrid"]

MOST_HITS = 200
# A question may be a whole page; its first words count.
LONGEST_TEXT = 10_240
MOST_WORDS = 32
# A word that more records have than this is left out while rarer words find enough.
FREQUENT = 5_000
# When a selector's tag or schema leaves at most so many records, the ranking is made among these alone.
NARROW = 2_000
# Ranked records that are looked at for one search at the most.
LOOKED = 20_000
# So many times more of a ranking is asked for when there are too few of it, since to ask again is to rank again; and at once when
# a selector is there to leave some out.
MORE = 8
# Of each list in a fusion; k as in the paper of Cormack, Clarke and Büttcher.
FUSED = 50
K = 60

COUNT_STALE = Statement("search_stale.count", "SELECT count(*) FROM search_stale WHERE tenant = :tenant")
COUNT_WORDS = Statement("search_text.count", either(search_sqlite.COUNT, search_postgres.COUNT))
MATCH = Statement("search_text.match", either(search_sqlite.MATCH, search_postgres.MATCH))
WITH_TAG = Statement("breadcrumb_tags.ids", "SELECT id FROM breadcrumb_tags WHERE tenant = :tenant AND tag = :tag LIMIT :limit")
OF_SCHEMA = Statement(
    "breadcrumbs.ids", "SELECT id FROM breadcrumbs WHERE tenant = :tenant AND schema_name = :schema_name LIMIT :limit"
)

Rank = Callable[[int], Awaitable[list[Ranked]]]
"""The first so many of a ranking, best first; fewer when there are no more."""


class Hit(NamedTuple):
    """Scores order the hits of one search; they mean nothing beside those of another method or engine."""

    crumb: Breadcrumb
    score: float


class Hits(NamedTuple):
    """Best first. `stale` records could not be searched yet. `cut` when so much was looked at in vain that search gave up."""

    hits: list[Hit]
    stale: int
    cut: bool = False


class Query(NamedTuple):
    """A question that was put to the model. Without a vector it can be searched by text only."""

    text: str
    vector: Vectors | None = None
    model: str = ""
    memory: Memory | None = None


class Searcher:
    """The embedder of a database, and its vectors in memory. One for each database."""

    def __init__(self, embedder: Embedder, memory: Memory | None = None) -> None:
        self.embedder = embedder
        self._memory = memory or Memory()

    async def ask(self, text: str) -> Query:
        _check(text)
        if isinstance(self.embedder, NoEmbedder):
            return Query(text, model=NoEmbedder.name)
        sound = text.encode("utf-8", "replace").decode()  # half of a surrogate pair is no text to a model
        rows = await asyncio.to_thread(self.embedder.embed, [sound])
        return Query(text, rows[0], self.embedder.name, self._memory)

    def close(self) -> None:
        if isinstance(self.embedder, OpenAIEmbedder):
            self.embedder.close()


async def search(
    tx: Snapshot,
    reader: Reader,
    selector: Selector,
    query: Query | str,
    *,
    method: Method = "hybrid",
    limit: int = 10,
) -> Hits:
    """The best `limit` of what the selector matches and the reader may see."""
    asked = Query(query) if isinstance(query, str) else query
    _check(asked.text)
    if not 1 <= limit <= MOST_HITS:
        raise Invalid(f"a search gives 1 to {MOST_HITS} hits", "limit")
    ((stale,),) = await tx.rows(COUNT_STALE)
    among = await _narrowed(tx, selector)
    if among is not None and not among:
        return Hits([], stale)
    wanted = _Wanted(tx, await with_spaces(tx, reader), selector, among)
    if method == "text" or (method == "hybrid" and asked.model == NoEmbedder.name):
        return Hits(await wanted.best(_by_text(tx, asked, among), limit), stale, wanted.cut)
    by_vector = await _by_vector(tx, asked, among)
    if method == "vector":
        return Hits(await wanted.best(by_vector, limit), stale, wanted.cut)
    depth = max(FUSED, 2 * limit)
    lists = [await wanted.best(_by_text(tx, asked, among), depth), await wanted.best(by_vector, depth)]
    return Hits(_fused(lists)[:limit], stale, wanted.cut)


def _check(text: str) -> None:
    if not text.strip() or len(text) > LONGEST_TEXT:
        raise Invalid(f"a search needs a text of 1 to {LONGEST_TEXT} characters", "query")


def _fused(lists: Sequence[Sequence[Hit]]) -> list[Hit]:
    """Reciprocal rank fusion: what is high in either list is high, what is in both is higher."""
    scores: dict[str, float] = {}
    crumbs: dict[str, Breadcrumb] = {}
    for hits in lists:
        for place, hit in enumerate(hits, 1):
            crumbs[hit.crumb.id] = hit.crumb
            scores[hit.crumb.id] = scores.get(hit.crumb.id, 0.0) + 1 / (K + place)
    return _in_order([Hit(crumb, scores[id]) for id, crumb in crumbs.items()])


def _in_order(hits: list[Hit]) -> list[Hit]:
    return sorted(hits, key=lambda hit: (-hit.score, -hit.crumb.seq))


class _Wanted:
    """Whom a search may find: what the reader may see, of what the selector matches."""

    def __init__(self, tx: Snapshot, reader: Reader, selector: Selector, among: Sequence[str] | None) -> None:
        self._tx = tx
        self._matches = compile_selector(selector).predicate
        self._leaves_many_out = among is None and selector != Selector()
        self._given: dict[str, Any] = {
            "now": tx.now,
            **as_given(reader),
        }
        self._known: dict[str, Breadcrumb | None] = {}
        self.cut = False

    async def best(self, rank: Rank, limit: int) -> list[Hit]:
        """The first `limit` of a ranking that are wanted. More and more of it is asked for until there are enough."""
        hits: list[Hit] = []
        looked, many = 0, 2 * limit * (MORE if self._leaves_many_out else 1)
        while True:
            ranked = await rank(many)
            for start in range(looked, len(ranked), 2 * limit):
                hits += await self._wanted(ranked[start : start + 2 * limit])
                if len(hits) >= limit:
                    return _in_order(hits)[:limit]
            if len(ranked) < many:
                return _in_order(hits)
            if many >= LOOKED:
                self.cut = True
                return _in_order(hits)
            looked, many = len(ranked), min(many * MORE, LOOKED)

    async def _wanted(self, ranked: Sequence[Ranked]) -> list[Hit]:
        unknown = [id for id, _ in ranked if id not in self._known]
        if unknown:
            found = await self._tx.find(FOUND, ids=as_each(unknown), **self._given)
            self._known.update(dict.fromkeys(unknown))
            self._known.update((crumb.id, crumb) for crumb in found if self._is_match(crumb))
        return [Hit(crumb, score) for id, score in ranked if (crumb := self._known[id]) is not None]

    def _is_match(self, crumb: Breadcrumb) -> bool:
        try:
            return self._matches(queries.as_subject(crumb))
        except ConditionFailed:
            return False


async def _narrowed(tx: Snapshot, selector: Selector) -> list[str] | None:
    """The few records that can match at all, when an index says so; None when they are many or nothing is said."""
    if selector.any_tags is not None and not selector.any_tags:
        return []
    required = selector.all_tags or (selector.any_tags if selector.any_tags and len(selector.any_tags) == 1 else None)
    if required:
        rows = await tx.rows(WITH_TAG, tag=required[0], limit=NARROW + 1)
    elif selector.schema_name and not selector.schema_name.endswith("*"):
        rows = await tx.rows(OF_SCHEMA, schema_name=selector.schema_name, limit=NARROW + 1)
    else:
        return None
    return [row[0] for row in rows] if len(rows) <= NARROW else None


def _by_text(tx: Snapshot, asked: Query, among: Sequence[str] | None) -> Rank:
    words = list(dict.fromkeys(words_of(tx.tenant, asked.text)))[:MOST_WORDS]
    ids = None if among is None else as_each(among)

    rare = words if among is not None else None

    async def rank(many: int) -> list[Ranked]:
        nonlocal rare
        if not words:
            return []
        if rare is None:
            rare = await _rare(tx, words)
        found = await _matched(tx, rare, ids, many)
        if len(found) < many and rare != words:
            seen = {id for id, _ in found}
            least = found[-1][1] if found else 0.0
            # behind all that have a rare word
            rest = [each for each in await _matched(tx, words, ids, many) if each[0] not in seen]
            found += [(id, least - place * 1e-9) for place, (id, _) in enumerate(rest, 1)]
        return found[:many]

    return rank


async def _matched(tx: Snapshot, words: Sequence[str], ids: str | None, many: int) -> list[Ranked]:
    return [(id, score) for id, score in await tx.rows(MATCH, words=as_each(words), ids=ids, many=many)] if words else []


async def _rare(tx: Snapshot, words: Sequence[str]) -> list[str]:
    """The rarest words, as long as not too many records have one of them."""
    rows: list[Any] = await tx.rows(COUNT_WORDS, words=as_each(words), bound=FREQUENT)
    counts: dict[str, int] = dict(rows)
    rare: list[str] = []
    total = 0
    for word in sorted(words, key=lambda word: counts[word]):
        total += counts[word]
        if total >= FREQUENT:
            break
        rare.append(word)
    return [word for word in words if word in rare]


async def _by_vector(tx: Snapshot, asked: Query, among: Sequence[str] | None) -> Rank:
    vector, model, memory = asked.vector, asked.model, asked.memory
    if vector is None or memory is None:
        raise Invalid("this method needs an embedder; search by `text`, or set one (the setting `embedder`)", "method")
    ((engine,),) = await tx.rows(ENGINE)
    if engine != "pgvector":
        tx.expect_work()  # said before the words are looked for, or that would be done twice

    async def by_pgvector(many: int) -> list[Ranked]:
        ids = None if among is None else as_each(among)
        rows = await tx.rows(search_postgres.NEAREST, model=model, wanted=vector.tolist(), ids=ids, many=many)
        return [(id, score) for id, score in rows]

    async def by_memory(many: int) -> list[Ranked]:
        return await memory.nearest(tx, model, vector, many, among)

    return by_pgvector if engine == "pgvector" else by_memory
