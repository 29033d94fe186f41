"""A unit's transaction on PostgreSQL.

The unit yields requests and is sent the rows; what performs them is the driver below, so a unit that awaits anything else
is seen at once. Plain inserts wait until the unit reads again or ends: at its end they are sent together, numbered.
"""

from collections.abc import Callable, Coroutine, Generator, Sequence
from contextvars import Context
from itertools import groupby
from operator import itemgetter
from typing import Any, get_args

import asyncpg
import msgspec
from msgspec.structs import force_setattr

from stigmergy.errors import SchemaTooNew
from stigmergy.kernel.database import foreign_await
from stigmergy.kernel.faults import point
from stigmergy.kernel.journal import CHANGE_COLUMNS, Change, change_row
from stigmergy.kernel.postgres_schema import Connection, arrays
from stigmergy.kernel.query import Row, Statement
from stigmergy.kernel.record import COLLECTIONS, Collection, Record, collection_of
from stigmergy.kernel.transaction import RuleVersions, Scope, Snapshot, Transaction

TAKE_POSITIONS = """
    INSERT INTO heads (tenant, seq, rules)
    SELECT tenant, taken, 0 FROM unnest($1::text[], $2::bigint[]) AS wanted (tenant, taken) ORDER BY tenant
    ON CONFLICT (tenant) DO UPDATE SET seq = heads.seq + excluded.seq
    RETURNING tenant, seq, rules, (SELECT rules FROM heads shared WHERE shared.tenant = '*'),
              (SELECT count(*) FROM schema_migrations)"""
ADD_CHANGES = f"""
    INSERT INTO changes ({CHANGE_COLUMNS}) SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::bigint[],
        $6::text[], $7::text[], $8::bigint[], $9::bigint[], $10::bigint[])"""
FIND_TOMBSTONES = """
    SELECT 1 FROM tombstones JOIN unnest($2::text[], $3::text[]) AS made (collection, id) USING (collection, id)
    WHERE tenant = $1 LIMIT 1"""
MOVE_RULES = "UPDATE heads SET rules = $2 WHERE tenant = $1"


class Request:
    """What a unit asks of its connection: a statement, or (without one) positions for its changes."""

    __slots__ = ("statement", "tx", "values")

    def __init__(self, tx: Snapshot, statement: Statement | None, values: Row = ()) -> None:
        self.tx = tx
        self.statement = statement
        self.values = values

    def __await__(self) -> Generator["Request", list[Row], list[Row]]:
        return (yield self)


class PostgresSnapshot(Snapshot):
    async def _run(self, statement: Statement, values: Row) -> list[Row]:
        return await Request(self, statement, values)


class PostgresTransaction(Transaction):
    def __init__(self, scope: Scope, now: int) -> None:
        super().__init__(scope, now)
        self.waiting: list[tuple[Statement, Row | Record]] = []
        self.numbered = 0
        self.versions: RuleVersions = (0, 0)

    async def _run(self, statement: Statement, values: Row) -> list[Row]:
        return await Request(self, statement, values)

    async def _post(self, statement: Statement, values: Row) -> None:
        self.waiting.append((statement, values))

    async def _post_insert(self, collection: Collection[Any], record: Record) -> None:
        self.waiting.append((collection.insert_sql, record))

    def _next_seq(self) -> int:
        return 0

    def _take_seq(self) -> int:
        return 0

    async def _number(self, settled: int) -> None:
        if self.numbered < len(self.changes):
            await Request(self, None)

    def rule_versions(self) -> RuleVersions:
        return self.versions


async def drive(
    connection: Connection,
    coroutine: Coroutine[Any, Any, Any],
    unit: Callable[..., Any],
    tx: Snapshot,
    context: Context,
    schema: int = 0,
) -> Any:
    """Run a unit to its end, performing what it asks for. An error of the database ends it: it is not thrown into it."""
    answer: list[Row] | None = None
    try:
        while True:
            try:
                request = context.run(coroutine.send, answer)
                if type(request) is not Request or request.tx is not tx:
                    raise foreign_await(unit)
            except StopIteration as stop:
                return stop.value
            except BaseException:
                await _refuse_put_off(connection, tx)
                raise
            if request.statement is None:
                assert isinstance(tx, PostgresTransaction)
                await number_all(connection, [tx], schema)
                answer = []
            else:
                if isinstance(tx, PostgresTransaction) and tx.waiting:
                    await send_waiting(connection, [tx])
                answer = [tuple(row) for row in await connection.fetch(request.statement.postgres, *request.values)]
    finally:
        coroutine.close()


async def _refuse_put_off(connection: Connection, tx: Snapshot) -> None:
    """A unit that gives up has the outcome of what failed first, and that may be an insert that was put off until now."""
    if isinstance(tx, PostgresTransaction) and tx.waiting:
        await send_waiting(connection, [tx])


async def send_waiting(connection: Connection, txs: Sequence[PostgresTransaction]) -> None:
    """Send what these transactions put off. Of several transactions, the same statements go together."""
    waiting = [each for tx in txs for each in tx.waiting]
    for tx in txs:
        tx.waiting = []
    if len(txs) > 1:
        place = {statement: number for number, (statement, _) in reversed(list(enumerate(waiting)))}
        waiting.sort(key=lambda each: place[each[0]])
    for statement, group in groupby(waiting, key=itemgetter(0)):
        rows = [collection_of(type(values)).encode(values) if isinstance(values, Record) else values for _, values in group]
        if len(rows) == 1:
            await connection.fetch(statement.postgres, *rows[0])
        else:
            await connection.executemany(statement.postgres, rows)


async def number_all(connection: Connection, txs: Sequence[PostgresTransaction], schema: int) -> None:
    """Take the heads, give every new change of these transactions its position, write the journal and what waited."""
    taken: dict[str, int] = {}
    for tx in txs:
        taken[tx.tenant] = taken.get(tx.tenant, 0) + len(tx.changes) - tx.numbered
    rows = await connection.fetch(TAKE_POSITIONS, list(taken), list(taken.values()))
    point("flush.half")
    heads = {tenant: (seq, rules, shared or 0) for tenant, seq, rules, shared, _ in rows}
    _refuse_newer(rows[0][4], schema)
    position = {tenant: heads[tenant][0] - count for tenant, count in taken.items()}
    fresh: list[Change] = []
    sent: list[Change] = []
    for tx in txs:
        unsent = {id(values) for _, values in tx.waiting}
        _, rules, shared = heads[tx.tenant]
        for change in tx.changes[tx.numbered :]:
            position[tx.tenant] = change.seq = position[tx.tenant] + 1
            fresh.append(change)
            if change.event != "delete" and change.record is not None:
                force_setattr(change.record, "seq", change.seq)
                if id(change.record) not in unsent:
                    sent.append(change)
            if change.collection == "rules":
                rules = change.seq
        if rules != heads[tx.tenant][1]:
            await connection.execute(MOVE_RULES, tx.tenant, rules)
        tx.versions = (rules, shared)
        tx.numbered = len(tx.changes)
    await send_waiting(connection, txs)
    await connection.execute(ADD_CHANGES, *arrays([change_row(change) for change in fresh]))
    for name, changes in groupby(sorted(sent, key=lambda change: change.collection), key=lambda change: change.collection):
        await _restamp(connection, COLLECTIONS[name], list(changes))


async def check_schema(connection: Connection, schema: int) -> None:
    _refuse_newer(await connection.fetchval("SELECT count(*) FROM schema_migrations"), schema)


def _refuse_newer(found: int, schema: int) -> None:
    if found != schema:
        raise SchemaTooNew("the database was migrated by a newer program; this one no longer writes to it, update it")


async def refuse_reused(connection: Connection, txs: Sequence[PostgresTransaction]) -> None:
    """A record made under a key of somebody's choice goes on from its tombstone. One that was buried between the question
    and the insert was not seen: such a unit is run again."""
    for tx in txs:
        if not tx.reused:
            continue
        gone = {(change.collection, change.id): change.event == "delete" for change in tx.changes}
        there = [key for key in dict.fromkeys(tx.reused) if not gone.get(key, True)]
        if there and await connection.fetch(FIND_TOMBSTONES, tx.tenant, *arrays(there)):
            raise asyncpg.SerializationError("a key was freed by another transaction while this one took it")


async def _restamp(connection: Connection, collection: Collection[Any], changes: list[Change]) -> None:
    """Give rows that were written before they were numbered the seq of their last change."""
    last = {(change.tenant, change.id): change for change in changes}
    key = ("tenant", *collection.key)
    columns = [[getattr(change.record, name) for change in last.values()] for name in (*key, "version", "seq")]
    await connection.execute(_restamp_sql(collection), *columns)


_RESTAMP: dict[str, str] = {}


def _restamp_sql(collection: Collection[Any]) -> str:
    sql = _RESTAMP.get(collection.name)
    if sql is None:
        key = ("tenant", *collection.key)
        kinds = {field.name: field.type for field in msgspec.structs.fields(collection.record)}
        given = (*key, "version", "seq")
        types = ("bigint" if _is_int(kinds[name]) else "text" for name in given)
        arrays = ", ".join(f"${n}::{kind}[]" for n, kind in enumerate(types, 1))
        same = " AND ".join(f"{collection.name}.{name} = given.{name}" for name in (*key, "version"))
        sql = _RESTAMP[collection.name] = (
            f"UPDATE {collection.name} SET seq = given.seq FROM unnest({arrays}) AS given ({', '.join(given)}) WHERE {same}"
        )
    return sql


def _is_int(annotation: Any) -> bool:
    return annotation is int or int in get_args(annotation)
