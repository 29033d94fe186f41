"""Whom a message wakes, how often, and how a chain of messages ends."""

import asyncio

import msgspec
import pytest

from stigmergy.agents.agent import on
from stigmergy.agents.model import AgentRecord, Definition
from stigmergy.engine.starting import RULE_KIND, rules_of, start_for_change
from stigmergy.errors import NotFound
from stigmergy.kernel.database import Database
from stigmergy.kernel.rules import MAX_DEPTH, Diagnostic, declare_rules
from stigmergy.kernel.transaction import Scope, Transaction
from stigmergy.runs import waits
from stigmergy.runs.commands import Start, start_run
from stigmergy.runs.endings import end_run
from stigmergy.runs.model import Run, RunMessage, ToolCall, Wait
from stigmergy.runs.store import locked_run
from stigmergy.runs.tools import Party, Waiting
from stigmergy.spaces import commands
from support.talk import add_agents, runs_of, say, space_of
from support.units import whole_journal

A, B, C = "agent:ada", "agent:bob", "agent:cyd"


async def woken(store: Database, *agents: str) -> list[int]:
    """How many runs each of these agents has."""
    return [len(await store.read(runs_of, agent.removeprefix("agent:"))) for agent in agents]


# ---- who runs ----


async def test_three_members_and_no_mention_is_no_run_and_two_mentions_are_two(store: Database) -> None:
    space = await store.write(space_of, "mia", A, B)
    await store.write(say, "mia", space.id, "good morning")
    assert await woken(store, A, B) == [0, 0]
    message = await store.write(say, "mia", space.id, "@ada and @bob, look", id="m1")
    assert await woken(store, A, B) == [1, 1]
    assert message.wakes == [A, B]
    again = await store.write(say, "mia", space.id, "@ada and @bob, look", id="m1")
    assert (again, await woken(store, A, B)) == (message, [1, 1])
    (run,) = await store.read(runs_of, "ada")
    assert (run.cause.kind, run.cause.message_id, run.active_space_id, run.space_id, run.owner_id, run.status) == (
        "mention",
        "m1",
        space.id,
        space.id,
        "mia",
        "queued",
    )


async def test_a_run_is_caused_by_its_message_and_one_deeper(store: Database) -> None:
    space = await store.write(space_of, "mia", A)
    await store.write(say, "mia", space.id, "hello")
    journal = await whole_journal(store)
    said = next(change for change in journal if change.collection == "space_messages")
    started = next(change for change in journal if change.collection == "runs")
    assert (started.cause, started.depth, said.depth) == (said.seq, 1, 0)
    assert isinstance(started.record, Run)
    assert started.record.cause.change_seq == said.seq


async def test_of_two_members_each_wakes_the_other_and_a_third_ends_that(store: Database) -> None:
    space = await store.write(space_of, "mia", A)
    await store.write(say, "mia", space.id, "hello")
    assert await woken(store, A) == [1]
    await store.write(say, A, space.id, "hello, mia")
    assert await woken(store, A) == [1]
    await store.write(commands.add_member, "mia", space.id, "tom")
    await store.write(say, "mia", space.id, "hello, both of you")
    assert await woken(store, A) == [1]
    await store.write(commands.remove_member, "tom", space.id, "tom")
    await store.write(say, "mia", space.id, "just us again")
    assert await woken(store, A) == [2]
    assert [run.cause.kind for run in await store.read(runs_of, "ada")] == ["direct", "direct"]


async def test_naming_oneself_does_nothing(store: Database) -> None:
    space = await store.write(space_of, "mia", A, B)
    message = await store.write(say, A, space.id, "I, @ada, will do it")
    assert (message.mentions, message.wakes) == ([A], [])
    assert await woken(store, A, B) == [0, 0]


async def test_naming_oneself_keeps_nothing_from_the_other_of_two(store: Database) -> None:
    space = await store.write(space_of, "mia", A)
    message = await store.write(say, "mia", space.id, "a note to @mia")
    assert (message.mentions, message.wakes) == (["mia"], [A])
    (run,) = await store.read(runs_of, "ada")
    assert run.cause.kind == "direct"
    assert (await store.write(say, A, space.id, "I, @ada, did it")).wakes == []


async def test_an_edit_and_what_is_told_wake_nobody(store: Database) -> None:
    space = await store.write(space_of, "mia", A)
    message = await store.write(say, "mia", space.id, "hello")
    await store.write(commands.edit, "mia", space.id, message.id, "hello @ada")
    await store.write(commands.tell, space.id, "something went wrong, @ada")
    assert await woken(store, A) == [1]


async def test_an_agent_that_is_gone_holds_up_nobody(store: Database) -> None:
    space = await store.write(space_of, "mia", A, B)

    async def disable(tx: Transaction) -> None:
        record = await tx.get(AgentRecord, "ada")
        assert record is not None
        await tx.update(record, enabled=False)

    await store.write(disable)
    message = await store.write(say, "mia", space.id, "@ada @bob")
    assert await woken(store, A, B) == [0, 1]
    diagnostic = await store.get(Diagnostic, f"unknown_agent:mention:{message.id}:ada")
    assert diagnostic is not None
    assert "no agent 'ada'" in diagnostic.message


async def test_a_post_that_is_refused_starts_nothing(store: Database) -> None:
    space = await store.write(space_of, "mia", A, B)

    async def post_and_fail(tx: Transaction) -> None:
        await say(tx, "mia", space.id, "@ada @bob")
        raise NotFound("for the test")

    with pytest.raises(NotFound):
        await store.write(post_and_fail)
    assert await woken(store, A, B) == [0, 0]
    assert (await store.write(say, "mia", space.id, "first")).pos == 1


async def test_the_same_message_sent_by_many_at_once_starts_one_run(store: Database) -> None:
    space = await store.write(space_of, "mia", A, B)
    sent = await asyncio.gather(*(store.write(say, "mia", space.id, "@ada, please", id="m1") for _ in range(20)))
    assert {message.pos for message in sent} == {1}
    assert await woken(store, A, B) == [1, 0]


# ---- chains ----


async def test_agents_that_wake_each_other_stop_at_the_depth_limit(store: Database) -> None:
    """What a worker would do: every run says something at the depth at which it was started."""
    space = await store.write(space_of, "mia", A, B, C)
    await store.write(say, "mia", space.id, "@ada, begin")
    answered: set[str] = set()
    speakers = {"ada": "@bob", "bob": "@ada"}
    for _ in range(2 * MAX_DEPTH):
        started = [run for agent in speakers for run in await store.read(runs_of, agent) if run.id not in answered]
        if not started:
            break
        (run,) = started
        answered.add(run.id)
        change = next(each for each in await whole_journal(store) if each.collection == "runs" and each.id == run.id)
        scope = Scope("main", run.entity_id, change.seq, change.depth)
        await store.write(say, run.entity_id, space.id, f"your turn, {speakers[run.agent]}", scope=scope)
    assert await woken(store, A, B) == [MAX_DEPTH // 2, MAX_DEPTH // 2]
    diagnostics = [change.record for change in await whole_journal(store) if change.collection == "diagnostics"]
    assert [each.kind for each in diagnostics if isinstance(each, Diagnostic)] == ["depth_limit"]


# ---- waits ----


async def wait_in(tx: Transaction, space_id: str, agent: str, *parties: str, run_id: str | None = None) -> tuple[Run, str]:
    """What send_message with `wait` and its worker write: a run at work asks, and waits for these."""
    run = await start_run(
        tx, Start(agent=agent.removeprefix("agent:"), owner_id="mia", space_id=space_id, active_space_id=space_id, id=run_id)
    )
    run = await tx.update(run, status="running", step=1)
    call = ToolCall(
        run_id=run.id, id="c1", owner_id="mia", space_id=space_id, opened_pos=1, step=1, tool_name="send_message", args={}
    )
    await tx.insert(msgspec.structs.replace(call, status="running"))
    message = await say(tx, agent, space_id, " ".join(f"@{party}" for party in parties) + " what do you think?")
    waiting = Waiting(
        kind="reply",
        parties=[Party(party, party, "agent") for party in parties],
        timeout_ms=300_000,
        space_id=space_id,
        message_id=message.id,
    )
    await waits.open_waits(tx, run, "c1", waiting)
    return run, message.id


async def test_a_reply_resolves_the_wait_and_starts_no_extra_run(store: Database) -> None:
    space = await store.write(space_of, "mia", A, B, C)
    run, asked = await store.write(wait_in, space.id, A, B, C)
    assert await woken(store, A, B, C) == [1, 1, 1]
    first = await store.write(say, B, space.id, "@ada, green")
    assert await woken(store, A, B, C) == [1, 1, 1]
    call = await store.get(ToolCall, run.id, "c1")
    assert call is not None
    assert call.status == "running"
    last = await store.write(say, C, space.id, "blue, @ada and @bob", reply_to=asked)
    assert await woken(store, A, B, C) == [1, 2, 1]
    call = await store.get(ToolCall, run.id, "c1")
    assert call is not None
    assert call.result["status"] == "resolved"
    assert [(each["text"], each["message_id"]) for each in call.result["replies"]] == [
        ("@ada, green", first.id),
        ("blue, @ada and @bob", last.id),
    ]
    await store.write(say, B, space.id, "@ada, one more thing")
    assert await woken(store, A, B, C) == [2, 2, 1]


async def test_words_in_another_space_answer_nothing(store: Database) -> None:
    space = await store.write(space_of, "mia", A, B)
    other = await store.write(space_of, "mia", A, B, "tom")
    run, _ = await store.write(wait_in, space.id, A, B)
    await store.write(say, B, other.id, "green")
    await store.write(commands.tell, space.id, "bob is at work", author=B, role="tool")
    wait = await store.get(Wait, run.id, "c1", B)
    assert wait is not None
    assert wait.status == "open"


# ---- a second message while the run is on ----


async def test_a_second_message_starts_its_own_run(store: Database) -> None:
    space = await store.write(space_of, "mia", A)
    await store.write(say, "mia", space.id, "one")
    await store.write(say, "mia", space.id, "two")
    assert await woken(store, A) == [2]


async def test_or_it_is_heard_by_the_run_that_is_on(store: Database) -> None:
    await store.write(add_agents, "ada", second_message="same_run")
    space = await store.write(space_of, "mia", A)
    await store.write(say, "mia", space.id, "one")
    second = await store.write(say, "mia", space.id, "two")
    assert (second.wakes, await woken(store, A)) == ([], [1])
    (run,) = await store.read(runs_of, "ada")
    heard = [change.record for change in await whole_journal(store) if change.collection == "run_messages"]
    assert [each.content for each in heard if isinstance(each, RunMessage) and each.run_id == run.id] == [
        f"{run.cause.message_id} mia: one\nsenderExpectsReply: true",
        f"[NEW] {second.id} mia: two",
    ]


@pytest.mark.parametrize("status", ["canceled", "failed"])
async def test_and_it_is_not_lost_when_that_run_fails_without_having_thought_about_it(store: Database, status: str) -> None:
    await store.write(add_agents, "ada", second_message="same_run")
    space = await store.write(space_of, "mia", A)
    await store.write(say, "mia", space.id, "one")
    (run,) = await store.read(runs_of, "ada")
    await store.write(say, "mia", space.id, "two")
    third = await store.write(say, "mia", space.id, "three")
    await store.write(end, run.id, status)
    first, second = await store.read(runs_of, "ada")
    assert (first.status, second.status, second.cause.message_id) == (status, "queued", third.id)


async def end(tx: Transaction, run_id: str, status: str) -> None:
    run = await tx.update(await locked_run(tx, run_id), status="running")
    await end_run(tx, run, status, error="for the test" if status == "failed" else None)  # type: ignore[arg-type]


# ---- subscriptions to what is said ----


async def subscribe(store: Database, agent: str) -> None:
    definition = Definition(name=agent, model="scripted:nobody", subscriptions=(on("user.message.v1"),))
    store.rules.start_with(RULE_KIND, start_for_change)
    await store.write(declare_rules, f"agent:{agent}", rules_of(f"agent:{agent}", [definition]))


async def test_an_agent_that_is_named_and_subscribes_has_one_run_for_a_message(store: Database) -> None:
    await subscribe(store, "ada")
    space = await store.write(space_of, "mia", "tom", A)
    await store.write(say, "mia", space.id, "@ada hello")
    await store.write(say, "mia", space.id, "to nobody")
    runs = await store.read(runs_of, "ada")
    assert [(run.cause.kind, run.active_space_id) for run in runs] == [("mention", space.id), ("subscription", space.id)]


async def test_what_is_said_in_a_space_wakes_no_subscriber_who_is_not_in_it(store: Database) -> None:
    await subscribe(store, "ada")
    await store.write(add_agents, "ada")
    space = await store.write(space_of, "mia", "tom")
    await store.write(say, "mia", space.id, "between us")
    assert await woken(store, A) == [0]
    await store.write(commands.add_member, "mia", space.id, A)
    await store.write(say, "mia", space.id, "now to all")
    assert await woken(store, A) == [1]
