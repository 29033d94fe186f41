"""Writes the pages of docs/ that are made from the code. `tests/docs` checks that they are fresh."""

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

import stigmergy
from stigmergy import errors
from stigmergy.api.problems import CODES
from stigmergy.errors import REFUSALS, StigmergyError
from stigmergy.kernel.record import COLLECTIONS, Record
from stigmergy.runs.model import CALL_TRANSITIONS, RUN_TRANSITIONS, TASK_TRANSITIONS, Run, Task, ToolCall
from stigmergy.settings import FILE, described

ROOT = Path(__file__).parent.parent


def settings_page() -> str:
    lines = [
        "# Settings",
        "",
        f"An argument wins over the environment, the environment over `{FILE}` in the working folder, that over the default.",
        "",
        "| setting | variable | values | default | what it is for |",
        "| --- | --- | --- | --- | --- |",
    ]
    for each in described():
        kind = each.kind.replace("|", "\\|")
        lines.append(f"| `{each.name}` | `{each.variable}` | {kind} | {each.default or '–'} | {each.about} |")
    return "\n".join([*lines, "", "This page is made from `settings.py` by `make fix`.", ""])


def errors_page() -> str:
    lines = [
        "# Errors",
        "",
        "Every error has a code that stays; its message says what was wrong and what to do. Over HTTP it is a problem with this",
        "code and status ([api](api.md)), in Python an exception with `code`. Where trying again can help it is `retryable`.",
        "",
        "| code | status | again? | what it says |",
        "| --- | --- | --- | --- |",
    ]
    known = {each.code: (each.status, each.retryable, _about(each)) for each in _every_error()}
    known |= {code: (422, False, about) for code, about in REFUSALS.items()}
    for code in _given_in_place():
        if code not in known:
            raise SystemExit(f"errors.REFUSALS needs a line for the code {code!r}")
    for status, code in CODES.items():
        known.setdefault(code, (status, False, "The request itself is refused; it never came to a route."))
    for code, (status, retryable, about) in sorted(known.items()):
        lines.append(f"| `{code}` | {status} | {'yes' if retryable else ''} | {about} |")
    return "\n".join([*lines, "", "This page is made from the code by `make fix`.", ""])


def collections_page() -> str:
    _import_all()
    lines = [
        "# Collections",
        "",
        "Every record is in a collection. A trigger names one by its path, with `*` for any one segment and `**` for the rest,",
        "or by its short name; a selector and the feed by the schema name that its records are seen under",
        "([triggers](triggers.md)).",
        "",
        "| collection | path | schema name |",
        "| --- | --- | --- |",
    ]
    for name, collection in sorted(COLLECTIONS.items()):
        if collection.record.__module__.startswith("stigmergy."):  # tests have some of their own
            schema_name = f"`{collection.schema_name}`" if isinstance(collection.schema_name, str) else "its own"
            lines.append(f"| `{name}` | `{collection.path}` | {schema_name} |")
    common = ", ".join(f"`{field}`" for field in Record.__struct_fields__)
    lines += ["", f"Each record has, besides its own fields, {common}."]
    return "\n".join([*lines, "", "This page is made from the code by `make fix`.", ""])


def _import_all() -> None:
    for module in pkgutil.walk_packages(stigmergy.__path__, "stigmergy."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def _every_error() -> Iterator[type[StigmergyError]]:
    _import_all()
    found = [StigmergyError]
    for each in found:
        found += each.__subclasses__()
    return (each for each in found if "code" in vars(each) and each.__module__.startswith("stigmergy."))


def _about(error: type[StigmergyError]) -> str:
    """The line of the tree in `errors`, or the first of the class's own."""
    if error is StigmergyError:
        return "A defect; the log says more."
    line = re.search(rf"─ {error.__name__} +(.+)", errors.__doc__ or "")
    about = line[1] if line else (error.__doc__ or "").strip().splitlines()[0]
    about = about[:1].upper() + about[1:]
    return about if about.endswith(".") else f"{about}."


def _given_in_place() -> list[str]:
    """The codes that `raise Invalid(…, code="…")` gives."""
    found: set[str] = set()
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            for keyword in node.keywords if isinstance(node, ast.Call) else ():
                if keyword.arg == "code" and isinstance(keyword.value, ast.Constant):
                    found.add(str(keyword.value.value))
    return sorted(found)


MADE, AS_FAR_AS = "<!-- made from runs/model.py -->\n", "<!-- as far as here -->"
MACHINES = {"Task": (Task, TASK_TRANSITIONS), "Run": (Run, RUN_TRANSITIONS), "Tool call": (ToolCall, CALL_TRANSITIONS)}


def runs_page() -> str:
    """The page as it is, with what may follow what put between its marks."""
    before, _, rest = (ROOT / "docs/runs.md").read_text().partition(MADE)
    made = [line for name, (record, table) in MACHINES.items() for line in _machine(name, record, table)]
    return "\n".join([before + MADE, *made, AS_FAR_AS + rest.partition(AS_FAR_AS)[2]])


def _machine(name: str, record: type[Record], table: Mapping[str, frozenset[str]]) -> Iterator[str]:
    """What may follow what, as a table and as a picture."""
    first = next(field.default for field in msgspec.structs.fields(record) if field.name == "status")
    yield from (f"### {name}", "", "| status | may become |", "| --- | --- |")
    for status, following in table.items():
        yield f"| `{status}` | {', '.join(f'`{each}`' for each in table if each in following) or 'nothing, it is final'} |"
    yield from ("", "```mermaid", "stateDiagram-v2", f"    [*] --> {first}")
    for status, following in table.items():
        yield from (f"    {status} --> {each}" for each in table if each in following)
        if not following:
            yield f"    {status} --> [*]"
    yield from ("```", "")


PAGES = {
    "docs/settings.md": settings_page,
    "docs/errors.md": errors_page,
    "docs/collections.md": collections_page,
    "docs/runs.md": runs_page,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (ROOT / name).write_text(page())
