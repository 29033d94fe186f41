"""`ask_user`: a question that an agent cannot answer itself.

In a task it is first put to the agent that gave the task: a run of that agent has the question and the conversation, and its
answer is the question's; once. Where it does not know (it asks the user in turn), where it fails, and where there is no such
agent, the question is posted to the person: in the space that both are in, or in the run's own. The asking run waits for the
reply all the while, so whoever answers first, there or in the inbox, has answered.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from stigmergy.kernel.timers import Timer, set_timer
from stigmergy.kernel.transaction import Transaction
from stigmergy.runs import log, waits
from stigmergy.runs import store as runs
from stigmergy.runs.commands import Start, start_run
from stigmergy.runs.model import ENDED, Cause, JsonObject, Run, Wait
from stigmergy.runs.tools import Acting, Builtin, Done, Outcome, Party, Refused, Waiting, builtin
from stigmergy.spaces.commands import Said, add_member, ensure_space, post
from stigmergy.spaces.model import Member, Roster, Space, SpaceMessage
from stigmergy.spaces.run_metadata import ANSWERS
from stigmergy.spaces.store import lock_space, roster_of

ASK = "space.ask"
TIMEOUT_MS = 300_000
# How much of what its giver was told stands beside a question: messages, characters of each.
TOLD = 5
LONGEST_TOLD = 4_000


class AskUser(msgspec.Struct, forbid_unknown_fields=True):
    question: Annotated[str, Meta(description="What you need to know, in a way that can be understood alone.", min_length=1)]


async def ask_user(tx: Transaction, acting: Acting, args: JsonObject) -> Outcome:
    run = acting.run
    if _question_of(run) is not None:
        return await _pass_on(tx, run)
    question: str = args["question"]
    space, person = await _where(tx, run)
    if run.parent_run_id is not None:
        parent = await runs.the_run(tx, run.parent_run_id)
        await _put_to(tx, acting, parent, question)
        message_id = None
    else:
        message = await _post(tx, run, space, person, question)
        space, message_id = message.space_id, message.id
    return Waiting(
        kind="reply",
        parties=[Party(person.id, person.name, person.type)],
        timeout_ms=TIMEOUT_MS,
        for_entity=person.id,
        space_id=space,
        message_id=message_id,
        question=question,
    )


async def _where(tx: Transaction, run: Run) -> tuple[str, Member]:
    """Where the person is asked, and who that is: who set the run off, if it was one; else the one to whom it belongs."""
    if run.active_space_id is not None and await tx.get(Space, run.active_space_id) is not None:
        roster = await roster_of(tx, run.active_space_id)
        trigger = await tx.get(SpaceMessage, run.cause.message_id or "")
        for entity_id in (trigger.author if trigger is not None else "", run.owner_id):
            member = roster.by_id.get(entity_id)
            if member is not None and member.type == "human" and run.entity_id in roster.by_id:
                return run.active_space_id, member
    return run.space_id, Member(run.owner_id, "human", run.owner_id)


async def _post(tx: Transaction, run: Run, space_id: str, person: Member, question: str) -> SpaceMessage:
    """The question in a space, where both are in it from now on at the latest; in a new one, if that was deleted meanwhile."""
    if await tx.get(Space, space_id) is None:
        space_id = tx.new_id()
        await ensure_space(tx, space_id, run.owner_id)
    _, roster = await lock_space(tx, space_id)
    for entity_id in (person.id, run.entity_id):
        if entity_id not in roster.by_id:
            await add_member(tx, roster.space.owner_id, space_id, entity_id)
    about = {"question": {"run_id": run.id, "for": person.id}}
    # no name in it is a mention: it is for the person alone
    return await post(tx, run.entity_id, space_id, Said(content=question, mentions=[person.id], metadata=about), run_id=run.id)


async def _put_to(tx: Transaction, acting: Acting, parent: Run, question: str) -> Run:
    """A run of the agent that gave the task, which has the question to answer."""
    heard = await tx.find(runs.MESSAGES_FROM, run_id=parent.id, after=0, upto=2**62, limit=4 * TOLD)
    told = "\n".join(each.content[:LONGEST_TOLD] for each in [each for each in heard if each.role == "user"][:TOLD])
    instruction = (
        f"{acting.run.agent}, to whom you gave a task, asks:\n{question}\n\n"
        + (f"This is what you had been told:\n{told}\n\n" if told else "")
        + "If what you know answers it, answer in a few words, and nothing else. If it does not, call ask_user: then the person"
        " is asked."
    )
    return await start_run(
        tx,
        Start(
            agent=parent.agent,
            instruction=instruction,
            owner_id=parent.owner_id,
            space_id=parent.space_id,
            active_space_id=parent.active_space_id,
            cause=Cause("task", message_id=parent.cause.message_id),
            cause_key=_cause_key(acting.run.id, acting.call.id),
            parent=acting.run,
            metadata={**parent.metadata, ANSWERS: [acting.run.id, acting.call.id]},
        ),
    )


async def _pass_on(tx: Transaction, run: Run) -> Outcome:
    """The agent that gave the task does not know either."""
    if not await _ask_person(tx, run):
        return Refused("that question has its answer already, or nobody waits for it any more; just end")
    return Done("the person was asked; there is nothing more for you to do")


async def ask_person(tx: Transaction, timer: Timer) -> None:
    """The timer's effect: who was to answer failed, so the person is asked."""
    run = await tx.get(Run, timer.id)
    if run is not None:
        await _ask_person(tx, run)


async def _ask_person(tx: Transaction, answering: Run) -> bool:
    """Post the question that a run was to answer. False when it is none any more."""
    question = _question_of(answering)
    if question is None:
        return False
    run_id, call_id = question
    asking = await tx.get(Run, run_id)
    wait = await _open_wait(tx, run_id, call_id)
    if asking is None or wait is None:
        return False
    roster: Roster | None = None
    if wait.space_id is not None and await tx.get(Space, wait.space_id) is not None:
        _, roster = await lock_space(tx, wait.space_id)
    await runs.lock_head(tx, run_id)
    wait = await _open_wait(tx, run_id, call_id)
    if wait is None or asking.status in ENDED:
        return False
    person = roster.by_id.get(wait.party) if roster is not None else None
    message = await _post(
        tx, asking, wait.space_id or asking.space_id, person or Member(wait.party, "human", wait.party_name), wait.question or ""
    )
    await tx.update(wait, message_id=message.id, space_id=message.space_id)
    return True


async def question_ended(tx: Transaction, run: Run) -> None:
    """A run is over that was to answer a question. The asking run, its parent, is locked by whoever ends it."""
    question = _question_of(run)
    if question is None:
        return
    run_id, call_id = question
    wait = await _open_wait(tx, run_id, call_id)
    asking = await tx.get(Run, run_id)
    if wait is None or asking is None or asking.status in ENDED or wait.message_id is not None:
        return
    if run.status == "completed":
        text = log.as_text(run.result)
        await waits.answer(tx, asking, wait, {"text": text, "from": run.entity_id, "run_id": run.id}, by=run.entity_id)
    else:
        await set_timer(tx, ASK, run.id, tx.now)


def _cause_key(run_id: str, call_id: str) -> str:
    return f"question:{run_id}:{call_id}"


def _question_of(run: Run) -> tuple[str, str] | None:
    """The run and the call whose question a run was started for. What metadata says alone is not believed: whoever takes up a
    task outside writes it too, and only a run that was started here has this cause."""
    match run.metadata.get(ANSWERS):
        case [str(run_id), str(call_id)] if run.cause_key == _cause_key(run_id, call_id):
            return run_id, call_id
        case _:
            return None


async def _open_wait(tx: Transaction, run_id: str, call_id: str) -> Wait | None:
    found = await tx.find(runs.WAITS_OF_CALL, run_id=run_id, call_id=call_id)
    return next((wait for wait in found if wait.status == "open" and wait.kind == "reply"), None)


TOOLS: tuple[Builtin, ...] = (
    builtin("ask_user", "Ask what only somebody else can know, and wait for the answer.", AskUser, ask_user),
)
