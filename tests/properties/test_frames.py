"""How the client cuts a stream of server-sent events, however it comes in."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from stigmergy.client.feed import Frame, Frames

NAMES = st.sampled_from(["breadcrumb.created", "reset", "x"])
DATA = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=20)
NEWLINES = st.sampled_from([b"\n", b"\r\n"])
BLOCKS = st.builds(
    lambda id, event, data, retry: (id, event, data, retry),
    st.none() | st.integers(0, 10**15),
    st.none() | NAMES,
    st.lists(DATA, max_size=3),
    st.none() | st.integers(0, 60_000),
)


def written(block: tuple[int | None, str | None, list[str], int | None], end: bytes) -> bytes:
    id, event, data, retry = block
    fields = [b": a comment"]
    fields += [] if id is None else [b"id: %d" % id]
    fields += [] if event is None else [b"event:" + event.encode()]
    fields += [b"data: " + line.encode() for line in data]
    fields += [] if retry is None else [b"retry: %d" % retry, b"unknown: x"]
    return b"".join(field + end for field in fields) + end


@given(st.lists(BLOCKS, max_size=5), NEWLINES, st.lists(st.integers(0, 400), max_size=12))
def test_a_stream_is_the_same_however_it_was_cut_on_its_way(blocks: list[tuple], end: bytes, cuts: list[int]) -> None:
    stream = b"".join(written(block, end) for block in blocks)
    frames = Frames()
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    found = [frame for start, stop in pairwise(places) for frame in frames.cut(stream[start:stop])]
    assert found == [
        Frame(None if id is None else str(id), event or "message", "\n".join(data).encode(), retry)
        for id, event, data, retry in blocks
        if id is not None or event is not None or data or retry is not None
    ]


@given(BLOCKS, NEWLINES)
def test_a_block_that_was_cut_off_is_none(block: tuple, end: bytes) -> None:
    """What comes after the last empty line is not there: the connection broke in it, and it comes again."""
    whole = written(block, end)
    assert list(Frames().cut(whole.removesuffix(end))) == []
