"""The matrix of vectors finds what a plain sort of all products finds, whatever was put into it and dropped."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stigmergy.breadcrumbs.embeddings import normalised
from stigmergy.breadcrumbs.search_memory import Matrix

DIMENSIONS = 16


@given(
    seed=st.integers(0, 2**32 - 1),
    puts=st.lists(st.integers(0, 150), min_size=1, max_size=300),
    drops=st.lists(st.integers(0, 150), max_size=60),
    many=st.integers(1, 200),
    among=st.none() | st.sets(st.integers(0, 170)),
)
@settings(max_examples=100, deadline=None)
def test_the_nearest_are_those_of_a_plain_sort(
    seed: int, puts: list[int], drops: list[int], many: int, among: set[int] | None
) -> None:
    random = np.random.default_rng(seed)
    matrix = Matrix(DIMENSIONS)
    model = {}
    for vector, number in zip(normalised(random.standard_normal((len(puts), DIMENSIONS))), puts, strict=True):
        matrix.put(str(number), vector)
        model[str(number)] = vector
    for number in drops:
        matrix.drop(str(number))
        model.pop(str(number), None)
    wanted = normalised(random.standard_normal((1, DIMENSIONS)))[0]
    ids = None if among is None else [str(number) for number in sorted(among)]
    found = matrix.nearest(wanted, many, ids)
    asked = [id for id in model if ids is None or id in ids]
    scores = {id: float(np.dot(model[id].astype(np.float64), wanted.astype(np.float64))) for id in asked}
    assert len(found) == min(many, len(scores))
    assert [score for _, score in found] == pytest.approx(sorted(scores.values(), reverse=True)[: len(found)], abs=1e-6)
    assert all(score == pytest.approx(scores[id], abs=1e-6) for id, score in found)
    assert len({id for id, _ in found}) == len(found)


def test_equal_ones_come_by_id_the_greatest_first() -> None:
    matrix = Matrix(DIMENSIONS)
    vector = normalised(np.ones((1, DIMENSIONS)))[0]
    for id in ("b", "c", "a"):
        matrix.put(id, vector)
    assert [id for id, _ in matrix.nearest(vector, 10, None)] == ["c", "b", "a"]
    assert matrix.nearest(vector, 10, []) == []
