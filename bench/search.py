"""What search costs: writes with the mark for the index, filling it, searching many breadcrumbs; and what could search vectors.

    python bench/search.py                    10,000 and 100,000 breadcrumbs on SQLite, about two minutes
    python bench/search.py --count 10000      only so many
    python bench/search.py --engines          NumPy, usearch and sqlite-vec on the same vectors, about three minutes; the latter
                                              two are no dependencies: install them by hand

The texts are drawn from 20,000 words as often as words occur in a language (Zipf), 20 to a text.
"""

import argparse
import asyncio
import importlib
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import numpy as np
from report import Spent, line, percentiles, spent, title

from stigmergy.breadcrumbs import commands, search_sqlite
from stigmergy.breadcrumbs.audience import Reader
from stigmergy.breadcrumbs.embeddings import Vectors, normalised
from stigmergy.breadcrumbs.model import BREADCRUMBS, Breadcrumb, Draft
from stigmergy.breadcrumbs.search import Method, Searcher, search
from stigmergy.breadcrumbs.search_index import Work, fill, text_of, words_of
from stigmergy.breadcrumbs.store import derive_tags
from stigmergy.kernel.journal import Change
from stigmergy.kernel.selectors import Selector
from stigmergy.kernel.sqlite import SqliteDatabase
from stigmergy.kernel.transaction import Scope, Transaction

CALLERS = 64
MIA = Scope("main", "mia")
READER = Reader("mia")
RANDOM = np.random.default_rng(1)
WORDS = [f"w{number}" for number in range(20_000)]
WEIGHTS = 1 / np.arange(1, len(WORDS) + 1)
WEIGHTS /= WEIGHTS.sum()


class WordVectors:
    """A vector for each word, drawn once, and averages of them: as dear as the real model, and known to be spread."""

    name = "bench"
    dimensions = 256

    def __init__(self) -> None:
        self._words = RANDOM.standard_normal((len(WORDS), self.dimensions)).astype(np.float32)

    def embed(self, texts: Any) -> Vectors:
        picked = ([int(word[1:]) for word in text.split() if word[1:].isdigit()] or [0] for text in texts)
        return normalised([self._words[places].mean(axis=0) for places in picked])


def some_text(words: int = 20) -> str:
    return " ".join(WORDS[place] for place in RANDOM.choice(len(WORDS), words, p=WEIGHTS))


def some_drafts(count: int) -> list[Draft]:
    tags = [["note", f"session:{number % 5_000}", f"tenth:{number % 10}"] for number in range(count)]
    return [
        Draft(schema_name=f"note.v{number % 2}", title=f"note {number}", tags=tags[number], context={"text": some_text()})
        for number in range(count)
    ]


async def derive_with_text(tx: Transaction, change: Change) -> None:
    """What we do not do: the words go into the index in the transaction of the create."""
    await derive_tags(tx, change)
    record = change.record
    assert isinstance(record, Breadcrumb)
    words = " ".join(words_of(tx.tenant, text_of(Work(change.id, change.seq, record, None))))
    for statement in search_sqlite.ADD:
        await tx.run(statement, id=change.id, words=words)


async def writes(folder: Path) -> bool:
    """Creates by 64 callers with and without what search needs of them, in turn."""
    title("Creates with 3 tags, 64 callers")
    ours = BREADCRUMBS.derive
    plans = {
        "nothing for search": derive_tags,
        "a mark, filled in the background": ours,
        "FTS5 in the same transaction": derive_with_text,
    }
    best = dict.fromkeys(plans, 0.0)
    by_cpu = dict.fromkeys(plans, 0.0)
    drafts = some_drafts(CALLERS)
    database = await SqliteDatabase.open(folder / "writes.db")

    async def caller(draft: Draft) -> None:
        for _ in range(100):
            await database.write(commands.create, draft, scope=MIA)

    for _ in range(6):
        for name, derive in plans.items():
            BREADCRUMBS.derive = derive
            with spent() as taken:
                await asyncio.gather(*(caller(draft) for draft in drafts))
            best[name] = max(best[name], CALLERS * 100 / taken.clock)
            by_cpu[name] = max(by_cpu[name], CALLERS * 100 / taken.cpu)
    BREADCRUMBS.derive = ours
    await database.close()
    for name, rate in best.items():
        line(name, rate, cpu=by_cpu[name])
    return line("wanted: with the mark", best["a mark, filled in the background"], wanted=15_000)


async def searches(folder: Path, count: int) -> bool:
    database = await SqliteDatabase.open(folder / f"{count}.db")
    for start in range(0, count, 1_000):
        await database.write(commands.create_many, some_drafts(min(1_000, count - start)), scope=MIA)
    searcher = Searcher(WordVectors())
    title("Searches on SQLite, one caller, 5 words", breadcrumbs=f"{count:,}")
    began = time.perf_counter()
    await fill(database, searcher.embedder, "main")
    line("entries filled in the background", count / (time.perf_counter() - began))
    began = time.perf_counter()
    await _ask(database, searcher, Selector(), "vector")
    print(f"    the first search by vector, which reads all of them: {1000 * (time.perf_counter() - began):.0f} ms")
    filters = {
        "all": Selector(),
        "a tag of one in ten": Selector(all_tags=("tenth:3",)),
        "a tag of one in 5,000": Selector(all_tags=("session:3",)),
        "a field": Selector(where="context.text.contains('w77 ')"),
    }
    kept = True
    for name, selector in filters.items():
        for method in ("text", "vector", "hybrid"):
            asked = [await _ask(database, searcher, selector, method) for _ in range(40)]
            cpu = 1_000 * statistics.median(each.cpu for each in asked)
            promised = 20.0 if (name, method) == ("all", "hybrid") else None
            kept = percentiles(f"{name}, {method}", [1_000 * each.clock for each in asked], p50=promised, cpu=cpu) and kept
    await database.close()
    return kept


async def _ask(database: SqliteDatabase, searcher: Searcher, selector: Selector, method: Method) -> Spent:
    text = some_text(5)
    with spent() as taken:
        query = await searcher.ask(text)
        await database.read(search, READER, selector, query, method=method, limit=10, scope=MIA)
    return taken


def engines(count: int) -> None:
    """The same vectors in NumPy, usearch and sqlite-vec: ten nearest of all, and of one in a hundred."""
    title("Ten nearest by cosine, 256 dimensions", vectors=f"{count:,}")
    model = WordVectors()
    rows = model.embed([some_text() for _ in range(count)])
    wanted = model.embed([some_text(5) for _ in range(50)])
    few = np.arange(0, count, 100)
    truth = [set(np.argpartition(-np.vecdot(rows, each), 10)[:10].tolist()) for each in wanted]
    _report("NumPy, exact", wanted, lambda each: _top(np.vecdot(rows, each)), truth)
    _report("NumPy, exact, as one product on all cores", wanted, lambda each: _top(rows @ each), truth)
    _report("NumPy, exact, 1 % of them", wanted, lambda each: few[_top(np.vecdot(rows[few], each))])
    if (usearch := _optional("usearch.index")) is not None:
        index = usearch.Index(ndim=256, metric="ip", dtype="f32")
        began = time.perf_counter()
        index.add(np.arange(count), rows)
        print(f"    usearch builds its graph in {time.perf_counter() - began:.1f} s")
        _report("usearch, HNSW", wanted, lambda each: index.search(each, 10).keys, truth)
        _report("usearch, 1 % of them: 1,000 fetched, then filtered", wanted, lambda each: index.search(each, 1_000).keys)
    if (sqlite_vec := _optional("sqlite_vec")) is not None:
        connection = apsw.Connection(":memory:")
        connection.enable_load_extension(True)
        connection.load_extension(sqlite_vec.loadable_path())
        connection.execute("CREATE VIRTUAL TABLE v USING vec0(id INTEGER PRIMARY KEY, few INTEGER, e FLOAT[256])")
        with connection:
            parts = ((place, int(place % 100 == 0), row.tobytes()) for place, row in enumerate(rows))
            connection.executemany("INSERT INTO v VALUES (?, ?, ?)", parts)
        nearest = "SELECT id FROM v WHERE e MATCH ? AND k = 10"
        _report("sqlite-vec, exact", wanted, lambda each: [i for (i,) in connection.execute(nearest, (each.tobytes(),))], truth)
        filtered = f"{nearest} AND few = 1"
        _report("sqlite-vec, 1 % of them", wanted, lambda each: connection.execute(filtered, (each.tobytes(),)).fetchall())


def _top(scores: Any) -> Any:
    return np.argpartition(-scores, 10)[:10]


def _optional(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        print(f"    {name} is not installed, so it is not compared")
        return None


def _report(name: str, wanted: Any, ask: Callable[[Any], Any], truth: Any = None) -> None:
    took: list[float] = []
    right = 0
    for place, each in enumerate(wanted):
        began = time.perf_counter()
        found = ask(each)
        took.append(time.perf_counter() - began)
        right += len(truth[place] & {int(id) for id in found}) if truth else 0
    recall = f"   recall {right / len(wanted) / 10:.2f}" if truth else ""
    print(f"{name:<52} p50 {1000 * statistics.median(took):7.2f} ms{recall}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int)
    parser.add_argument("--engines", action="store_true", help="compare what could search vectors, and nothing else")
    asked = parser.parse_args()
    counts = [asked.count] if asked.count else [10_000, 100_000]
    if asked.engines:
        for count in counts:
            engines(count)
        return
    with tempfile.TemporaryDirectory() as folder:
        kept = asyncio.run(writes(Path(folder)))
        for count in counts:
            kept = asyncio.run(searches(Path(folder), count)) and kept
    raise SystemExit(0 if kept else 1)


if __name__ == "__main__":
    main()
