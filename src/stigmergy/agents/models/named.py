"""From a model's name to the model: a program's own first, then `scripted:FILE`, `recorded:FILE`, then the providers'."""

from collections.abc import Mapping

from stigmergy.agents.models.port import Model
from stigmergy.agents.models.providers import provider_model
from stigmergy.agents.models.recorded import load_recording
from stigmergy.agents.models.scripted import load_script


def named_model(name: str, own: Mapping[str, Model]) -> Model:
    """`Invalid` for a name that means nothing here, with what can be done about it."""
    if name in own:
        return own[name]
    kind, _, rest = name.partition(":")
    if kind == "scripted":
        return load_script(rest)
    if kind == "recorded":
        return load_recording(rest)
    return provider_model(name)
