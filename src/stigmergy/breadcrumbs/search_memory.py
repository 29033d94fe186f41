"""The vectors of the tenants that are searched, in memory: one matrix each, searched exactly by NumPy.

The rows are the truth; a matrix is brought up to their stamp before it is asked. What is gone from the rows is dropped when it
would have been found. Used where the database has no search of its own for vectors.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence

import numpy as np

from stigmergy.breadcrumbs.embeddings import Vectors, as_vector
from stigmergy.kernel.query import Row, Statement, as_each
from stigmergy.kernel.transaction import Snapshot

# Bytes of all matrices together. The least recently asked go first; one that is larger than this alone is kept alone.
MOST_BYTES = 1 << 29
PAGE = 4_096

READ_HEAD = Statement("search_heads.read", "SELECT stamp FROM search_heads WHERE tenant = :tenant")
READ_VECTORS = Statement(
    "search_vectors.since",
    """SELECT id, stamp, model, vector FROM search_vectors WHERE tenant = :tenant AND stamp > :after
       ORDER BY tenant, stamp LIMIT :limit""",
)
WITHOUT_VECTOR = Statement(
    "search_vectors.gone",
    """SELECT value FROM {each:ids}
       WHERE NOT EXISTS (SELECT 1 FROM search_vectors v WHERE v.tenant = :tenant AND v.id = value)""",
)

Ranked = tuple[str, float]
"""An id and its score."""


class Matrix:
    """One tenant's vectors by one model. A place that becomes free is taken by the last."""

    def __init__(self, dimensions: int) -> None:
        self.alone = threading.Lock()
        self.stamp = 0
        self.ids: list[str] = []
        self._places: dict[str, int] = {}
        self._rows: Vectors = np.zeros((64, dimensions), dtype=np.float32)

    @property
    def bytes(self) -> int:
        return self._rows.nbytes

    def take_in(self, rows: Iterable[Row], model: str) -> None:
        """Rows in the order of their stamps. Those that another reader took in meanwhile are passed over."""
        for id, stamp, of, stored in rows:
            if stamp <= self.stamp:
                continue
            vector = as_vector(stored)
            if of == model and vector.shape == self._rows.shape[1:]:
                self.put(id, vector)
            else:
                self.drop(id)
            self.stamp = stamp

    def put(self, id: str, vector: Vectors) -> None:
        place = self._places.get(id)
        if place is None:
            place = self._places[id] = len(self.ids)
            self.ids.append(id)
            if place == len(self._rows):
                grown = np.zeros((place * 3 // 2, self._rows.shape[1]), dtype=np.float32)
                grown[:place] = self._rows
                self._rows = grown
        self._rows[place] = vector

    def drop(self, id: str) -> None:
        place = self._places.pop(id, None)
        if place is None:
            return
        last = self.ids.pop()
        if last != id:
            self.ids[place] = last
            self._places[last] = place
            self._rows[place] = self._rows[len(self.ids)]

    def nearest(self, wanted: Vectors, many: int, among: Iterable[str] | None) -> list[Ranked]:
        """The nearest first; equal ones by id, the greatest first."""
        if among is not None:
            places = np.array([self._places[id] for id in among if id in self._places], dtype=np.intp)
            rows = self._rows[places]
        else:
            places = None
            rows = self._rows[: len(self.ids)]
        # Row by row, on this thread. As one product of matrices it is given to all cores, is no faster where memory is the limit,
        # and waits for the core that is busy with something else: 12 ms for 5.
        scores = np.vecdot(rows, wanted)
        best = np.argpartition(scores, -many)[-many:] if many < len(scores) else np.arange(len(scores))
        found = [(self.ids[int(places[at] if places is not None else at)], float(scores[at])) for at in best]
        return sorted(found, key=lambda each: (each[1], each[0]), reverse=True)


class Memory:
    """The matrices of one database. Asked from several threads and tasks: nothing is awaited under a lock."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._matrices: OrderedDict[tuple[str, str], Matrix] = OrderedDict()
        self._alone = threading.Lock()

    async def nearest(self, tx: Snapshot, model: str, wanted: Vectors, many: int, among: Sequence[str] | None) -> list[Ranked]:
        matrix = self._matrix(tx.tenant, model, len(wanted))
        as_of = await self._freshen(tx, model, matrix)
        while True:
            with matrix.alone:
                found = matrix.nearest(wanted, many, among)
            gone = await self._gone(tx, [id for id, _ in found])
            if not gone:
                return found
            with matrix.alone:
                if as_of != matrix.stamp:
                    # another reader has seen more of the store than this snapshot shows: what it put in is not gone
                    return [each for each in found if each[0] not in gone]
                for id in gone:
                    matrix.drop(id)

    def _matrix(self, tenant: str, model: str, dimensions: int) -> Matrix:
        with self._alone:
            matrix = self._matrices.setdefault((tenant, model), Matrix(dimensions))
            self._matrices.move_to_end((tenant, model))
            while len(self._matrices) > 1 and sum(each.bytes for each in self._matrices.values()) > self._most:
                self._matrices.popitem(last=False)
            return matrix

    async def _freshen(self, tx: Snapshot, model: str, matrix: Matrix) -> int:
        """Take in what was written since; gives the stamp of this snapshot."""
        heads = await tx.rows(READ_HEAD)
        as_of: int = heads[0][0] if heads else 0
        while matrix.stamp < as_of:
            rows = await tx.rows(READ_VECTORS, after=matrix.stamp, limit=PAGE)
            with matrix.alone:
                matrix.take_in(rows, model)
                if len(rows) < PAGE:
                    matrix.stamp = max(matrix.stamp, as_of)
        return as_of

    async def _gone(self, tx: Snapshot, ids: list[str]) -> set[str]:
        if not ids:
            return set()
        return {row[0] for row in await tx.rows(WITHOUT_VECTOR, ids=as_each(ids))}
