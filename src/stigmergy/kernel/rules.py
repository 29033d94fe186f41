"""Rules: what a change sets off, kept as records and matched in the writing transaction.

A rule has a `kind`; the part it belongs to says with a starter what a firing of that kind writes. What a starter writes is
caused by the change, is one deeper in its chain, and is journalled and matched in turn up to the rule's depth limit.
A tenant's rules are its own and those of the shared tenant, which come from the program's code.

What goes wrong while matching never fails the write: it is one diagnostic in the journal, and the rule does not fire.
"""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, cast

import msgspec

from stigmergy.errors import Invalid
from stigmergy.kernel.conditions import compile_condition
from stigmergy.kernel.journal import Change, Seen
from stigmergy.kernel.matching import CompiledRule, RuleIndex, compile_rule
from stigmergy.kernel.record import Record, declare, templates
from stigmergy.kernel.selectors import compile_selector, parse_event, parse_selector
from stigmergy.kernel.subjects import Subject
from stigmergy.kernel.transaction import RuleVersions, Transaction

MAX_DEPTH = 32
# What one unit may set off beyond what its own changes do: rules that each start several others would else grow without bound
# long before a chain of them is deep.
MOST_FIRINGS = 5_000


class Rule(Record, frozen=True, kw_only=True):
    """`collection` is a short name or a path pattern, `events` as in `triggers.json` (with the shorthand where wanted)."""

    id: str
    owner: str
    kind: str
    collection: str
    events: list[str]
    selector: dict[str, Any] | None = None
    condition: str | None = None
    action: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    position: int = 0
    max_depth: int = MAX_DEPTH
    enabled: bool = True


class Diagnostic(Record, frozen=True, kw_only=True):
    """Something that went wrong while matching. Its id says once per what it is written."""

    id: str
    kind: str
    rule: str | None
    message: str
    change_seq: int


RULES = declare(Rule, "rules", path="rules/{kind}/{id}")
DIAGNOSTICS = declare(Diagnostic, "diagnostics", path="diagnostics/{kind}", history="append")

ENABLED = RULES.query("enabled", "WHERE tenant IN (:tenant, '*') AND enabled ORDER BY tenant, id")

Starter = Callable[[Transaction, Rule, Change], Awaitable[None]]


class _Book(NamedTuple):
    versions: RuleVersions
    rules: RuleIndex


class RuleBook:
    """The rules of every tenant, compiled when they are first met and again after they changed."""

    def __init__(self) -> None:
        self._starters: dict[str, Starter] = {}
        self._books: dict[str, _Book] = {}
        self._always: list[Rule] = []

    def start_with(self, kind: str, starter: Starter) -> None:
        """Say what a firing of this kind writes. A starter is part of a unit, and keeps the rules of units."""
        self._starters[kind] = starter

    def always(self, rule: Rule, starter: Starter) -> None:
        """A rule of the engine itself, for every tenant: how a part has something done by a part above it. It is no record."""
        compiled(rule)
        self._always.append(rule)
        self.start_with(rule.kind, starter)
        self.forget()

    def forget(self) -> None:
        """Positions may be given out again after a failed commit, so what was compiled for them must go."""
        self._books.clear()

    async def fire(self, tx: Transaction, fresh: list[Change]) -> None:
        versions = tx.rule_versions()
        if versions == (0, 0) and not self._always:
            return
        index = await self._index(tx, versions)
        for change in fresh:
            for rule, failure in index.match(cast(Subject, Seen(change))):
                if failure is None:
                    await self._start(tx, rule.payload, change)
                else:
                    await report(tx, rule.payload, change, failure.kind, failure.message)

    async def _index(self, tx: Transaction, versions: RuleVersions) -> RuleIndex:
        book = self._books.get(tx.tenant)
        if book is not None and book.versions == versions:
            return book.rules
        index = RuleIndex(await self._compiled(tx))
        if not any(change.collection == RULES.name for change in tx.changes):
            # the rules as this unit changed them are nobody else's until it is committed
            self._books[tx.tenant] = _Book(versions, index)
        return index

    async def _compiled(self, tx: Transaction) -> list[CompiledRule]:
        """A rule that this program cannot compile (another program's, of a collection unknown here) holds up nobody."""
        good = [compiled(rule) for rule in self._always]
        for rule in await tx.find(ENABLED):
            try:
                good.append(compiled(rule))
            except Invalid as error:
                await report(tx, rule, tx.changes[-1], "bad_rule", str(error))
        return good

    async def _start(self, tx: Transaction, rule: Rule, change: Change) -> None:
        starter = self._starters.get(rule.kind)
        if change.depth > tx.scope.depth:
            tx.further_firings += 1
        if tx.further_firings > MOST_FIRINGS:
            message = f"one write set off more than {MOST_FIRINGS:,} others, directly and by their own rules; here that ends"
            await report(tx, rule, change, "firing_limit", message)
        elif change.depth >= rule.max_depth:
            message = f"a chain of {change.depth} causes ends here, where the rule {rule.id} would have made it longer"
            await report(tx, rule, change, "depth_limit", message, once_per=f"{change.seq}")
        elif starter is None:
            await report(tx, rule, change, "no_starter", f"nothing here knows how to start a {rule.kind!r}")
        else:
            with tx.caused_by(change):
                await starter(tx, rule, change)


def compiled(rule: Rule) -> CompiledRule:
    """A rule ready to be matched. `Invalid`, with the place of the fault, for one that cannot be. One for every collection is
    filed under those that can show what its selector asks for."""
    selector = parse_selector(rule.selector) if rule.selector is not None else None
    wanted = selector.schema_name if selector is not None and rule.collection == "*" else None
    return compile_rule(
        rule.id,
        rule.collection,
        parse_event(rule.events),
        compile_selector(selector) if selector is not None else None,
        compile_condition(rule.condition) if rule.condition else None,
        templates=templates(wanted),
        order=rule.position,
        payload=rule,
    )


async def report(tx: Transaction, rule: Rule, change: Change, kind: str, message: str, *, once_per: str | None = None) -> None:
    """One diagnostic for each version of a rule and kind of fault, or for each `once_per`."""
    id = f"{kind}:{rule.id}:{once_per or f'v{rule.version}'}"
    with tx.caused_by(change):
        await tx.insert_new(Diagnostic(id=id, kind=kind, rule=rule.id, message=message, change_seq=change.seq))


async def put_rule(tx: Transaction, rule: Rule) -> Rule:
    """Add a rule, or replace the one with its id. An equal one is left as it is."""
    compiled(rule)
    stored = await tx.lock(Rule, rule.id)
    if stored is None:
        return await tx.insert(rule)
    given = {name: getattr(rule, name) for name in _OWN if getattr(rule, name) != getattr(stored, name)}
    return await tx.update(stored, **given) if given else stored


_OWN = ("owner", "kind", "collection", "events", "selector", "condition", "action", "position", "max_depth", "enabled")
_OF_OWNER = RULES.query("of_owner", "WHERE tenant = :tenant AND owner = :owner ORDER BY id {for_update}")


async def declare_rules(tx: Transaction, owner: str, rules: list[Rule]) -> None:
    """Make an owner's rules exactly these: what its code declares now."""
    wanted = {rule.id for rule in rules}
    for stored in await tx.find(_OF_OWNER, owner=owner):
        if stored.id not in wanted:
            await tx.delete(stored)
    for rule in rules:
        await put_rule(tx, rule)
