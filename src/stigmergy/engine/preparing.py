"""What a worker gathers before a run can think: its model, its tools, the blocks of its prompt, the pictures in its log."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from stigmergy.agents import store as agents
from stigmergy.agents.model import Definition, JsonObject
from stigmergy.agents.models.port import Model
from stigmergy.engine.answers import with_output
from stigmergy.engine.assembling import assembled, gather_for
from stigmergy.engine.code import DIRECT
from stigmergy.engine.prompt import Block
from stigmergy.engine.runtime import Runtime
from stigmergy.engine.toolbox import Toolbox, is_in_conversation
from stigmergy.errors import StigmergyError
from stigmergy.kernel.blocks import get_block
from stigmergy.kernel.leases import Claim
from stigmergy.kernel.transaction import Scope, Snapshot
from stigmergy.runs.delegation import FINAL_ANSWER
from stigmergy.runs.model import Run, RunMessage
from stigmergy.runs.steps import Loaded


class Prepared(NamedTuple):
    run: Run
    model: Model
    box: Toolbox
    blocks: Sequence[Block]
    bodies: Mapping[str, bytes]
    assembly: JsonObject | None


async def prepare(runtime: Runtime, loaded: Loaded, worker: str, claim: Claim, scope: Scope) -> Prepared:
    """Everything but the log. `StigmergyError` when the run cannot go on, in a sentence that becomes its reason."""
    definition = loaded.definition
    model = runtime.model_of(definition)
    served = await runtime.servers.toolset(definition)
    talks = is_in_conversation(loaded.run)
    box = Toolbox(definition, runtime.builtins, runtime.code.tools, served.tools, in_conversation=talks)
    if FINAL_ANSWER in box.specs:
        box.specs[FINAL_ANSWER] = with_output(definition, box.specs[FINAL_ANSWER])
    if not served.missing:  # else it is not known what the agent may use
        await runtime.catalogs.keep(loaded.run, definition, served.tools)
    run = await gather_for(runtime.database, runtime.searcher, loaded.run, definition, worker, claim, scope)
    texts: list[str] = []
    if definition.delegates or definition.output is not None or run.assembly is not None:  # most have none of them
        texts += await runtime.database.read(_texts, run, definition, scope=scope)
    texts += await runtime.conversation(run, definition, scope)
    if served.missing:
        texts.append("Tools of these servers are not there now:\n" + "\n".join(f"- {why}" for why in served.missing))
    bodies = await runtime.database.read(_pictures, loaded.messages, scope=scope) if _has_pictures(loaded.messages) else {}
    # a model reads of it in its prompt
    assembly = await runtime.database.read(assembled, run, scope=scope) if definition.model == DIRECT else None
    return Prepared(run, model, box, [Block.of(text) for text in texts], bodies, assembly)


async def _texts(tx: Snapshot, run: Run, definition: Definition) -> list[str]:
    """What every prompt of the run says besides its instructions and its history, the most stable first."""
    texts: list[str] = []
    if definition.delegates:
        texts.append(await _delegates(tx, definition))
    if definition.output is not None and definition.output.json_schema is not None:
        schema = msgspec.json.encode(definition.output.json_schema).decode()
        texts.append(f"Your final answer is one JSON document, with nothing around it, that fits this JSON Schema:\n{schema}")
    if run.assembly is not None:
        texts.append((await get_block(tx, run.assembly)).body.decode())
    return texts


async def _delegates(tx: Snapshot, definition: Definition) -> str:
    lines: list[str] = []
    for name in definition.delegates:
        try:
            about = (await agents.named(tx, name)).definition.description
        except agents.UnknownAgent:
            continue
        lines.append(f"- {name}: {about}" if about else f"- {name}")
    return "You may give tasks to these agents:\n" + "\n".join(lines)


def _has_pictures(messages: Sequence[RunMessage]) -> bool:
    return any(part.kind == "image" for message in messages for part in message.parts or ())


async def _pictures(tx: Snapshot, messages: Sequence[RunMessage]) -> dict[str, bytes]:
    """Those that were erased are left out."""
    found: dict[str, bytes] = {}
    for part in (part for message in messages for part in message.parts or () if part.kind == "image"):
        try:
            found[part.block] = (await get_block(tx, part.block)).body
        except StigmergyError:
            continue
    return found
