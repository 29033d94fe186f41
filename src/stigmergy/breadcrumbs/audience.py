"""Who may see a breadcrumb: everybody, the members of its space, or its owner alone; and nobody once it has expired.

A reader's spaces are looked up where they matter, in the snapshot in which they matter, so that who joins or leaves a space sees
its breadcrumbs, or sees them no more, from that moment on. The part that knows the members says here how to ask for them.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec

from stigmergy.breadcrumbs.model import Breadcrumb, is_live
from stigmergy.kernel.transaction import Snapshot

SpacesOf = Callable[[Snapshot, str], Awaitable[frozenset[str]]]
_asked: list[SpacesOf] = []


class Reader(NamedTuple):
    """Who asks: their entity, the spaces they are a member of (None: to be looked up), whether they see everything of their
    tenant."""

    entity: str
    spaces: frozenset[str] | None = None
    everything: bool = False


def ask_for_spaces(spaces_of: SpacesOf) -> None:
    """This is how the spaces of an entity are found."""
    _asked[:] = [spaces_of]


async def with_spaces(tx: Snapshot, reader: Reader) -> Reader:
    """The reader with the spaces of now, unless they were given or do not matter."""
    if reader.everything or reader.spaces is not None:
        return reader
    return reader._replace(spaces=await _asked[0](tx, reader.entity) if _asked else frozenset())


def may_see(reader: Reader, crumb: Breadcrumb, now: int) -> bool:
    """As far as the spaces that the reader comes with say."""
    if not is_live(crumb, now):
        return False
    if reader.everything or crumb.audience == "public" or crumb.owner_id == reader.entity:
        return True
    return crumb.audience == "team" and reader.spaces is not None and crumb.space_id in reader.spaces


def could_see(reader: Reader, crumb: Breadcrumb) -> bool:
    """The same, whether it has expired since or not."""
    return may_see(reader, crumb if crumb.expires_at is None else msgspec.structs.replace(crumb, expires_at=None), 0)


async def sees(tx: Snapshot, reader: Reader, crumb: Breadcrumb) -> bool:
    """The same as `may_see`; the spaces are looked up when it is for them to say."""
    if crumb.audience == "team":
        reader = await with_spaces(tx, reader)
    return may_see(reader, crumb, tx.now)


def is_for_a_team(*bodies: object) -> bool:
    """Whether any of these is a breadcrumb of which only the spaces of a reader tell whether they may see it."""
    return any(isinstance(body, Breadcrumb) and body.audience == "team" for body in bodies)
