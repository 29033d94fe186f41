"""What one person sees and does in one space: `stigmergy chat` without its terminal."""

import asyncio
from contextlib import suppress
from typing import Any

import httpx
import msgspec
from rich.console import Console
from rich.text import Text

from stigmergy.cli.chat_view import plain, shown_event, shown_message, shown_wait
from stigmergy.client import Stigmergy
from stigmergy.client.calls import path_of
from stigmergy.client.problems import problem
from stigmergy.errors import StigmergyError
from stigmergy.spaces.following import Event
from stigmergy.spaces.model import Space
from stigmergy.spaces.queries import MemberView, Message

SHOWN_AT_FIRST = 20
HELP = """\
  @NAME …            has somebody act; in a space of two the other one acts by itself
  /who               who is here, and how far they have read
  /approve, /reject [why], /continue, /retry, /cancel    answer the last question of an agent; /approve 2 the second one
  /answer RESULT     answers a tool that waits for a client: JSON, or a text
  /edit TEXT         says your last message differently;  /unsay takes it back
  /help, /quit       this list; the end (as Ctrl-D)"""
DECISIONS = ("approve", "reject", "continue", "retry", "cancel")
COMMANDS = ("/who", *(f"/{word}" for word in DECISIONS), "/answer", "/edit", "/unsay", "/help", "/quit")


class Quit(Exception):
    """Enough was said."""


class Talk:
    """One person in one space: what was shown, who is at work, what waits for an answer."""

    def __init__(self, stigmergy: Stigmergy, inbox: httpx.AsyncClient, space: Space, me: str) -> None:
        self.space = space
        self.me = me
        self.names: dict[str, str] = {}
        self.at_work: dict[str, str] = {}
        self.writing: set[str] = set()
        self.thinking = ""
        self.out = Console(soft_wrap=True, highlight=False)
        self._spaces = stigmergy.spaces
        self._inbox = inbox
        self._last = 0
        self._mine: Message | None = None
        self._waits: dict[int, Event] = {}
        self._asked: set[str | None] = set()
        self._numbers = 0
        self.heard = asyncio.get_running_loop().time()

    @classmethod
    async def begin(cls, stigmergy: Stigmergy, inbox: httpx.AsyncClient, space: Space) -> "Talk":
        members = await stigmergy.spaces.members(space.id)
        talk = cls(stigmergy, inbox, space, (await stigmergy.spaces.entity()).id)
        talk._know(members)
        return talk

    def _know(self, members: list[MemberView]) -> None:
        self.names |= {member.entity_id: member.name for member in members}

    def say(self, text: str | Text, style: str = "") -> None:
        self.out.print(text, style=style, markup=False)

    async def greet(self) -> None:
        self.say(Text(plain(self.space.name or self.space.id), style="bold").append(f"  {plain(self.space.about)}", style="dim"))
        others = ", ".join(plain(name) for id, name in self.names.items() if id != self.me) or "nobody else yet"
        self.say(f"You are {plain(self.names.get(self.me, self.me))}; here are {others}. /help says what you can do.", "dim")
        await self._catch_up(await self._spaces.messages(self.space.id, limit=SHOWN_AT_FIRST))

    async def _catch_up(self, messages: list[Message]) -> None:
        for message in messages:
            if message.seq > self._last:
                self._last = message.seq
                self._mine = message if message.author == self.me else self._mine
                self.say(shown_message(message, self.me))
        if messages:
            await self._spaces.processed(self.space.id, messages[-1].id)

    # ---- what happens ----

    async def listen(self) -> None:
        """Until one is let go."""
        behind = asyncio.create_task(self._read_what_was_missed())
        try:
            async for event in self._spaces.follow(self.space.id, text=True):
                self.heard = asyncio.get_running_loop().time()
                await self._take(event)
        finally:
            behind.cancel()
        raise Quit("you are not in this space any more")

    async def _read_what_was_missed(self) -> None:
        """What was said between the first reading and the first event."""
        await asyncio.sleep(0.5)
        await self._catch_up(await self._spaces.messages(self.space.id, after=self._last))

    async def _take(self, event: Event) -> None:
        if event.kind == "message.created" and event.message is not None:
            self.writing.discard(event.message.author)
            if event.message.seq > self._last + 1:
                await self._catch_up(await self._spaces.messages(self.space.id, after=self._last))
            elif event.message.seq > self._last:
                await self._catch_up([event.message])
        elif event.kind in ("wait.opened", "wait.closed"):
            self._note_wait(event)
        elif event.kind == "typing":
            (self.writing.add if event.status == "active" else self.writing.discard)(event.entity_id or "")
        elif event.kind in ("agent.active", "agent.inactive", "text", "text.withdrawn"):
            self._note_work(event)
        else:
            if event.kind == "member.joined":
                self._know(await self._spaces.members(self.space.id))
            if (line := shown_event(event, self.names, self.me)) is not None:
                self.say(line)

    def _note_work(self, event: Event) -> None:
        run = event.run_id or ""
        if event.kind == "agent.active":
            self.at_work[run] = event.entity_id or ""
        elif event.kind == "agent.inactive":
            self.at_work.pop(run, None)
            self.thinking = ""
        elif event.kind == "text":
            self.thinking = (self.thinking if event.offset else "") + (event.text or "")
        else:
            self.thinking = ""

    def _note_wait(self, event: Event) -> None:
        if event.wait_kind == "reply":
            (self._asked.discard if event.kind == "wait.closed" else self._asked.add)(event.wait_id)
        known = next((number for number, each in self._waits.items() if each.wait_id == event.wait_id), None)
        if event.kind == "wait.closed":
            self._waits.pop(known or 0, None)
        elif known is None:
            line = shown_wait(self._numbers + 1, event)
            if line is not None:
                self._numbers += 1
                self._waits[self._numbers] = event
                self.say(line)

    def status(self) -> str:
        """Who is doing what, in one line."""
        parts = [f"{self.names.get(id, id)} is at work" for id in dict.fromkeys(self.at_work.values())]
        parts += [f"{self.names.get(id, id)} is writing" for id in sorted(self.writing)]
        if self.thinking and self.at_work:
            parts.append(f"…{' '.join(self.thinking.split())[-60:]}")
        if self._waits:
            parts.append("waiting for you: " + ", ".join(f"?{number}" for number in self._waits))
        return plain("  ·  ".join(parts))

    # ---- what one does ----

    async def do(self, line: str) -> None:
        """A line that was written: a command, or something to say. What is refused is told."""
        word, _, rest = line.strip().partition(" ")
        if not word:
            return
        try:
            if word in ("/quit", "/exit"):
                raise Quit
            if word.startswith("/"):
                await self._command(word[1:], rest.strip())
            else:
                was_asked = bool(self._asked)
                self._mine = await self._spaces.post(self.space.id, line.strip())
                if not was_asked:
                    self._hint(self._mine)
        except StigmergyError as error:
            self.say(f"      {plain(str(error))}", "red")

    def _hint(self, said: Message) -> None:
        agents = [self.names[id] for id in self.names if id.startswith("agent:")]
        if not said.mentions and agents and len(self.names) > 2:
            self.say(f"      Nobody was named. To have somebody act, write @{plain(agents[0])} …", "dim")

    async def _command(self, word: str, rest: str) -> None:
        if word == "who":
            for member in await self._spaces.members(self.space.id):
                self.say(
                    f"      {plain(member.name)} ({member.type}), has read {member.last_processed_seq} of {self._last}", "dim"
                )
        elif word in DECISIONS:
            number, rest = _number(rest)
            await self._answer(number, "approval", {"decision": word} | ({"reason": rest} if rest else {}))
        elif word == "answer":
            number, rest = _number(rest)
            await self._answer(number, "tool", {"result": _json_or_text(rest)})
        elif word in ("edit", "unsay") and self._mine is not None:
            space, mine = self.space.id, self._mine.id
            await (self._spaces.edit(space, mine, rest) if word == "edit" else self._spaces.unsay(space, mine))
        else:
            self.say(HELP, "dim")

    async def _answer(self, number: int | None, kind: str, body: dict[str, Any]) -> None:
        fitting = [each for each, event in self._waits.items() if event.wait_kind == kind and number in (None, each)]
        if not fitting:
            return self.say("      Nothing waits for such an answer.", "dim")
        wait = self._waits[fitting[-1]]
        answer = await self._inbox.post(path_of("/v1/waits", wait.wait_id or "", "answer"), json=body)
        if not answer.is_success:
            raise problem(answer)
        return None

    async def type(self) -> None:
        with suppress(StigmergyError):
            await self._spaces.typing(self.space.id)


def _number(rest: str) -> tuple[int | None, str]:
    first, _, more = rest.partition(" ")
    return (int(first), more.strip()) if first.isdecimal() else (None, rest)


def _json_or_text(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
