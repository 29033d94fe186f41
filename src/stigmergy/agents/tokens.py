"""How many tokens a text has: by the model's own tokenizer where we have it, else by a stated estimate.

Counted: OpenAI's models, under any provider's name (`openai:gpt-5-mini`, `openrouter:openai/gpt-4o`, `ollama:gpt-oss`). Estimated
at four bytes a token: every other model. A text beyond `COUNTED` characters is counted in three pieces of it, and the rest is
taken to be like them, so that no text holds the event loop for long. Counts serve budgets; what is billed is in the reply.
"""

import re
import sys
from collections.abc import Callable
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

COUNTED = 200_000
_PIECE = 32_000

# Which of the tokenizers a model has, by how its name begins; from generation 5 on all have had the newest.
_ENCODINGS = (
    (re.compile(r"gpt-4o|gpt-4\.[1-9]|gpt-[5-9]|gpt-(?!35)[1-9]\d|gpt-oss|chatgpt|codex|o[1-9]\b"), "o200k_base"),
    (re.compile(r"gpt-4|gpt-3\.5|gpt-35|text-embedding-3|text-embedding-ada-002"), "cl100k_base"),
)

Count = Callable[[str], int]


def count_tokens(text: str, model: str = "") -> int:
    count = _counter(model)
    if count is None:
        return estimated(text)
    if len(text) > COUNTED:
        return _from_pieces(text, count)
    try:
        return count(text)
    except UnicodeEncodeError:  # half of a surrogate pair
        return count(text.encode(errors="replace").decode())


def estimated(text: str) -> int:
    """Four bytes a token, never less than one."""
    size = len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
    return max(1, (size + 3) // 4)


def _from_pieces(text: str, count: Count) -> int:
    """What the beginning, the middle and the end have, for the whole length."""
    middle = len(text) // 2
    pieces = "".join((text[:_PIECE], text[middle : middle + _PIECE], text[-_PIECE:])).encode(errors="replace").decode()
    return count(pieces) * len(text) // len(pieces)


@lru_cache(1024)
def _counter(model: str) -> Count | None:
    """None where the model's tokenizer is not known."""
    name = _bare(model)
    encoding = next((encoding for begins, encoding in _ENCODINGS if begins.match(name)), None)
    return _tokenizer(encoding).count if encoding else None


def _bare(model: str) -> str:
    """The name without what providers put around it: `openrouter:openai/gpt-4o:free` is a gpt-4o."""
    name = model.split(":", 1)[-1].split("@http", 1)[0].removeprefix("ft:")
    return name.rsplit("/", 1)[-1].split(":", 1)[0].lower()


@lru_cache
def _tokenizer(encoding: str) -> Any:
    return _bindings().tokenizer_for_encoding(encoding)


@lru_cache(1)
def _bindings() -> Any:
    """The tokenizers in Rust, without the package around them: that one first reads each vocabulary into a dictionary of its own,
    which costs a third of a second and 70 MB, and we only count."""
    name = "bpe_openai._bindings"
    if name in sys.modules:
        return sys.modules[name]
    package = find_spec("bpe_openai")
    folders = package.submodule_search_locations if package is not None else None
    files = Path((folders or [""])[0]).glob("_bindings.*")
    library = next(file for file in files if file.name.endswith(tuple(EXTENSION_SUFFIXES)))
    spec = spec_from_file_location(name, library, loader=ExtensionFileLoader(name, str(library)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[name] = module
    return module
