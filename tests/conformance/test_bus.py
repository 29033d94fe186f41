"""The bus says "look": from any thread, without blocking, and what it says may be lost but is never wrong."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from stigmergy.kernel.bus import BACKLOG, Bus, LocalBus
from stigmergy.kernel.postgres_bus import LARGEST, PostgresBus
from support.postgres import DatabaseUrls
from support.units import PATIENCE


@pytest.fixture
async def bus(engine: str, request: pytest.FixtureRequest) -> AsyncIterator[Bus]:
    if engine == "sqlite":
        made: Bus = LocalBus()
    else:
        urls: DatabaseUrls = request.getfixturevalue("postgres_database")
        made = PostgresBus(urls.app)
        await made.start()
    yield made
    await made.close()


async def test_a_listener_hears_its_topic_and_no_other(bus: Bus) -> None:
    with bus.listen("a") as a, bus.listen("b") as b:
        bus.publish("a", b"1")
        bus.publish("c", b"2")
        assert await a.wait(PATIENCE) == [b"1"]
        assert await b.wait(0) == []


async def test_what_was_published_before_listening_is_not_heard_and_what_came_before_waiting_is(bus: Bus) -> None:
    bus.publish("a", b"early")
    with bus.listen("a") as listener:
        bus.publish("a", b"in time")
        assert await listener.wait(PATIENCE) == [b"in time"]


async def test_wakes_coalesce_and_payloads_queue_in_order(bus: Bus) -> None:
    with bus.listen("a") as listener:
        for n in range(10):
            bus.publish("a")
            bus.publish("a", b"%d" % n)
        assert await listener.wait(PATIENCE) == [b"%d" % n for n in range(10)]
        assert await listener.wait(0) == []


async def test_a_listener_that_falls_behind_loses_the_oldest_payloads_only(bus: Bus) -> None:
    with bus.listen("a") as listener:
        for n in range(BACKLOG + 5):
            bus.publish("a", b"%d" % n)
        assert await listener.wait(PATIENCE) == [b"%d" % n for n in range(5, BACKLOG + 5)]


async def test_everybody_on_a_topic_is_woken_and_everybody_at_all_when_asked(bus: Bus) -> None:
    listeners = [bus.listen(topic) for topic in ("a", "a", "b")]
    waiting = [asyncio.create_task(listener.wait(PATIENCE)) for listener in listeners]
    bus.publish("a", b"x")
    assert await asyncio.gather(*waiting[:2]) == [[b"x"], [b"x"]]
    assert not waiting[2].done()
    bus.publish_all()
    assert await waiting[2] == []
    for listener in listeners:
        listener.close()


async def test_a_closed_listener_hears_nothing_and_may_be_closed_again(bus: Bus) -> None:
    listener = bus.listen("a")
    listener.close()
    listener.close()
    bus.publish("a", b"x")
    assert await listener.wait(0) == []


async def test_a_wait_ends_after_its_time(bus: Bus) -> None:
    with bus.listen("a") as listener:
        async with asyncio.timeout(PATIENCE):
            assert await listener.wait(0.01) == []


async def test_who_waits_when_the_bus_is_closed_is_woken(bus: Bus) -> None:
    listener = bus.listen("a")
    waiting = asyncio.create_task(listener.wait(1000))
    await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE):
        await bus.close()
        assert await waiting == []


async def test_many_threads_may_publish_while_listeners_come_and_go() -> None:
    bus = LocalBus()
    stop = threading.Event()
    faults: list[BaseException] = []

    def publisher() -> None:
        try:
            while not stop.is_set():
                bus.publish("a", b"x")
                bus.publish_all()
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=publisher) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        async with asyncio.timeout(PATIENCE):
            for n in range(50):
                with bus.listen("a") as listener, bus.listen(f"b{n}"):
                    await listener.wait()
    finally:
        stop.set()
        for thread in threads:
            thread.join(PATIENCE)
    assert faults == []


def test_publishing_to_a_loop_that_has_ended_harms_nobody() -> None:
    bus = LocalBus()

    async def listen_and_go() -> None:
        bus.listen("a")

    asyncio.run(listen_and_go())
    bus.publish("a")
    bus.publish_all()


@pytest.mark.postgres
async def test_other_processes_hear_over_postgres_and_nobody_hears_twice(postgres_database: DatabaseUrls) -> None:
    here, there = PostgresBus(postgres_database.app), PostgresBus(postgres_database.app)
    await here.start()
    await there.start()
    try:
        with here.listen("a") as near, there.listen("a") as far, there.listen("b") as other:
            await far.wait(0)  # a bus that connects wakes everybody
            await other.wait(0)
            here.publish("a", b"\0\xff any bytes")
            assert await far.wait(PATIENCE) == [b"\0\xff any bytes"]
            assert await near.wait(PATIENCE) == [b"\0\xff any bytes"]
            here.publish("a", b"x" * LARGEST)
            here.publish("b", b"after")
            assert await other.wait(PATIENCE) == [b"after"]
            assert await far.wait(0) == []
            assert await near.wait(PATIENCE) == [b"x" * LARGEST]
    finally:
        await here.close()
        await there.close()


@pytest.mark.postgres
async def test_a_bus_whose_connection_breaks_wakes_everybody_and_goes_on(
    postgres_server, postgres_database: DatabaseUrls
) -> None:
    here, there = PostgresBus(postgres_database.app, 0.05), PostgresBus(postgres_database.app, 0.05)
    await here.start()
    await there.start()
    try:
        with there.listen("a") as far:
            await far.wait(0)
            name = postgres_database.app.rpartition("/")[2].partition("?")[0]
            postgres_server.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
            async with asyncio.timeout(PATIENCE):
                await far.wait()
                heard: list[bytes] = []
                while not heard:
                    here.publish("a", b"still there")
                    heard = await far.wait(0.05)
            assert set(heard) == {b"still there"}
    finally:
        await here.close()
        await there.close()
