"""When plans are due."""

from datetime import UTC, datetime

import pytest

from stigmergy.errors import Invalid
from stigmergy.spaces.model import PlanKind
from stigmergy.spaces.schedule import first_time, next_cron


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


NOW = at("2026-03-28T12:00:00")


@pytest.mark.parametrize(
    ("kind", "spec", "time_zone", "due"),
    [
        ("once", "2026-05-01T09:00", "UTC", "2026-05-01T09:00"),
        ("once", "2026-05-01T09:00", "Europe/Berlin", "2026-05-01T07:00"),
        ("once", "2026-05-01T09:00+05:30", "Europe/Berlin", "2026-05-01T03:30"),
        ("once", "2026-05-01T09:00:00Z", "Asia/Tokyo", "2026-05-01T09:00"),
        ("after", "90000", "UTC", "2026-03-28T12:01:30"),
        ("cron", "0 9 * * *", "UTC", "2026-03-29T09:00"),
        # the clocks of Berlin go forward on the 29th at 02:00
        ("cron", "0 9 * * *", "Europe/Berlin", "2026-03-29T07:00"),
        ("cron", "30 2 * * *", "Europe/Berlin", "2026-03-29T01:00"),
        ("cron", "0 9 * * MON-FRI", "America/New_York", "2026-03-30T13:00"),
        ("cron", "*/15 * * * *", "UTC", "2026-03-28T12:15"),
        ("cron", "0 0 29 2 *", "UTC", "2028-02-29T00:00"),
    ],
)
def test_a_plan_is_due(kind: PlanKind, spec: str, time_zone: str, due: str) -> None:
    assert first_time(kind, spec, time_zone, NOW) == at(due)


def test_in_the_doubled_hour_a_job_at_a_fixed_time_runs_once() -> None:
    due: list[int] = [at("2026-10-24T12:00:00")]
    for _ in range(3):
        due.append(next_cron("30 2 * * *", "Europe/Berlin", due[-1]))
    assert due[1:] == [at("2026-10-25T00:30"), at("2026-10-26T01:30"), at("2026-10-27T01:30")]


@pytest.mark.parametrize(
    ("kind", "spec", "time_zone", "code"),
    [
        ("once", "2026-03-28T11:59", "UTC", "in_the_past"),
        ("once", "2026-03-28T12:30", "Europe/Berlin", "in_the_past"),
        ("once", "tomorrow", "UTC", "invalid"),
        ("once", "9999-12-31T23:59:59", "UTC", "invalid"),
        ("once", "0001-01-01T00:00:00+14:00", "UTC", "in_the_past"),
        ("once", "2026-05-01T09:00", "Europe/Atlantis", "unknown_time_zone"),
        ("once", "2026-05-01T09:00", "../etc/passwd", "unknown_time_zone"),
        ("once", "2026-05-01T09:00", "", "unknown_time_zone"),
        ("cron", "0 9 * * *", "Mars/Olympus", "unknown_time_zone"),
        ("after", "0", "UTC", "invalid"),
        ("after", "-5", "UTC", "invalid"),
        ("after", "9" * 30, "UTC", "invalid"),
        ("cron", "every day", "UTC", "invalid_cron"),
        ("cron", "60 * * * *", "UTC", "invalid_cron"),
        ("cron", "* * * * * *", "UTC", "invalid_cron"),
        ("cron", "0 0 31 2 *", "UTC", "invalid_cron"),
        ("cron", "0 0 30 2 *", "Europe/Berlin", "invalid_cron"),
        ("cron", "", "UTC", "invalid_cron"),
        ("cron", "0 " * 200, "UTC", "invalid_cron"),
    ],
)
def test_nonsense_is_refused(kind: PlanKind, spec: str, time_zone: str, code: str) -> None:
    with pytest.raises(Invalid) as refused:
        first_time(kind, spec, time_zone, NOW)
    assert refused.value.code == code
