"""One run in one worker's hands, from its claim until it waits or ends.

A turn looks at the rows and does the next thing they ask for: make the calls that are open, let go of the run to wait, end it,
or think and write the step. After any of these the rows tell any other worker how to go on.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from stigmergy.agents.models.port import Asked, ModelFailed, Reply
from stigmergy.agents.tokens import count_tokens
from stigmergy.engine import showing
from stigmergy.engine.answers import answer_of
from stigmergy.engine.approvals import Decision, asks_first, decide, doubts
from stigmergy.engine.assembling import RequiredMissing
from stigmergy.engine.hooks import AskFirst, Did, Refuse, through
from stigmergy.engine.live import Live
from stigmergy.engine.notes import notes_for, over_limit
from stigmergy.engine.performing import Performer, recorded
from stigmergy.engine.preparing import prepare
from stigmergy.engine.prompt import Prompt, Shown, compose
from stigmergy.engine.runtime import Runtime, told_of
from stigmergy.engine.streaming import Stream, withdraw_all
from stigmergy.engine.thinking import think
from stigmergy.errors import Invalid, LeaseLost, StigmergyError, StoreError, VersionConflict
from stigmergy.kernel.faults import point
from stigmergy.kernel.leases import Claim
from stigmergy.kernel.transaction import Scope
from stigmergy.runs import steps
from stigmergy.runs.delegation import FINAL_ANSWER
from stigmergy.runs.model import ENDED, ToolCall, Usage
from stigmergy.runs.steps import Ending, NewCall, NewThought, Step

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
            await self._take_up(loaded)
        except LeaseLost:
            log.info("run %s is not this worker's any more", self._claim.id)

    async def _take_up(self, loaded: steps.Loaded) -> None:
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
        self._blocks = ready.blocks
        self._shown = Shown.of(ready.box.shown())
        self._model = ready.model
        self._hooks = self._runtime.code.hooks_of(loaded.run.agent)
        self._performer = Performer(self._runtime, self._live, self._box, self._write, self._mine)

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
        if live.open_calls:
            await self._performer.make_calls()
        pause = live.pause
        if live.open_calls or (pause is not None and pause.status == "open"):
            if await self._write(steps.suspend) is None:
                return await self._reload()
            point("run.suspended")
            return True
        if live.stale:
            return False
        if pause is not None and (ended := await self._decided(decide(pause, live.definition))) is not None:
            return ended
        if (given := self._given_answer()) is not None:
            return await self._complete(given.result)
        if self.draining:
            await self._write(steps.give_back)
            return True
        return await self._think()

    def _given_answer(self) -> ToolCall | None:
        """The call by which the agent gave its answer, if it did in this step."""
        calls = self._live.calls.values()
        return next((call for call in calls if call.tool_name == FINAL_ANSWER and call.status == "success"), None)

    async def _decided(self, decision: Decision) -> bool | None:
        """Do what a person said of the step; None when that is to go on thinking."""
        live = self._live
        if decision.what in ("cancel", "reject"):
            return await self._fail(decision.reason or "a person stopped it")
        if decision.what == "modify" and decision.text is not None:
            return await self._complete(decision.text)
        if decision.what != "retry" and not live.calls:
            return await self._complete(live.transcript.last_text)
        return None

    async def _complete(self, result: Any) -> bool:
        ending = Ending("completed", result, output=self._live.definition.output)
        self._live.run = await self._write(steps.complete, self._live.run, ending)
        return True

    async def _fail(self, reason: str, loaded: steps.Loaded | None = None) -> bool:
        run = self._live.run if loaded is None else loaded.run
        await self._write(steps.fail, run, reason)
        return True

    # ---- thinking ----

    async def _think(self) -> bool:
        live, runtime = self._live, self._runtime
        if (reason := over_limit(live.run, live.definition)) is not None:
            return await self._fail(reason)
        did: list[Did] = []
        began = runtime.clock.monotonic()
        try:
            prompt = await self._prompt(did)
            point("model.asked")
            with runtime.thinking(live.run, live.definition) as span:
                new_stream = runtime.new_stream(self._claim.tenant, live.run.id)
                reply, stream = await think(self._model, prompt.request, live.definition.limits, runtime.clock, new_stream)
                told_of(span, reply)
            point("model.answered")
            reply = await through(self._hooks.after_model, "after_model", reply, live.run, did)
        except ModelFailed as failure:
            return await self._fail(f"model: {failure}")
        except (Refuse, AskFirst) as refusal:
            return await self._fail(f"refused: {refusal}")
        repeated = live.repeated
        if again := next((each.name for each in reply.tool_calls if (each.name, each.arguments) in repeated), None):
            stream.withdraw()
            return await self._fail(f"loop: it called {again} with the same arguments again, after it was warned")
        step = self._step(prompt, reply, stream, did, round((runtime.clock.monotonic() - began) * 1000))
        return await self._record(step, stream)

    async def _prompt(self, did: list[Did]) -> Prompt:
        live = self._live
        notes = notes_for(live.run, live.definition, live.repeated, self._runtime.clock.now())
        settings = live.definition.settings
        prompt = compose(live.definition.model, live.transcript, live.pos, self._blocks, self._shown, settings, notes)
        hooks = self._hooks.before_model
        if not hooks:
            return prompt
        request = await through(hooks, "before_model", prompt.request, live.run, did)
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
        live.stale = live.stale or step.pause is not None or any(call.approval is not None for call in step.calls)
        return live.run.status in ENDED

    def _step(self, prompt: Prompt, reply: Reply, stream: Stream, did: list[Did], duration: int) -> Step:
        live = self._live
        definition = live.definition
        answer = answer_of(reply, definition, live.remarks)
        written = reply.output_tokens if reply.output_tokens is not None else count_tokens(reply.text, definition.model)
        read = reply.input_tokens if reply.input_tokens is not None else live.transcript.tokens
        pause = doubts(reply, live.run, definition) if answer.remark is None else None
        low = "low_confidence" if pause is not None else None
        return Step(
            text=reply.text,
            tokens=max(1, written),
            prompt=prompt.about,
            usage=Usage(read, written, reply.cached_tokens, duration, reply.cost),
            thoughts=[*_thoughts(reply), *map(recorded, did)],
            calls=[self._call(asked, place) for place, asked in enumerate(reply.tool_calls, 1)],
            blocks={hash_: body for hash_, body in prompt.blocks.items() if hash_ not in self._kept},
            stream_id=stream.id if stream.was_used else None,
            model=reply.model,
            ending=answer.ending if pause is None else None,
            remark=answer.remark,
            kept=reply.kept,
            pause=pause,
            checkpoint=low or ("step_complete" if definition.checkpoints == "every_step" else None),
        )

    def _call(self, asked: Asked, place: int) -> NewCall:
        """The call under an id that is unique in its run, begun unless somebody is asked first. What does not fit is refused
        when it is made, so that the log has what the model wanted."""
        live = self._live
        id = f"call_{live.run.step + 1}_{place}"
        try:
            spec, args = self._box.checked(asked)
        except Invalid:
            return NewCall(id=id, tool_name=asked.name, args=asked.arguments, execution_type="internal", visibility="hidden")
        approval = asks_first(spec, args, live.run, live.definition)
        return NewCall(
            id=id,
            tool_name=spec.name,
            args=args,
            execution_type=spec.execution_type,
            visibility=spec.visibility,
            begun=approval is None,
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
