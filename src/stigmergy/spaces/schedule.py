"""When a plan is due: a moment, a while from now, or a cron expression in a time zone. Pure.

A moment without an offset is local to the time zone. Over a change of the clocks a cron job at a fixed time runs once, as
Debian's cron does it: one that falls into the skipped hour runs right after it, one in the doubled hour at its first time.
"""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from stigmergy.errors import Invalid
from stigmergy.spaces.model import PlanKind

LONGEST_CRON = 200
# How far away a plan may be, and how soon: years, milliseconds.
FARTHEST_MS = 50 * 366 * 24 * 3600 * 1000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        message = f"there is no time zone {name[:100]!r}; use a name such as Europe/Berlin or UTC"
        raise Invalid(message, "time_zone", code="unknown_time_zone") from error


def first_time(kind: PlanKind, spec: str, time_zone: str, now: int) -> int:
    """When a new plan is due for the first time. Refuses what is in the past, never comes, or is nonsense."""
    if kind == "once":
        at = _moment(spec, zone(time_zone))
        if at <= now:
            raise Invalid(f"{spec} is in the past; it is {_text(now)} now", "at", code="in_the_past")
    elif kind == "after":
        zone(time_zone)
        at = now + _while(spec)
    else:
        at = next_cron(spec, time_zone, now)
    if at - now > FARTHEST_MS:
        raise Invalid("a plan lies within the next 50 years", "at")
    return at


def next_cron(expression: str, time_zone: str, now: int) -> int:
    """The first moment after now that fits a cron expression of five fields, on the clocks of a time zone."""
    fields = expression.split()
    if len(fields) != 5 or len(expression) > LONGEST_CRON:
        raise _bad_cron(expression, "it has five fields: minute, hour, day, month, day of the week")
    local = (_EPOCH + timedelta(milliseconds=now)).astimezone(zone(time_zone))
    try:
        found = next(CronSim(expression, local))
    except (CronSimError, ValueError, OverflowError) as error:
        raise _bad_cron(expression, str(error)) from error
    except (StopIteration, RuntimeError):  # inside a generator the one becomes the other
        raise _bad_cron(expression, "it never comes") from None
    return _milliseconds(found)


def _moment(spec: str, local: ZoneInfo) -> int:
    try:
        found = datetime.fromisoformat(spec)
        return _milliseconds(found if found.tzinfo is not None else found.replace(tzinfo=local))
    except (ValueError, OverflowError) as error:
        raise Invalid(f"{spec[:100]!r} is no moment; write for example 2030-05-01T09:00", "at") from error


def _while(spec: str) -> int:
    if not spec.isdecimal() or not 0 < int(spec[:16]) <= FARTHEST_MS:
        raise Invalid("a while is a number of milliseconds, more than 0", "after_ms")
    return int(spec)


def _milliseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _text(ms: int) -> str:
    return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="seconds")


def _bad_cron(expression: str, why: str) -> Invalid:
    return Invalid(f"{expression[:100]!r} is no cron expression ({why}); such as `0 9 * * MON-FRI`", "cron", code="invalid_cron")
