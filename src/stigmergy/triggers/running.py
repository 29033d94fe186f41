"""What a process runs so that deliveries are handed over: built from the settings, in one place."""

from stigmergy.breadcrumbs.search import Searcher
from stigmergy.kernel.database import Database
from stigmergy.net import reach_of
from stigmergy.settings import Settings
from stigmergy.triggers.deliverer import Deliverer
from stigmergy.triggers.handlers import Acting, Handlers, Runner
from stigmergy.triggers.posting import Poster
from stigmergy.triggers.webhooks import Caller


class Delivering:
    """`run()` hands deliveries over until it is cancelled."""

    def __init__(self, database: Database, settings: Settings, searcher: Searcher, handlers: Handlers, acting: Acting) -> None:
        self._poster = Poster(reach_of(settings))
        caller = Caller(self._poster, database.clock, settings.webhook_secret)
        runner = Runner(handlers, database, searcher, acting)
        self._deliverer = Deliverer(
            database,
            webhooks=caller.hand_over,
            handlers=runner.hand_over,
            names=handlers.names,
            lease_seconds=settings.lease_seconds,
        )

    async def run(self) -> None:
        try:
            await self._deliverer.run()
        finally:
            await self._poster.close()
