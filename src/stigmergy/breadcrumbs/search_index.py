"""The index of search, filled in the background from what is marked stale.

What is indexed is what a reader of views sees: title, description, and the texts and numbers of the context after its hints. So
nobody finds what hints hide. An entry is made outside of any transaction and written in a small unit that takes the mark away
if it still speaks of the same change; so several processes may fill at once, and a crash leaves the mark.
"""

import asyncio
import hashlib
import logging
import re
import time
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from stigmergy.breadcrumbs import search_postgres, search_sqlite
from stigmergy.breadcrumbs.embeddings import Embedder, Vectors
from stigmergy.breadcrumbs.model import BREADCRUMBS, Breadcrumb, JsonObject, Schema
from stigmergy.breadcrumbs.queries import view
from stigmergy.breadcrumbs.store import FORGET
from stigmergy.errors import Invalid, StigmergyError
from stigmergy.kernel.database import Database
from stigmergy.kernel.query import Statement, as_each, either
from stigmergy.kernel.transaction import Scope, Snapshot, Transaction

log = logging.getLogger(__name__)

# Breadcrumbs that are filled in one unit.
CHUNK = 64
# Characters of a breadcrumb that are indexed, and of these that are embedded.
LONGEST_INDEXED = 20_000
LONGEST_EMBEDDED = 4_000
LONGEST_WORD = 64
# Between two looks for something stale.
POLL_SECONDS = 0.5
# Filling in the background rests so many times as long as it worked, so that those who write at that time keep most of the core.
REST = 3.0

ENGINE = Statement("search.engine", either(search_sqlite.ENGINE, search_postgres.ENGINE))
READ_STALE = Statement(
    "search_stale.read", "SELECT id, seq FROM search_stale WHERE tenant = :tenant ORDER BY tenant, id LIMIT :limit"
)
NEXT_TENANT = Statement("search_stale.tenant", "SELECT tenant FROM search_stale WHERE tenant > :after ORDER BY tenant LIMIT 1")
TAKE = Statement("search_stale.take", "DELETE FROM search_stale WHERE tenant = :tenant AND id = :id AND seq = :seq RETURNING id")
READ_CRUMBS = BREADCRUMBS.query("to_index", "WHERE tenant = :tenant AND id IN (SELECT value FROM {each:ids})")
MOVE_HEAD = Statement(
    "search_heads.move",
    """INSERT INTO search_heads (tenant, stamp) VALUES (:tenant, :many)
       ON CONFLICT (tenant) DO UPDATE SET stamp = search_heads.stamp + excluded.stamp RETURNING stamp""",
)
PUT_VECTOR = Statement(
    "search_vectors.put",
    """INSERT INTO search_vectors (tenant, id, seq, stamp, model, vector) VALUES (:tenant, :id, :seq, :stamp, :model, :vector)""",
)
OTHER_MODELS = Statement(
    "search_stale.other_models",
    """INSERT INTO search_stale (tenant, id, seq) SELECT tenant, id, seq FROM search_vectors
       WHERE tenant = :tenant AND model <> :model ON CONFLICT (tenant, id) DO NOTHING""",
)
_ADD = {"sqlite": search_sqlite.ADD, "postgres": search_postgres.ADD, "pgvector": search_postgres.ADD}

# A word is a run of letters and digits; of scripts that write without spaces, each sign.
_SIGN = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_SIGN}]|[^\W_{_SIGN}]+")


class Entry(NamedTuple):
    """What the index is to have of a breadcrumb as a change left it."""

    id: str
    seq: int
    words: str
    vector: Vectors | None


class Work(NamedTuple):
    """Something stale: the breadcrumb as it is now, and the hints of its schema."""

    id: str
    seq: int
    crumb: Breadcrumb | None
    schema: Schema | None


def words_of(tenant: str, text: str) -> list[str]:
    """The words of a text as both engines index them: folded, without accents, behind a mark of the tenant, so that what an
    engine counts of a word is this tenant's."""
    folded = unicodedata.normalize("NFKD", text.casefold())
    bare = "".join(sign for sign in folded if not unicodedata.combining(sign)) if not folded.isascii() else folded
    mark = _tenant_mark(tenant)
    return [mark + word[:LONGEST_WORD] for word in cast("list[str]", _WORD.findall(unicodedata.normalize("NFC", bare)))]


def _tenant_mark(tenant: str) -> str:
    """Letters only, so that no parser takes a word for a number."""
    digest = hashlib.blake2s(tenant.encode(), digest_size=6).hexdigest()
    return digest.translate(str.maketrans("0123456789abcdef", "abcdefghijklmnop")) + "x"


def text_of(work: Work) -> str:
    """What a reader of views sees of it, as text."""
    if work.crumb is None:
        return ""
    shown = view(work.crumb, work.schema)
    return "\n".join(_bounded((shown.title, shown.description or "", *texts_in(shown.context))))


def _bounded(texts: Iterable[str]) -> Iterable[str]:
    left = LONGEST_INDEXED
    for text in texts:
        if left <= 0:
            return
        if text:
            yield text[:left]
            left -= len(text) + 1


def texts_in(value: Any) -> Iterable[str]:
    """The texts and numbers in a JSON value, in its order. No recursion: a context may be nested deeply."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            waiting.extend(reversed(cast(JsonObject, each).values()))
        elif isinstance(each, list):
            waiting.extend(reversed(cast(list[Any], each)))
        elif isinstance(each, int | float) and not isinstance(each, bool):
            yield str(each)


async def fill(database: Database, embedder: Embedder, tenant: str, *, rest: float = 0) -> int:
    """Fill what is stale of a tenant now. Gives how many entries were written."""
    scope = Scope(tenant=tenant, actor="search")
    filled = 0
    began = time.monotonic()
    while work := await database.read(read_stale, CHUNK, scope=scope):
        entries = await asyncio.to_thread(make_entries, tenant, work, embedder)
        done: int = await database.write(put_entries, entries, embedder.name, scope=scope)
        filled += done
        if rest:
            await database.clock.sleep(rest * (time.monotonic() - began))
            began = time.monotonic()
    return filled


async def fill_all(database: Database, embedder: Embedder, *, rest: float = 0) -> int:
    """The same for every tenant that has something stale."""
    filled, place = 0, ""
    while found := await database.read(_next_tenant, place):
        place = found
        filled += await fill(database, embedder, place, rest=rest)
    return filled


async def index_stale(database: Database, embedder: Embedder, seconds: float = POLL_SECONDS) -> None:
    """Fill again and again, until cancelled. What fails is logged and tried again. Vectors of another model than this embedder's
    are stale from the beginning. A program that is done at once never loads a model."""
    renewed = False
    while True:
        await database.clock.sleep(seconds)
        try:
            if not renewed:
                for tenant in await database.tenants():
                    await database.write(_renew, embedder.name, scope=Scope(tenant=tenant, actor="search"))
                renewed = True
            await fill_all(database, embedder, rest=REST)
        except StigmergyError as error:
            log.warning("the search index could not be filled: %s", error)
        except Exception:  # an embedder may be anybody's; it does not end the filling
            log.exception("the search index could not be filled")


async def _renew(tx: Transaction, model: str) -> None:
    await tx.run(OTHER_MODELS, model=model)


async def _next_tenant(tx: Snapshot, after: str) -> str | None:
    found = await tx.rows(NEXT_TENANT, after=after)
    return found[0][0] if found else None


async def read_stale(tx: Snapshot, limit: int) -> list[Work]:
    marks = await tx.rows(READ_STALE, limit=limit)
    if not marks:
        return []
    ids = as_each([id for id, _ in marks])
    crumbs = {crumb.id: crumb for crumb in await tx.find(READ_CRUMBS, ids=ids)}
    schemas = {name: await tx.get(Schema, name) for name in {crumb.schema_name for crumb in crumbs.values()}}
    return [Work(id, seq, crumb := crumbs.get(id), None if crumb is None else schemas[crumb.schema_name]) for id, seq in marks]


def make_entries(tenant: str, work: Sequence[Work], embedder: Embedder) -> list[Entry]:
    texts = [text_of(each) for each in work]
    vectors = _embedded(embedder, [text[:LONGEST_EMBEDDED] for text in texts])
    return [
        Entry(each.id, each.seq, " ".join(words_of(tenant, text)), vector)
        for each, text, vector in zip(work, texts, vectors, strict=True)
    ]


def _embedded(embedder: Embedder, texts: Sequence[str]) -> list[Vectors | None]:
    """A vector for each text that has one. What the model refuses is asked one by one, so that one does not spoil the others."""
    asked = [text for text in texts if text.strip()]
    try:
        rows = list(embedder.embed(asked)) if asked else []
    except Invalid as error:
        if len(asked) > 1:
            return [vector for text in texts for vector in _embedded(embedder, [text])]
        log.warning("a breadcrumb is indexed without a vector: %s", error)
        return [None] * len(texts)
    found = iter(rows)
    vectors = [next(found) if text.strip() else None for text in texts]
    return [vector if vector is not None and np.any(vector) else None for vector in vectors]


async def put_entries(tx: Transaction, entries: Sequence[Entry], model: str) -> int:
    """Write the entries whose mark still speaks of the same change, and take their marks away."""
    ((engine,),) = await tx.rows(ENGINE)
    taken = [entry for entry in entries if await tx.rows(TAKE, id=entry.id, seq=entry.seq)]
    if not taken:
        return 0
    ((stamp,),) = await tx.rows(MOVE_HEAD, many=len(taken))
    for number, entry in enumerate(taken, stamp - len(taken) + 1):
        for statement in FORGET[1:]:
            await tx.run(statement, id=entry.id)
        if entry.words:
            for statement in _ADD[engine]:
                await tx.run(statement, id=entry.id, words=entry.words)
        if entry.vector is not None:
            stored = entry.vector.astype("<f4").tobytes() if engine == "sqlite" else entry.vector.tolist()
            await tx.run(PUT_VECTOR, id=entry.id, seq=entry.seq, stamp=number, model=model, vector=stored)
    return len(taken)
