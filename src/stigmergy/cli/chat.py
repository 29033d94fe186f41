"""`stigmergy chat SPACE`: a conversation in the terminal, live. Over HTTP, beside a running server.

On a terminal there is a line to write in, below what is said; elsewhere each line of standard input is a message, and the
command ends when the agents have nothing more to say.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Coroutine
from typing import Annotated, Any

import httpx
from cyclopts import Parameter
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.patch_stdout import patch_stdout
from rich.console import Console

from stigmergy.cli.chat_talk import COMMANDS, Quit, Talk
from stigmergy.cli.remote import Token, Url, find_space, server
from stigmergy.client.calls import server_headers

# How long nothing must happen, once standard input has ended, before a conversation counts as over.
QUIET_SECONDS = 1.0
TYPING_SECONDS = 4.0


def chat(
    space: Annotated[str, Parameter(help="A space of yours, by its id or its name.")],
    *,
    url: Url = None,
    token: Token = None,
    wait: Annotated[float, Parameter(help="How long to wait for agents once standard input has ended, in seconds.")] = 60.0,
) -> None:
    async def run() -> None:
        async with server(url, token) as stigmergy:
            found = await find_space(stigmergy, space)
            headers = server_headers(token)
            async with httpx.AsyncClient(base_url=stigmergy.url, headers=headers) as inbox:
                talk = await Talk.begin(stigmergy, inbox, found)
                await (_on_terminal(talk) if sys.stdin.isatty() else _from_lines(talk, wait))

    asyncio.run(run())


# ---- on a terminal ----


async def _on_terminal(talk: Talk) -> None:
    session: PromptSession[str] = PromptSession(erase_when_done=True)
    names = [f"@{name}" for id, name in talk.names.items() if id != talk.me]
    completer = WordCompleter([*names, *COMMANDS], sentence=False, WORD=True)
    with patch_stdout(raw=True):
        talk.out = Console(highlight=False, force_terminal=True)
        await talk.greet()
        typing = _Typing(talk)
        session.default_buffer.on_text_changed += typing.changed

        async def write() -> None:
            while True:
                line = await session.prompt_async(
                    FormattedText([("bold", "› ")]),
                    bottom_toolbar=lambda: talk.status() or None,
                    refresh_interval=0.3,
                    completer=completer,
                    complete_while_typing=True,
                )
                await talk.do(line)

        await _until_one_ends(talk, write(), talk.listen())


class _Typing:
    """Tells the others that one is writing, now and then while one does."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._told = -TYPING_SECONDS
        self._tasks: set[asyncio.Task[None]] = set()

    def changed(self, buffer: Any) -> None:
        now = asyncio.get_running_loop().time()
        if buffer.text and not buffer.text.startswith("/") and now - self._told > TYPING_SECONDS:
            self._told = now
            task = asyncio.create_task(self._talk.type())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


async def _until_one_ends(talk: Talk, *doing: Coroutine[Any, Any, None]) -> None:
    tasks = [asyncio.ensure_future(each) for each in doing]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    except (EOFError, KeyboardInterrupt):
        pass
    except Quit as end:
        if str(end):
            talk.say(str(end), "dim")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# ---- from a file or a pipe ----


async def _from_lines(talk: Talk, patience: float) -> None:
    now = asyncio.get_running_loop().time
    await talk.greet()

    async def write() -> None:
        async for line in _lines():
            talk.heard = now()
            await talk.do(line)
        end = now() + patience
        while now() < end and (talk.at_work or now() - talk.heard < QUIET_SECONDS):  # noqa: ASYNC110  # silence has no event
            await asyncio.sleep(0.1)

    await _until_one_ends(talk, write(), talk.listen())


async def _lines() -> AsyncIterator[str]:
    while line := await asyncio.to_thread(sys.stdin.readline):
        yield line
