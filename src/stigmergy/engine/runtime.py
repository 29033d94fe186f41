"""What all runs of a process share: the store, the program's code, the tools, the models, and what watches them."""

from collections.abc import Callable, Iterable, Mapping

from stigmergy.agents.gateway import secrets_from
from stigmergy.agents.model import Definition
from stigmergy.agents.models.named import named_model
from stigmergy.agents.models.port import Model
from stigmergy.agents.models.providers import close_models
from stigmergy.breadcrumbs.search import Searcher
from stigmergy.engine.builtins import BUILTINS
from stigmergy.engine.catalog import Catalogs
from stigmergy.engine.code import Code
from stigmergy.engine.direct import DIRECT, DirectModel
from stigmergy.engine.servers import Servers
from stigmergy.engine.spans import Spans
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
        self.spans = Spans(telemetry)

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
