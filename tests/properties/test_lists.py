"""A list has exactly what the matcher says, whatever part of the selector SQL answers; on both engines."""

import asyncio
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stigmergy.breadcrumbs import commands, queries
from stigmergy.breadcrumbs.audience import Reader
from stigmergy.breadcrumbs.model import Breadcrumb, Draft
from stigmergy.kernel.database import Database
from stigmergy.kernel.journal import Change, Seen
from stigmergy.kernel.predicates import ConditionFailed
from stigmergy.kernel.selectors import ContextMatch, Selector, compile_selector
from stigmergy.kernel.transaction import Scope
from support.stores import postgres_opener, sqlite_opener

NAMES = st.sampled_from(["a.v1", "a.v2", "ab.v1", "b_v1", "b%v1", "A.v1"])
TAGS = st.sampled_from(["red", "Red", "re%", "blue", "ä", "a b", "1"])
VALUES: Any = st.sampled_from([None, True, False, 0, 1, 1.0, 2.5, -1, "", "1", "one", "ONE", [], [1], ["one", 2], {}, {"n": 1}])
SCALARS: Any = st.sampled_from([True, False, 0, 1, 1.0, 2.5, -1, "", "1", "one", "ONE"])
DRAFTS = st.builds(
    Draft,
    schema_name=NAMES,
    tags=st.lists(TAGS, max_size=3),
    context=st.dictionaries(st.sampled_from(["n", "m", "deep"]), VALUES | st.fixed_dictionaries({"n": VALUES}), max_size=3),
)
OPS: Any = ["eq", "ne", "gt", "gte", "lt", "lte", "contains", "contains_any", "exists"]
SOME = st.none() | st.lists(TAGS, max_size=3).map(tuple)
PATHS = st.sampled_from(["n", "m", "deep.n", "deep", "n.0"])


@st.composite
def matches(draw: st.DrawFn) -> ContextMatch:
    op = draw(st.sampled_from(OPS))
    if op == "exists":
        return ContextMatch(path=draw(PATHS), op=op, value=draw(st.booleans()))
    ordered = op in ("gt", "gte", "lt", "lte")
    one = st.sampled_from([0, 1, 1.0, 2.5, "", "1", "one"]) if ordered else SCALARS
    return ContextMatch(
        path=draw(PATHS), op=op, value=draw(st.lists(one, min_size=1, max_size=3) if op == "contains_any" else one)
    )


SELECTORS = st.builds(
    Selector,
    schema_name=st.none() | NAMES | st.sampled_from(["a*", "a.*", "b_*", "b%*", "*"]),
    any_tags=SOME,
    all_tags=SOME,
    none_tags=SOME,
    context_match=st.lists(matches(), max_size=2).map(tuple),
    where=st.sampled_from([None, "context.n > 0", "has(context.m)", "size(context.n) == 1", "'red' in tags"]),
)
TENANTS = count()


def says(selector: Selector, crumb: Breadcrumb) -> bool:
    """The matcher's own answer, as a rule or a feed would get it."""
    change = Change(crumb.tenant, crumb.seq, "breadcrumbs", crumb.id, 1, "create", "mia", 0, None, 0, crumb)
    seen: Any = Seen(change)
    try:
        return compile_selector(selector).predicate(seen)
    except ConditionFailed:
        return False


async def compare(store: Database, drafts: list[Draft], selectors: list[Selector], page: int) -> None:
    scope = Scope(f"of{next(TENANTS)}", "mia")
    crumbs: list[Breadcrumb] = await store.write(commands.create_many, drafts, scope=scope)
    newest_first = [crumb.id for crumb in sorted(crumbs, key=lambda crumb: crumb.id, reverse=True)]
    by_id = {crumb.id: crumb for crumb in crumbs}
    for selector in selectors:
        listed: list[str] = []
        below: int | None = None
        while True:
            given = {} if below is None else {"below": below}
            found = await store.read(queries.find, Reader("mia"), selector, limit=page, scope=scope, **given)
            listed += [crumb.id for crumb in found.crumbs]
            below = found.next
            if below is None:
                break
        assert listed == [id for id in newest_first if says(selector, by_id[id])]


@pytest.fixture
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "sqlite":
        return lambda: sqlite_opener(tmp_path / "store.db")(synchronous="OFF")
    urls = request.getfixturevalue("postgres_database")
    return lambda: postgres_opener(urls)()


@pytest.mark.parametrize("opener", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True)
def test_a_list_has_what_the_matcher_says(opener: Any) -> None:
    with asyncio.Runner() as runner:
        store = runner.run(opener())

        @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(st.lists(DRAFTS, min_size=1, max_size=12), st.lists(SELECTORS, min_size=1, max_size=6), st.integers(1, 5))
        def agree(drafts: list[Draft], selectors: list[Selector], page: int) -> None:
            runner.run(compare(store, drafts, selectors, page))

        try:
            agree()
        finally:
            runner.run(store.close())
