"""What all runs of a process share: the store, the program's code, the tools, the models, and what watches them."""

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any

from stigmergy.agents.gateway import secrets_from
from stigmergy.agents.model import Definition, JsonObject, ToolSpec
from stigmergy.agents.models.named import named_model
from stigmergy.agents.models.port import Model, Reply
from stigmergy.agents.models.providers import close_models
from stigmergy.breadcrumbs.search import Searcher
from stigmergy.engine.builtins import BUILTINS
from stigmergy.engine.catalog import Catalogs
from stigmergy.engine.code import Code
from stigmergy.engine.direct import DIRECT, DirectModel
from stigmergy.engine.servers import Servers
from stigmergy.engine.streaming import Stream
from stigmergy.engine.toolbox import is_in_conversation
from stigmergy.kernel.clock import Clock
from stigmergy.kernel.database import Database
from stigmergy.kernel.transaction import Scope
from stigmergy.net import reach_of
from stigmergy.runs.model import Run
from stigmergy.runs.tools import Asking, Builtin, Outside
from stigmergy.settings import Settings
from stigmergy.spaces import prompt as spaces_prompt
from stigmergy.telemetry import Telemetry


class Runtime:
    def __init__(
        self,
        database: Database,
        code: Code | None = None,
        *,
        settings: Settings | None = None,
        searcher: Searcher | None = None,
        builtins: Iterable[Builtin | Asking] = (),
        telemetry: Telemetry | None = None,
    ) -> None:
        self.database = database
        self.code = code or Code()
        self.settings = settings or Settings()
        self.searcher = searcher
        self.outside = Outside(database, searcher)
        self.builtins: Mapping[str, Builtin | Asking] = {**BUILTINS, **{tool.spec.name: tool for tool in builtins}}
        # what gateway tools may know and may call
        self.secrets = secrets_from()
        self.reach = reach_of(self.settings)
        self.servers = Servers(database.clock)
        self.catalogs = Catalogs(database, self.builtins)
        self._telemetry = telemetry

    async def close(self) -> None:
        """Let go of what was opened to the outside."""
        await self.servers.close()
        await close_models()

    @property
    def clock(self) -> Clock:
        return self.database.clock

    def model_of(self, definition: Definition) -> Model:
        """`Invalid` for a model that cannot be reached from here."""
        return DirectModel() if definition.model == DIRECT else named_model(definition.model, self.code.models)

    def new_stream(self, tenant: str, run_id: str) -> Callable[[], Stream]:
        return lambda: Stream(self.database.bus, tenant, run_id)

    async def conversation(self, run: Run, definition: Definition, scope: Scope) -> list[str]:
        """What the prompt says of the conversation that a run is in, and of what its agent keeps."""
        if not is_in_conversation(run):
            return []
        return [block.text for block in await self.database.read(spaces_prompt.blocks, run, scope=scope)]

    @contextmanager
    def thinking(self, run: Run, definition: Definition) -> Generator[JsonObject]:
        """A span by the conventions for generative AI, where telemetry is on."""
        if self._telemetry is None:
            yield {}
            return
        with self._telemetry.timed("chat", definition.model) as span:
            provider, _, model = definition.model.partition(":")
            span["gen_ai.operation.name"] = "chat"
            span["gen_ai.provider.name"] = provider
            span["gen_ai.request.model"] = model or provider
            span["gen_ai.agent.name"] = run.agent
            span["gen_ai.conversation.id"] = run.id
            yield span

    @contextmanager
    def calling(self, run: Run, spec: ToolSpec, call_id: str) -> Generator[JsonObject]:
        if self._telemetry is None:
            yield {}
            return
        with self._telemetry.timed("execute_tool", spec.name) as span:
            span["gen_ai.operation.name"] = "execute_tool"
            span["gen_ai.tool.name"] = spec.name
            span["gen_ai.tool.call.id"] = call_id
            span["gen_ai.tool.type"] = "function"
            span["gen_ai.agent.name"] = run.agent
            span["gen_ai.conversation.id"] = run.id
            yield span


def told_of(span: dict[str, Any], reply: Reply) -> None:
    """What a reply cost, on its span."""
    if reply.input_tokens is not None:
        span["gen_ai.usage.input_tokens"] = reply.input_tokens
    if reply.output_tokens is not None:
        span["gen_ai.usage.output_tokens"] = reply.output_tokens
    if reply.model is not None:
        span["gen_ai.response.model"] = reply.model
