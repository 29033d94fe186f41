"""Telemetry: what is measured when it is asked for, and nothing when it is not."""

import json
import logging
import re
from pathlib import Path

import pytest

from stigmergy import App
from stigmergy.errors import Invalid
from stigmergy.kernel.observed import ObservedDatabase
from stigmergy.settings import Settings
from stigmergy.telemetry import JsonLines, Telemetry, open_telemetry


def value(telemetry: Telemetry, metric: str, **labels: str) -> float:
    """The value of one series, 0 where it is not there."""
    for line in telemetry.exposition().decode().splitlines():
        if line.startswith(metric + "{") and all(f'{name}="{wanted}"' in line for name, wanted in labels.items()):
            return float(line.rsplit(" ", 1)[1])
    return 0.0


async def test_without_telemetry_the_database_is_not_wrapped(tmp_path: Path) -> None:
    async with App(str(tmp_path / "a.db"), settings=Settings()) as app:
        assert not isinstance(app.database, ObservedDatabase)
        assert app.telemetry is None


async def test_units_are_counted_by_name_and_failures_by_code(tmp_path: Path) -> None:
    async with App(str(tmp_path / "a.db"), settings=Settings(telemetry="metrics")) as app:
        assert app.telemetry is not None
        series = {"operation": "write", "name": "_create"}
        before = value(app.telemetry, "stigmergy_operation_duration_seconds_count", **series)
        await app.breadcrumbs.create("note.v1")
        with pytest.raises(Invalid):
            await app.breadcrumbs.create("")
        assert value(app.telemetry, "stigmergy_operation_duration_seconds_count", **series) == before + 2
        assert value(app.telemetry, "stigmergy_operation_failures_total", code="invalid", **series) >= 1


def test_nothing_is_opened_unless_a_setting_asks() -> None:
    assert open_telemetry(Settings()) is None


def test_a_line_of_the_log_is_one_json_document() -> None:
    record = logging.LogRecord("stigmergy.test", logging.WARNING, __file__, 1, 'a "quoted"\n%s', ("text",), None)
    said = json.loads(JsonLines().format(record))
    assert (said["level"], said["logger"], said["message"]) == ("warning", "stigmergy.test", 'a "quoted"\ntext')
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", said["time"])


def test_half_a_surrogate_pair_does_not_lose_a_line_of_the_log() -> None:
    record = logging.LogRecord("stigmergy.test", logging.ERROR, __file__, 1, "gone \ud800", (), None)
    assert json.loads(JsonLines().format(record))["message"] == "gone \\ud800"
