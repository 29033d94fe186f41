"""Values that a file of triggers may call by another name than ours: read as ours, and stored as ours. Pure.

A trigger on what people say in a conversation may ask for `role = 'user'`; in a space that role is `human`.
"""

from collections.abc import Mapping, Sequence

from stigmergy.kernel.condition_text import Token, literal, path_at, resolve, scan
from stigmergy.kernel.selectors import SHORTHAND_FIELD

# collection: field: their word for a value: ours
SYNONYMS: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "space_messages": {"role": {"user": "human", "assistant": "agent"}},
}


def in_our_words(collections: Sequence[str], events: Sequence[str], condition: str | None) -> tuple[list[str], str | None]:
    """The events and the condition of a trigger on these collections, where all of them share the synonyms."""
    fields: Mapping[str, Mapping[str, str]] = SYNONYMS.get(collections[0], {}) if len(collections) == 1 else {}
    if not fields:
        return list(events), condition
    return [_event(text, fields) for text in events], None if condition is None else _condition(condition, fields)


def _event(text: str, fields: Mapping[str, Mapping[str, str]]) -> str:
    pieces: list[str] = []
    at = 0
    for found in SHORTHAND_FIELD.finditer(text):
        for group in ("single", "double"):
            ours = fields.get(found["path"], {}).get(found[group] or "")
            if ours is not None:
                pieces += [text[at : found.start(group)], ours]
                at = found.end(group)
    return "".join([*pieces, text[at:]])


def _condition(text: str, fields: Mapping[str, Mapping[str, str]]) -> str:
    """Every literal that such a field is compared with."""
    pieces: list[str] = []
    at = 0
    for token, words in sorted(_compared(text, fields), key=lambda found: found[0].start):
        ours = words.get(str(literal(token)))
        if ours is not None:
            pieces += [text[at : token.start], f"'{ours}'"]
            at = token.start + len(token.text)
    return "".join([*pieces, text[at:]])


def _compared(text: str, fields: Mapping[str, Mapping[str, str]]) -> list[tuple[Token, Mapping[str, str]]]:
    tokens = scan(text)
    found: list[tuple[Token, Mapping[str, str]]] = []
    for at in range(len(tokens)):
        path = path_at(tokens, at)
        names = resolve(path[0], text, tokens[at].start) if path is not None else ()
        if path is None or len(names) != 2 or names[0] not in ("data", "before") or names[1] not in fields:
            continue
        beside = _literals_beside(tokens, at, path[1])
        found += [(token, fields[names[1]]) for token in beside if token.kind == "string"]
    return found


def _literals_beside(tokens: Sequence[Token], start: int, end: int) -> list[Token]:
    following = [token.text for token in tokens[end : end + 2]]
    if following == ["in", "["]:
        close = next((at for at in range(end, len(tokens)) if tokens[at].text == "]"), len(tokens))
        return list(tokens[end + 2 : close])
    beside = list(tokens[end + 1 : end + 2]) if following[:1] in (["=="], ["!="]) else []
    if start >= 2 and tokens[start - 1].text in ("==", "!="):
        beside.append(tokens[start - 2])
    return beside
