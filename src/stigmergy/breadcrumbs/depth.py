"""How deep a JSON document may be. What is stored must be readable from anywhere, and Python's stack is not endless."""

import re

# Levels of objects and lists.
DEEPEST = 100

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NO_BRACKET = bytes(set(range(256)) - set(b"[]{}"))


def is_too_deep(text: bytes) -> bool:
    """Whether a JSON document has more levels. Most have not even as many brackets."""
    return text.count(b"[") + text.count(b"{") > DEEPEST and not is_shallow(text)


def is_shallow(text: bytes) -> bool:
    """Whether a JSON document has at most `DEEPEST` levels. Each pass takes the innermost one away."""
    brackets = _STRING.sub(b"", text).translate(_BRACKETS, _NO_BRACKET)
    for _ in range(DEEPEST):
        if not brackets:
            return True
        brackets = brackets.replace(b"[]", b"")
    return not brackets
