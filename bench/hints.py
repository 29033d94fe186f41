"""What llm_hints cost: they are applied on every read, list, search and event. Prints microseconds per call: to read hints that
were read before, and to apply them to a small context and to one of a thousand items.
"""

import timeit
from typing import Any

from stigmergy.breadcrumbs.hints import apply_hints, parse_hints

SMALL: dict[str, Any] = {"text": "Where is my order?", "metadata": {"secret": "s", "page": 3}, "n": 4}
LARGE: dict[str, Any] = SMALL | {"items": [{"name": f"n{n}", "secret": n, "tags": ["a", "b"]} for n in range(1000)]}

CASES: dict[str, dict[str, Any]] = {
    "exclude one leaf": {"exclude": ["metadata.secret"]},
    "include two": {"include": ["text", "metadata.page"]},
    "template": {"transform": {"k": {"type": "template", "template": "{{ context.text }} ({{ context.n }})"}}},
    "format": {"transform": {"k": {"type": "format", "format": "{text} ({n})"}}},
    "extract": {"transform": {"k": {"type": "extract", "value": "$.metadata.page"}}},
    "exclude in a list": {"exclude": ["items.secret"]},
    "extract all names": {"transform": {"k": {"type": "extract", "value": "$.items[*].name"}}},
}


def per_call(function: Any, calls: int) -> float:
    return min(timeit.repeat(function, number=calls, repeat=5)) / calls * 1e6


def main() -> None:
    print(f"{'':20} {'again':>9} {'small':>9} {'1000 items':>11}")
    for name, data in CASES.items():
        hints = parse_hints(data)
        parse = per_call(lambda data=data: parse_hints(data), 2000)
        small = per_call(lambda hints=hints: apply_hints(hints, SMALL), 5000)
        large = per_call(lambda hints=hints: apply_hints(hints, LARGE), 50)
        print(f"{name:20} {parse:9.2f} {small:9.2f} {large:11.1f}")


if __name__ == "__main__":
    main()
