"""Writes the pages of docs/ that are made from the code. `tests/docs` checks that they are fresh."""

from pathlib import Path

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


PAGES = {"docs/settings.md": settings_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (ROOT / name).write_text(page())
