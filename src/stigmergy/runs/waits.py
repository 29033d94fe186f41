"""Waits: what a run hangs on, as rows, one for each party. The same for replies, clients' answers, approvals and children.

A wait is written with what it waits on, and answered in the transaction that writes the answer. Whoever opens or answers one
has the row locked that it hangs on (the space of a reply, then the run), so that of a wait and its answer at the same moment
one sees the other. A durable timer ends it. A call may wait more than once: for somebody's approval, then for what it asks.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from stigmergy.errors import Conflict, NotFound
from stigmergy.kernel.faults import point
from stigmergy.kernel.timers import Timer, set_timer
from stigmergy.kernel.transaction import Transaction
from stigmergy.runs import log, store
from stigmergy.runs.model import JsonObject, Run, ToolCall, Wait, WaitStatus
from stigmergy.runs.settling import WAIT, child_result, end_timer, proceed, resume, settle_call, timer_id
from stigmergy.runs.texts import sound
from stigmergy.runs.tools import Waiting


class NotWaiting(Conflict):
    """Nobody waits for this answer any more."""

    code = "not_waiting"


def pause_of(step: int) -> str:
    """What a pause of a whole step waits under, in the place of a call."""
    return f"step:{step}"


def before(step: int) -> str:
    """What a question about a step that was not yet thought waits under."""
    return f"before:{step}"


def pauses_of(step: int) -> tuple[str, str]:
    """What a run that has done so many steps may be paused under."""
    return pause_of(step), before(step + 1)


async def open_waits(tx: Transaction, run: Run, call_id: str, waiting: Waiting) -> list[Wait]:
    """A row for each party, and the timer that ends them."""
    deadline = tx.now + waiting.timeout_ms
    await set_timer(tx, WAIT, timer_id(run.id, call_id), deadline)
    point("wait.half")
    return [
        await tx.insert(
            Wait(
                run_id=run.id,
                call_id=call_id,
                party=party.key,
                id=tx.new_id(),
                kind=waiting.kind,
                party_name=party.name,
                party_type=party.type,
                for_entity=waiting.for_entity or (party.key if waiting.kind == "reply" else None),
                space_id=waiting.space_id,
                message_id=waiting.message_id,
                question=None if waiting.question is None else sound(waiting.question),
                details=waiting.details,
                deadline=deadline,
            )
        )
        for party in waiting.parties
    ]


async def answer_reply(
    tx: Transaction, *, space_id: str, entity_id: str, entity_name: str, text: str, message_id: str
) -> list[str]:
    """Somebody spoke in a space, whose row the caller has locked: every wait there for them has its reply. Gives the runs
    that had waited."""
    found = await tx.find(store.REPLIES_OF_PARTY, party=entity_id, space_id=space_id)
    reply = {"entity_name": entity_name, "text": text, "message_id": message_id}
    answered: list[str] = []
    for wait in found:  # in the order in which runs are locked
        run = await store.locked_run(tx, wait.run_id)
        still = await tx.get(Wait, wait.run_id, wait.call_id, wait.party)
        if still is not None and still.status == "open":
            await answer(tx, run, still, reply, by=entity_id)
            answered.append(run.id)
    return answered


async def answer_child(tx: Transaction, parent: Run, child: Run, status: str, result: Any, error: str | None) -> bool:
    """A run ended whose parent may wait for it. Both are locked. Whether it did wait."""
    found = await tx.find(store.CHILD_OF_PARTY, party=child.id)
    for wait in found:
        await answer(tx, parent, wait, child_result(status, child.task_id, child.id, result, error), by=child.entity_id)
    return bool(found)


async def answer(tx: Transaction, run: Run, wait: Wait, given: JsonObject, *, by: str) -> Run:
    """This party has answered. When it was the last one, the call is settled, and with its step's last call the run goes on."""
    await tx.update(wait, status="answered", answer=await _brief(tx, given), answered_by=by, answered_at=tx.now)
    point("answer.half")
    waits = together(wait, await tx.find(store.WAITS_OF_CALL, run_id=run.id, call_id=wait.call_id))
    if any(each.status == "open" for each in waits):
        return run
    await end_timer(tx, run.id, wait.call_id)
    return await _resolve(tx, run, wait.call_id, waits, given)


async def _brief(tx: Transaction, given: JsonObject) -> JsonObject:
    """An answer as its wait keeps it. A large result is in the call; both refer to it."""
    if given.get("result") is None:
        return given
    whole = await log.kept(tx, log.as_text(given["result"]))
    return given if whole.reference is None else {**given, "result": whole.reference}


def together(wait: Wait, waits: Sequence[Wait]) -> list[Wait]:
    """Those of a call's waits that were opened with this one: an approval is of one person, and of another kind than the rest."""
    return [each for each in waits if each.id == wait.id or (each.kind == wait.kind != "approval")]


async def expire(tx: Transaction, timer: Timer) -> None:
    """The time is over: who has not answered by now is not waited for any longer."""
    run_id, _, call_id = timer.id.partition("/")
    run = await store.locked_run(tx, run_id)
    waits = await tx.find(store.WAITS_OF_CALL, run_id=run_id, call_id=call_id)
    missing = [wait for wait in waits if wait.status == "open"]
    if not missing:
        return
    for wait in missing:
        await tx.update(wait, status="expired")
    point("expiry.half")
    now = await tx.find(store.WAITS_OF_CALL, run_id=run_id, call_id=call_id)
    await _resolve(tx, run, call_id, together(missing[0], now))


async def cancel_waits(tx: Transaction, run: Run, status: WaitStatus = "canceled") -> None:
    """Nobody is waited for any more, since the run ends."""
    for wait in await tx.find(store.WAITS_OF_RUN, run_id=run.id):
        await tx.update(wait, status=status)
        await end_timer(tx, run.id, wait.call_id)


async def _resolve(tx: Transaction, run: Run, call_id: str, waits: Sequence[Wait], given: JsonObject | None = None) -> Run:
    kind = waits[0].kind
    if kind == "approval":  # the worker reads the decision, and does what it says
        return await resume(tx, run)
    call = await tx.get(ToolCall, run.id, call_id)
    if call is None or call.settled_pos is not None:
        return run
    if kind == "reply":
        await settle_call(tx, run, call, "success", result=replies(waits), duration_ms=tx.now - waits[0].created_at)
    else:
        await _settle_one(tx, run, call, waits[0], given or {})
    return await proceed(tx, run, call.step)


async def _settle_one(tx: Transaction, run: Run, call: ToolCall, wait: Wait, given: JsonObject) -> None:
    """A client's answer or a child's end: it is the call's result as it is."""
    took = tx.now - wait.created_at
    if wait.status == "expired":
        late = f"{wait.party_name} did not answer within {(wait.deadline - wait.created_at) / 1000:g} s"
        await settle_call(tx, run, call, "failed", error=late, duration_ms=took)
    elif wait.kind == "tool" and (error := given.get("error")) is not None:
        await settle_call(tx, run, call, "failed", error=str(error), duration_ms=took)
    else:
        result = given.get("result") if wait.kind == "tool" else given
        await settle_call(tx, run, call, "success", result=result, duration_ms=took)


def replies(waits: Sequence[Wait]) -> JsonObject:
    """What an agent reads of a wait for replies: what came, who did not answer, and whether that was all."""
    came = sorted((wait for wait in waits if wait.status == "answered"), key=lambda wait: (wait.answered_at, wait.party))
    missing = [wait.party_name for wait in waits if wait.status != "answered"]
    status = "resolved" if not missing else "partial_timeout" if came else "timeout"
    told: JsonObject = {
        "status": status,
        "replies": [{"from": _speaker(wait), "entity_id": wait.answered_by, **_said(wait)} for wait in came],
    }
    return told | ({"missing": missing} if missing else {})


def _speaker(wait: Wait) -> str:
    """Who answered: whoever was asked, unless an agent did in their place."""
    return (wait.answer or {}).get("from") or wait.party_name


def _said(wait: Wait) -> JsonObject:
    given = wait.answer or {}
    return {"text": given.get("text"), "message_id": given.get("message_id")}


# ---- answers from outside: by a client, by a person ----


async def answer_tool(tx: Transaction, run_id: str, call_id: str, *, result: Any = None, error: str | None = None) -> Run:
    """A client gives the result of its tool. Unknown calls are not found; one that does not wait (any more) is a conflict."""
    run = await store.locked_run(tx, run_id)
    call = await tx.get(ToolCall, run_id, call_id)
    if call is None:
        raise NotFound(f"run {run_id} has no tool call {call_id}")
    waits = await tx.find(store.WAITS_OF_CALL, run_id=run_id, call_id=call_id)
    waiting = next((wait for wait in waits if wait.status == "open" and wait.kind == "tool"), None)
    if waiting is None:
        raise NotWaiting(f"the tool call {call_id} is {call.status} and waits for no result; nothing was written")
    return await answer(tx, run, waiting, {"result": result} if error is None else {"error": error}, by=tx.actor)


async def answer_wait(tx: Transaction, wait_id: str, given: JsonObject) -> Run:
    """Answer an approval, a client's tool or a question by the id of the wait, as the inbox shows it."""
    found = await tx.find(store.WAIT_BY_ID, id=wait_id)
    if not found:
        raise NotFound(f"nothing waits under {wait_id}")
    run = await store.locked_run(tx, found[0].run_id)
    wait = (await tx.find(store.WAIT_BY_ID, id=wait_id))[0]
    if wait.status != "open":
        raise NotWaiting(f"this was {wait.status} already; nothing was written")
    return await answer(tx, run, wait, given, by=tx.actor)


def wait_state(waits: Sequence[Wait]) -> JsonObject | None:
    """The open wait of a run, in the form that other programs know, with our `kind`."""
    still_open = [wait for wait in waits if wait.status == "open"]
    if not still_open:
        return None
    first = still_open[0]
    same = together(first, [wait for wait in waits if wait.call_id == first.call_id])
    return {
        "kind": first.kind,
        "spaceId": first.space_id,
        "messageId": first.message_id,
        "toolCallId": None if ":" in first.call_id else first.call_id,  # a pause is about no call
        "waitingFor": [
            {
                "entityId": wait.for_entity if wait.kind == "approval" else wait.party,
                "entityName": wait.party_name,
                "entityType": wait.party_type,
                "responded": wait.status == "answered",
            }
            for wait in same
        ],
        "startedAt": _iso(first.created_at),
        "timeout": first.deadline - first.created_at,
        "replies": [
            {
                "entityId": wait.answered_by,
                "entityName": _speaker(wait),
                "text": (wait.answer or {}).get("text"),
                "messageId": (wait.answer or {}).get("message_id"),
                "timestamp": _iso(wait.answered_at or wait.updated_at),
            }
            for wait in same
            if wait.status == "answered"
        ],
    }


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
