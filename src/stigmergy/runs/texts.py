"""Texts that every store can hold: without NUL, which PostgreSQL cannot, and without half of a surrogate pair, which is no text.

What people and programs give is refused where it is not sound; what models and tools give is made sound, since nobody is there
who could say it differently.
"""

from typing import Any, cast

from stigmergy.errors import Invalid

INSTEAD = "\ufffd"


def is_sound(text: str) -> bool:
    if "\0" in text:
        return False
    return text.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in text)


def sound(text: str) -> str:
    """The text, with a sign that says so in the place of what cannot be held."""
    if is_sound(text):
        return text
    return "".join(INSTEAD if sign == "\0" or "\ud800" <= sign <= "\udfff" else sign for sign in text)


def sound_value(value: Any) -> Any:
    """The same for every text in a value of JSON."""
    if isinstance(value, str):
        return sound(value)
    if isinstance(value, dict):
        return {sound(name): sound_value(each) for name, each in cast(dict[str, Any], value).items()}
    if isinstance(value, list):
        return [sound_value(each) for each in cast(list[Any], value)]
    return value


def check_sound(text: str, where: str) -> None:
    if not is_sound(text):
        raise Invalid("a text has no NUL and no half of a surrogate pair", where)
