"""From a model's name to the model: a program's own first, then `scripted:FILE`."""

from collections.abc import Mapping

from stigmergy.agents.models.port import Model
from stigmergy.agents.models.scripted import load_script
from stigmergy.errors import Invalid


def named_model(name: str, own: Mapping[str, Model]) -> Model:
    """`Invalid` for a name that means nothing here, with what can be done about it."""
    if name in own:
        return own[name]
    if name.startswith("scripted:"):
        return load_script(name.removeprefix("scripted:"))
    raise Invalid(
        f"there is no model {name!r}; name a provider's, such as openai:gpt-5-mini, or scripted:FILE", "model", "unknown_model"
    )
