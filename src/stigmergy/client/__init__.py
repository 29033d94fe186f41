"""The client of a Stigmergy server: what a program says to its own store, said over HTTP.

`Stigmergy` is for asyncio, `SyncStigmergy` for everybody else. Their `.breadcrumbs`, `.runs`, `.agents` and `.spaces` have the
methods of those of an `App`, with the same parameters and results, and raise the same errors, so that a program can move from one
to the other. What a token may not do is `Forbidden`.

- A read, a write with `if_match`, and what happens once however often it is asked for (a breadcrumb is created, a run started,
  spoken to or stopped, an agent put) are tried again, a few times, when the connection fails or the server is busy or gone for a
  moment. Each is written at most once. Nothing else is tried again.
- A write whose answer was lost for good is `OutcomeUnknown`: it may have happened.

The code is written once, in `_async`; `_sync` is made from it by `scripts/generate_client.py`.
"""

from stigmergy.client._async.client import Stigmergy
from stigmergy.client._sync.client import SyncStigmergy

__all__ = ["Stigmergy", "SyncStigmergy"]
