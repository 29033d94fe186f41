"""One run in one worker's hands, from its claim until it waits or ends.

A turn looks at the rows and does the next thing they ask for: make the calls that are open, let go of the run to wait, end it,
or think and write the step. After any of these the rows tell any other worker how to go on.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import msgspec

from stigmergy.agents.models.port import Asked, ModelFailed, Reply
from stigmergy.agents.tokens import count_tokens
from stigmergy.engine import showing
from stigmergy.engine.answers import answer_of, checked_answer, given_answer
from stigmergy.engine.approvals import about_prompt, about_reply, asks_first, decide, doubts, told_again
from stigmergy.engine.assembling import RequiredMissing
from stigmergy.engine.hooks import AskFirst, Did, HookFailed, Refuse, through
from stigmergy.engine.live import Live, signature
from stigmergy.engine.notes import notes_for, over_limit
from stigmergy.engine.performing import Performer, recorded
from stigmergy.engine.preparing import prepare
from stigmergy.engine.prompt import Frame, Prompt, compose
from stigmergy.engine.runtime import Runtime
from stigmergy.engine.spans import ended_as, told_of
from stigmergy.engine.streaming import Stream, withdraw_all
from stigmergy.engine.thinking import checked, think
from stigmergy.engine.toolbox import LONGEST_NAME, clipped_arguments
from stigmergy.errors import Invalid, LeaseLost, StigmergyError, StoreError, VersionConflict
from stigmergy.kernel.faults import point
from stigmergy.kernel.leases import Claim
from stigmergy.kernel.transaction import Scope
from stigmergy.runs import steps
from stigmergy.runs.model import ENDED, Run, Usage, Wait
from stigmergy.runs.steps import Ending, NewCall, NewThought, Step
from stigmergy.runs.tools import Waiting
from stigmergy.runs.waits import before

T = TypeVar("T")
log = logging.getLogger(__name__)

# How long a run waits before it looks again for what it needs to begin.
MISSING_MS = 1_000


class Driver:
    def __init__(self, runtime: Runtime, worker: str, claim: Claim) -> None:
        self._runtime = runtime
        self._worker = worker
        self._claim = claim
        self._scope = Scope(claim.tenant)
        self._mine: set[str] = set()
        self._kept: set[str] = set()
        self.draining = False

    async def drive(self) -> None:
        """Go on with the run as far as it goes."""
        try:
            loaded = await self._write(steps.begin)
            if loaded is None:
                return
            point("run.begun")
            run = loaded.run
            self._scope = Scope(self._claim.tenant, run.entity_id, run.cause.change_seq, run.depth)
            if run.attempts > 1:
                withdraw_all(self._runtime.database.bus, self._claim.tenant, run.id)
            with self._runtime.spans.run(run) as span:
                ended_as(span, await self._take_up(loaded))
        except LeaseLost:
            log.info("run %s is not this worker's any more", self._claim.id)

    async def _take_up(self, loaded: steps.Loaded) -> Run:
        """See the run through as far as it goes. Gives it as it was last seen."""
        self._seen = loaded.run
        await self._go_on(loaded)
        return self._seen

    async def _go_on(self, loaded: steps.Loaded) -> None:
        try:
            await self._prepare(loaded)
            while not await self._turn():
                pass
        except (LeaseLost, StoreError):
            raise
        except RequiredMissing as error:
            if loaded.definition.on_missing == "fail":
                await self._fail(f"{error.code}: {error}", loaded)
            else:
                await self._write(steps.give_back, after_ms=MISSING_MS)
        except StigmergyError as error:
            await self._fail(f"{error.code}: {error}", loaded)
        except Exception as error:
            log.exception("run %s failed in the engine", self._claim.id)
            await self._fail(f"internal: {type(error).__name__}: {error}", loaded)

    async def _write(self, unit: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
        """Write as the worker that holds the run."""
        return await self._runtime.database.write(unit, self._worker, self._claim, *args, scope=self._scope, **kwargs)

    async def _prepare(self, loaded: steps.Loaded) -> None:
        ready = await prepare(self._runtime, loaded, self._worker, self._claim, self._scope)
        self._live = Live(msgspec.structs.replace(loaded, run=ready.run), ready.bodies)
        self._box = ready.box
        self._frame = Frame.of(ready.blocks, ready.box.shown())
        self._model = ready.model
        self._hooks = self._runtime.code.hooks_of(loaded.run.agent)
        self._performer = Performer(self._runtime, self._live, self._box, self._write, self._mine, ready.assembly)

    async def _reload(self) -> bool:
        read = self._runtime.database.read
        await self._prepare(await read(steps.reload, self._claim.id, self._live.definition, scope=self._scope))
        return False

    async def _turn(self) -> bool:
        """Do the next thing. Whether the run is out of this worker's hands with it."""
        live = self._live
        if live.run.status in ENDED:
            return True
        if live.stale:
            return await self._reload()
        pause = live.pause
        if pause is not None and pause.status != "open" and (over := await self._decided(pause)) is not None:
            return over
        if live.open_calls and (ending := await self._performer.make_calls()) is not None:
            return await self._stop(ending)
        if live.open_calls or live.is_paused:
            waiting = await self._write(steps.suspend)
            if waiting is None:
                return await self._reload()
            self._seen = waiting
            point("run.suspended")
            return True
        if live.stale:
            return False
        ending = given_answer(live.calls.values(), live.definition, live.remarks)
        if ending is not None and not live.was_spoken_to:
            return await self._complete(ending)
        if self.draining:
            await self._write(steps.give_back)
            return True
        return await self._think()

    async def _decided(self, pause: Wait) -> bool | None:
        """Do what a person said of the step; None when that is to go on with it."""
        live = self._live
        decision = decide(pause, live.definition)
        if decision.what == "reject":
            return await self._stop(Ending("failed", error=decision.reason or "a person said no to this"))
        if decision.ending is not None:
            return await self._stop(decision.ending)
        if decision.what == "retry" or (decision.what == "modify" and live.calls):
            reason = decision.reason or decision.text or "a person wants this thought over"
            return await self._think_again(pause, reason, told_again(pause, decision))
        if live.calls or live.was_spoken_to:
            return None
        text = live.transcript.last_answer if decision.text is None else decision.text
        try:
            return await self._complete(Ending("completed", checked_answer(text, live.definition)))
        except Invalid as fault:
            return await self._think_again(pause, str(fault), f"This answer will not do: {fault}. Answer again.")

    async def _think_again(self, pause: Wait, reason: str, told: str) -> bool:
        await self._write(steps.think_again, pause, reason, told)
        return await self._reload()

    async def _complete(self, ending: Ending) -> bool:
        if ending.status != "completed":
            return await self._stop(ending)
        live = self._live
        live.run = await self._write(steps.complete, live.run, ending._replace(output=live.definition.output), live.pos)
        self._seen = live.run
        return live.run.status in ENDED or await self._reload()

    async def _stop(self, ending: Ending, loaded: steps.Loaded | None = None, did: Iterable[Did] = ()) -> bool:
        run = self._live.run if loaded is None else loaded.run
        self._seen = await self._write(steps.stop, run, ending, recorded(did))
        return True

    async def _fail(self, reason: str, loaded: steps.Loaded | None = None, did: Iterable[Did] = ()) -> bool:
        return await self._stop(Ending("failed", error=reason), loaded, did)

    # ---- thinking ----

    async def _think(self) -> bool:
        live, runtime = self._live, self._runtime
        if (reason := over_limit(live.run, live.definition)) is not None:
            return await self._fail(reason)
        if live.question is not None and (ending := decide(live.question, live.definition).ending) is not None:
            return await self._stop(ending)
        did: list[Did] = []
        began = runtime.clock.monotonic()
        try:
            prompt = await self._prompt(did)
            point("model.asked")
            with runtime.spans.chat(live.run, live.definition) as span:
                new_stream = runtime.new_stream(self._claim.tenant, live.run.id)
                limits, hidden = live.definition.limits, bool(self._hooks.after_model)
                asked = (self._model, prompt.request, limits, runtime.clock, new_stream)
                reply, stream = await think(*asked, streams=not hidden)
                told_of(span, reply)
            point("model.answered")
            reply, pause = await self._looked_at(reply, did)
        except ModelFailed as failure:
            return await self._fail(f"model: {failure}", did=did)
        except Refuse as refusal:
            return await self._fail(f"refused: {refusal}", did=did)
        except HookFailed as failure:
            return await self._fail(f"{failure.code}: {failure}", did=did)
        except AskFirst as question:
            return await self._ask_first(str(question), did)
        if live.repeated and (again := self._called_again(reply)) is not None:
            stream.withdraw()
            return await self._fail(f"loop: it called {again} with the same arguments again, after it was warned", did=did)
        duration = round((runtime.clock.monotonic() - began) * 1000)
        return await self._record(self._step(prompt, reply, stream, did, duration, pause), stream)

    def _called_again(self, reply: Reply) -> str | None:
        """The tool that the model calls just as it was told not to do again."""
        repeated = self._live.repeated
        return next((each.name for each in reply.tool_calls if signature(each.name, each.arguments) in repeated), None)

    async def _looked_at(self, reply: Reply, did: list[Did]) -> tuple[Reply, Waiting | None]:
        """The reply after the hooks that look at it, and the question about it, if one wants a person to be asked."""
        live = self._live
        try:
            looked_at = await through(self._hooks.after_model, "after_model", reply, live.run, did)
        except AskFirst as question:
            return reply, about_reply(reply, live.run, live.definition, str(question))
        if looked_at is not reply:
            reply = checked(looked_at, "a hook")
        return reply, doubts(reply, live.run, live.definition)

    async def _ask_first(self, why: str, did: list[Did]) -> bool:
        """A hook wants a person to say whether the model may be asked this."""
        live = self._live
        waiting = about_prompt(live.run, live.definition, why)
        await self._write(steps.ask, before(live.run.step + 1), waiting, recorded(did))
        return await self._reload()

    async def _prompt(self, did: list[Did]) -> Prompt:
        live = self._live
        notes = notes_for(live.run, live.definition, live.repeated, self._runtime.clock.now())
        prompt = compose(live.definition.model, live.transcript, live.pos, self._frame, live.definition.settings, notes)
        hooks = self._hooks.before_model
        if not hooks:
            return prompt
        approved = live.question is not None
        request = await through(hooks, "before_model", prompt.request, live.run, did, approved=approved)
        return prompt if request is prompt.request else prompt.rewritten(request)

    async def _record(self, step: Step, stream: Stream) -> bool:
        live = self._live
        try:
            written = await self._write(showing.write_step, live.run, step, live.pos, self._box.specs)
        except VersionConflict:  # somebody changed the run meanwhile: what was thought is thought again
            stream.withdraw()
            return await self._reload()
        except BaseException:
            stream.withdraw()
            raise
        point("step.written")
        stream.close()
        self._kept.update(step.blocks)
        self._mine.clear()
        self._mine.update(call.id for call in written.calls if call.status == "running")
        live.wrote(written)
        self._seen = written.run
        live.stale = live.stale or step.pause is not None or any(call.approval is not None for call in step.calls)
        return live.run.status in ENDED

    def _step(self, prompt: Prompt, reply: Reply, stream: Stream, did: list[Did], duration: int, pause: Waiting | None) -> Step:
        live = self._live
        definition = live.definition
        answer = answer_of(reply, definition, live.remarks)
        written = reply.output_tokens if reply.output_tokens is not None else count_tokens(reply.text, definition.model)
        read = reply.input_tokens if reply.input_tokens is not None else live.transcript.tokens
        pause = pause if answer.remark is None else None
        low = "low_confidence" if pause is not None and "confidence" in (pause.details or {}) else None
        return Step(
            text=reply.text,
            tokens=max(1, written),
            prompt=prompt.about,
            usage=Usage(read, written, reply.cached_tokens, duration, reply.cost),
            thoughts=[*_thoughts(reply), *recorded(did)],
            calls=[self._call(asked, place, paused=pause is not None) for place, asked in enumerate(reply.tool_calls, 1)],
            blocks={hash_: body for hash_, body in prompt.blocks.items() if hash_ not in self._kept},
            stream_id=stream.id if stream.was_used else None,
            model=reply.model,
            ending=answer.ending if pause is None else None,
            remark=answer.remark,
            kept=reply.kept,
            pause=pause,
            checkpoint=low or ("step_complete" if definition.checkpoints == "every_step" or pause is not None else None),
        )

    def _call(self, asked: Asked, place: int, *, paused: bool) -> NewCall:
        """The call under an id that is unique in its run, begun unless somebody or a hook is asked first. What does not fit is
        refused when it is made, so that the log has what the model wanted."""
        live = self._live
        id = f"call_{live.run.step + 1}_{place}"
        try:
            spec, args = self._box.checked(asked)
        except Invalid:
            return NewCall(
                id=id,
                tool_name=asked.name[:LONGEST_NAME],
                args=clipped_arguments(asked.arguments),
                execution_type="internal",
                visibility="hidden",
                begun=False,
            )
        approval = asks_first(spec, args, live.run, live.definition)
        return NewCall(
            id=id,
            tool_name=spec.name,
            args=args,
            execution_type=spec.execution_type,
            visibility=spec.visibility,
            begun=approval is None and not paused and not self._hooks.before_tool,
            approval=approval,
        )


def _thoughts(reply: Reply) -> list[NewThought]:
    return [
        NewThought(
            type="reasoning",
            content=each.text,
            confidence=each.confidence,
            metadata=None if each.source is None else {"confidence_source": each.source},
        )
        for each in reply.thinking
    ]
