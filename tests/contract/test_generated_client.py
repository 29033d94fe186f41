"""The blocking client is made from the other one, and both have what a program has."""

import inspect
import runpy
from typing import Any

import pytest

from stigmergy.app import App
from stigmergy.breadcrumbs.namespace import Breadcrumbs
from stigmergy.client import Stigmergy, SyncStigmergy
from stigmergy.client._async import runs
from stigmergy.client._sync import runs as sync_runs
from stigmergy.engine.namespace import Agents, RunHandle, Runs
from stigmergy.spaces.namespace import Spaces
from support.repository import ROOT

GENERATOR = runpy.run_path(str(ROOT / "scripts" / "generate_client.py"))


def test_the_blocking_client_is_fresh() -> None:
    assert GENERATOR["stale"]() == [], "run `make fix`"


def methods(of: Any) -> dict[str, list[tuple[str, Any, Any, Any]]]:
    return {
        name: [(each.name, each.kind, each.default, each.annotation) for each in inspect.signature(method).parameters.values()]
        for name, method in inspect.getmembers(of, inspect.isfunction)
        if not name.startswith("_")
    }


@pytest.mark.parametrize(("kind", "handle"), [(Stigmergy, runs.RunHandle), (SyncStigmergy, sync_runs.SyncRunHandle)])
def test_a_client_has_the_methods_of_a_program(kind: Any, handle: Any) -> None:
    client = kind("http://127.0.0.1:1")
    assert methods(type(client.breadcrumbs)) == methods(Breadcrumbs)
    assert methods(type(client.spaces)) == methods(Spaces)
    assert methods(type(client.runs)) == methods(Runs)
    assert methods(type(client.agents)) == methods(Agents)
    assert methods(kind)["ask"] == methods(App)["ask"]
    assert methods(handle) == methods(RunHandle)
