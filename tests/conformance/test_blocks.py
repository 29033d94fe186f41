"""Blocks: any body once under its hash; what was erased says so."""

import asyncio
import hashlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stigmergy.errors import Erased, NotFound
from stigmergy.kernel.blocks import Block, erase_block, get_block, put_block
from stigmergy.kernel.database import MAIN, Database
from stigmergy.kernel.query import Statement
from stigmergy.kernel.transaction import Scope, Snapshot
from support.units import whole_journal

COUNT = Statement("test.blocks", "SELECT count(*) FROM blocks WHERE tenant = :tenant")


async def count_blocks(tx: Snapshot) -> int:
    ((count,),) = await tx.rows(COUNT)
    return count


@pytest.mark.parametrize("body", [b"", b"\0", b"text", bytes(range(256)) * 8192], ids=["empty", "nul", "text", "two megabytes"])
async def test_a_block_is_read_back_under_the_hash_of_its_content(store: Database, body: bytes) -> None:
    digest = await store.write(put_block, body, "text/plain")
    assert digest == hashlib.sha256(body).hexdigest()
    block = await store.read(get_block, digest)
    assert block == Block(digest, len(body), "text/plain", body)
    assert type(block.body) is bytes


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.binary(max_size=2000))
async def test_any_body_is_kept_as_it_is(store: Database, body: bytes) -> None:
    digest = await store.write(put_block, body)
    assert (await store.read(get_block, digest)).body == body


async def test_equal_bodies_are_one_block_however_many_write_them(store: Database) -> None:
    digests = await asyncio.gather(*(store.write(put_block, b"same", f"type/{n}") for n in range(20)))
    assert len(set(digests)) == 1
    assert await store.read(count_blocks) == 1


async def test_an_erased_block_says_so_and_can_be_put_again(store: Database) -> None:
    digest = await store.write(put_block, b"secret")
    await store.write(erase_block, digest)
    with pytest.raises(Erased, match=digest):
        await store.read(get_block, digest)
    await store.write(erase_block, digest)
    assert await store.write(put_block, b"secret") == digest
    assert (await store.read(get_block, digest)).body == b"secret"


async def test_a_block_that_never_was_is_not_found(store: Database) -> None:
    for unit in (get_block, erase_block):
        with pytest.raises(NotFound) as caught:
            await store.write(unit, "0" * 64)
        assert not isinstance(caught.value, Erased)


async def test_tenants_share_no_block(store: Database) -> None:
    acme, other = Scope("acme"), Scope("other")
    digest = await store.write(put_block, b"same", scope=acme)
    for unit in (get_block, erase_block):
        with pytest.raises(NotFound):
            await store.write(unit, digest, scope=other)
    await store.write(put_block, b"same", scope=other)
    await store.write(erase_block, digest, scope=other)
    assert (await store.read(get_block, digest, scope=acme)).body == b"same"


async def test_a_block_of_a_failed_unit_is_not_there_and_blocks_are_not_journalled(store: Database) -> None:
    async def fails(tx) -> None:
        await put_block(tx, b"kept by nobody")
        raise LookupError

    with pytest.raises(LookupError):
        await store.write(fails)
    assert await store.read(count_blocks) == 0
    await store.write(put_block, b"kept")
    assert await whole_journal(store, MAIN) == []
