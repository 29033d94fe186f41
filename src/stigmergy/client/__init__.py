"""The client of a Stigmergy server: what a program says to its own store, said over HTTP.

`Stigmergy` is for asyncio, `SyncStigmergy` for everybody else. Their `.breadcrumbs` has the methods of `App.breadcrumbs`, with
the same parameters and results, and raises the same errors, so that a program can move from one to the other.

- A read, a write with `if_match` and the creation of one breadcrumb are tried again, a few times, when the connection fails or
  the server is busy or gone for a moment. Each is written at most once. Nothing else is tried again.
- A write whose answer was lost for good is `OutcomeUnknown`: it may have happened.

The code is written once, in `_async`; `_sync` is made from it by `scripts/generate_client.py`.
"""

from stigmergy.client._async.client import Stigmergy
from stigmergy.client._sync.client import SyncStigmergy

__all__ = ["Stigmergy", "SyncStigmergy"]
