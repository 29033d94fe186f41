"""Writes `src/stigmergy/client/_sync` from `_async`. With `--check` it writes nothing and fails when that is not fresh."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
CLIENT = ROOT / "src" / "stigmergy" / "client"

# In this order; each at the borders of words.
WORDS = [
    (r"async (def|with|for)", r"\1"),
    (r"await ", ""),
    (r"import asyncio", "import time"),
    (r"asyncio\.sleep", "time.sleep"),
    (r"_async", "_sync"),
    (r"AsyncClient", "Client"),
    (r"AsyncIterator", "Iterator"),
    (r"aiter_bytes", "iter_bytes"),
    (r"aread", "read"),
    (r"aclose", "close"),
    (r"__aenter__", "__enter__"),
    (r"__aexit__", "__exit__"),
    (r"Stigmergy", "SyncStigmergy"),
    (r"Breadcrumbs", "SyncBreadcrumbs"),
    (r"Spaces", "SyncSpaces"),
    (r"Runs", "SyncRuns"),
    (r"RunHandle", "SyncRunHandle"),
    (r"Agents", "SyncAgents"),
    (r"Triggers", "SyncTriggers"),
    (r"Deliveries", "SyncDeliveries"),
    (r"Tasks", "SyncTasks"),
]
HEADER = "# Made from ../_async/{name} by scripts/generate_client.py; `make fix` makes it again.\n"


def without_async(source: str) -> str:
    for pattern, replacement in WORDS:
        source = re.sub(rf"\b{pattern}\b", replacement, source)
    return source


def tidy(source: str, name: str) -> str:
    """With its imports in order, loops that are now plain made `yield from`, and formatted."""
    for command in (["check", "--fix", "--unsafe-fixes", "--select", "I,UP028"], ["format"]):
        program = [Path(sys.executable).with_name("ruff"), *command, "--quiet", "--stdin-filename", CLIENT / "_sync" / name, "-"]
        source = subprocess.run(program, cwd=ROOT, input=source, capture_output=True, text=True, check=True).stdout
    return source


def made() -> dict[Path, str]:
    """Every file that there should be, and what is in it."""
    return {
        CLIENT / "_sync" / path.name: tidy(HEADER.format(name=path.name) + without_async(path.read_text()), path.name)
        for path in sorted((CLIENT / "_async").glob("*.py"))
    }


def stale() -> list[Path]:
    """The files that are missing, not fresh, or no longer made."""
    wanted = made()
    there = {path: path.read_text() for path in (CLIENT / "_sync").glob("*.py")}
    return sorted(path for path in wanted | there if there.get(path) != wanted.get(path))


def main() -> int:
    found = stale()
    if "--check" in sys.argv:
        for path in found:
            print(f"{path.relative_to(ROOT)} is not what its source says: run `make fix`")
        return 1 if found else 0
    wanted = made()
    for path in found:
        if path in wanted:
            path.parent.mkdir(exist_ok=True)
            path.write_text(wanted[path])
        else:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
