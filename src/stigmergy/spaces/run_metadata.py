"""A run's metadata, as far as it is not its starter's: the keys under which this part keeps what it knows of a run, and what
those who start runs may say beside them. Pure."""

import msgspec

from stigmergy.errors import Invalid
from stigmergy.spaces.model import JsonObject, check_metadata

# Whose question the run is to answer: run and call.
ANSWERS = "answers"
# For each space that it looked at, [pos, message id] of the last message that it saw.
SHOWN = "shown"
OURS = (ANSWERS, SHOWN)
# It is kept with every version of its run.
LARGEST_METADATA = 16_384


def check_run_metadata(metadata: JsonObject) -> None:
    if not isinstance(metadata, dict):  # pyright: ignore[reportUnnecessaryIsInstance]  # a program may give anything
        raise Invalid("metadata is an object", "metadata")
    for key in OURS:
        if key in metadata:
            raise Invalid(f"{key!r} is a key of the engine's own; choose another", f"metadata.{key}")
    check_metadata(metadata)
    if len(msgspec.json.encode(metadata)) > LARGEST_METADATA:
        raise Invalid(f"metadata has at most {LARGEST_METADATA:,} bytes as JSON", "metadata", "too_large")
