"""Commands that talk to a running server: where it is, and with which token."""

from collections.abc import AsyncIterator
from typing import Annotated

from cyclopts import Parameter

from stigmergy.client import Stigmergy
from stigmergy.errors import Invalid, NotFound
from stigmergy.settings import load
from stigmergy.spaces.model import Space

Url = Annotated[
    str | None, Parameter(env_var="STIGMERGY_URL", help="The server; when it is not given, the one of the settings here.")
]
Token = Annotated[
    str | None, Parameter(env_var="STIGMERGY_TOKEN", help="A token of `stigmergy token create`, where the server asks for one.")
]
PAGE = 500


def server(url: str | None, token: str | None) -> Stigmergy:
    if url is None:
        settings = load()
        url = f"http://{settings.host}:{settings.port}"
    return Stigmergy(url, token)


async def find_space(stigmergy: Stigmergy, named: str) -> Space:
    """One of the caller's spaces, by its id or by its name."""
    try:
        return await stigmergy.spaces.get(named)
    except NotFound:
        found = [space async for space in all_spaces(stigmergy) if space.name.casefold() == named.casefold()]
    if not found:
        raise NotFound(f"you are in no space {named!r}; `stigmergy spaces ls` shows yours")
    if len(found) > 1:
        choices = ", ".join(space.id for space in found)
        raise Invalid(f"more than one of your spaces is called {named!r}; name one by its id: {choices}", "space")
    return found[0]


async def all_spaces(stigmergy: Stigmergy) -> AsyncIterator[Space]:
    after = ""
    while page := await stigmergy.spaces.find(after=after, limit=PAGE):
        for space in page:
            yield space
        after = page[-1].id
