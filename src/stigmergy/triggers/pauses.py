"""How long a failed delivery rests before it is tried again. Pure."""

import random
from email.utils import parsedate_to_datetime

from stigmergy.triggers.model import Retry

# Nothing rests longer than this, whatever a receiver asks for and wherever the clock has jumped.
LONGEST_MS = 3_600_000
_JITTER = 0.25


def pause_ms(retry: Retry, tries: int, asked_ms: int | None = None) -> int:
    """The pause after so many tries: doubling, up to a quarter more by chance, and at least what the receiver asked for.

    Never less than it says: so the eight tries of a trigger that says nothing last longer than a minute."""
    doubled = min(retry.first_ms * 2 ** min(tries - 1, 40), retry.most_ms)
    own = round(doubled * random.uniform(1, 1 + _JITTER))
    return min(max(own, asked_ms or 0), LONGEST_MS)


def asked_pause_ms(retry_after: str | None, now: int) -> int | None:
    """What a Retry-After header asks for: seconds, or a date. None where it is neither."""
    if retry_after is None:
        return None
    text = retry_after.strip()
    if text.isascii() and text.isdecimal():
        return min(int(text[:10]) * 1000, LONGEST_MS)
    try:
        moment = parsedate_to_datetime(text)
        return max(0, round(moment.timestamp() * 1000) - now)
    except (ValueError, TypeError, OverflowError, OSError):
        return None


def is_due(next_at: int, now: int) -> bool:
    """Whether a rest is over. One that is longer than any rest was written by a clock that has been set back since."""
    return next_at <= now or next_at > now + LONGEST_MS
