"""Who may see a run, and who has a say in it. What a program itself does with `app.runs` is not asked for these.

- A run is *seen* by whoever it belongs to, by the members of the space that it is in, and by operators. For everybody else there
  is no such run.
- Its log (what it was told, thought, called and was answered) is *read*, and it is spoken to, answered for and stopped, by
  whoever it belongs to and by operators.
- What waits is *answered* by whoever it is for, and by operators. Whoever the run belongs to sees it too.
"""

from typing import NamedTuple

from stigmergy.access.model import Claims, Forbidden
from stigmergy.breadcrumbs.audience import Reader, with_spaces
from stigmergy.errors import NotFound
from stigmergy.kernel.transaction import Snapshot
from stigmergy.runs import store
from stigmergy.runs.model import Run, Wait


class Seen(NamedTuple):
    """A run, and whether it is this reader's to read in full and to steer."""

    run: Run
    is_own: bool


async def reader_of(tx: Snapshot, claims: Claims) -> Reader:
    """Who asks, with the spaces they are in."""
    return await with_spaces(tx, Reader(claims.entity, everything="operate" in claims.grants))


async def seen_run(tx: Snapshot, claims: Claims, id: str) -> Seen:
    reader = await reader_of(tx, claims)
    run = await store.the_run(tx, id)
    own = reader.everything or run.owner_id == reader.entity
    if not own and run.space_id not in (reader.spaces or ()):
        raise NotFound(f"no run {id}")
    return Seen(run, own)


async def own_run(tx: Snapshot, claims: Claims, id: str) -> Run:
    run, is_own = await seen_run(tx, claims, id)
    if not is_own:
        raise Forbidden(f"run {id} is {run.owner_id}'s to read in full, to speak to and to stop, or an operator's")
    return run


async def check_may_start_in(tx: Snapshot, claims: Claims, space_id: str | None) -> None:
    """Only members of a space have something done in it."""
    reader = await reader_of(tx, claims)
    if space_id is not None and not reader.everything and space_id not in (reader.spaces or ()):
        raise NotFound(f"no space {space_id}")


async def seen_wait(tx: Snapshot, claims: Claims, wait_id: str) -> Wait:
    """What waits or waited, for whom it is and for whoever the run belongs to."""
    found = await tx.find(store.WAIT_BY_ID, id=wait_id)
    if found and not _is_for(found[0], claims):
        run = await store.the_run(tx, found[0].run_id)
        found = found if run.owner_id == claims.entity else []
    if not found:
        raise NotFound(f"nothing waits under {wait_id}")
    return found[0]


async def answerable(tx: Snapshot, claims: Claims, wait_id: str) -> Wait:
    """What waits under this id, for somebody who may answer it."""
    wait = await seen_wait(tx, claims, wait_id)
    if not _is_for(wait, claims):
        raise Forbidden(f"this waits for {wait.for_entity or wait.party_name}; they answer it, or an operator does")
    return wait


async def check_may_answer_call(tx: Snapshot, claims: Claims, run_id: str, call_id: str) -> None:
    """A client's tool is answered for whoever it waits for."""
    waits = await tx.find(store.WAITS_OF_CALL, run_id=run_id, call_id=call_id)
    if not any(_is_for(wait, claims) for wait in waits):
        await own_run(tx, claims, run_id)


def _is_for(wait: Wait, claims: Claims) -> bool:
    return claims.entity in (wait.for_entity, wait.party) or "operate" in claims.grants
