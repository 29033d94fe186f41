"""What the engine tells a model besides: that its steps, tokens or time come to an end, that it repeats itself; and when it
is over."""

from collections.abc import Set as AbstractSet

from stigmergy.agents.model import Definition
from stigmergy.runs.model import Run

# From here on a model is warned.
WARN_AT = 0.7


def over_limit(run: Run, definition: Definition) -> str | None:
    """Why a run may not think again."""
    if run.step >= run.max_steps:
        return f"max_steps: {run.step} steps without an answer"
    most = definition.limits.max_tokens
    if most is not None and run.tokens_used >= most:
        return f"max_tokens: {run.tokens_used:,} tokens of {most:,} are used"
    return None


def notes_for(run: Run, definition: Definition, repeated: AbstractSet[tuple[str, str]], now: int) -> list[str]:
    notes: list[str] = []
    limits = definition.limits
    begun = run.max_steps - limits.max_steps  # a run that was woken has its steps again
    if run.step - begun >= WARN_AT * limits.max_steps:
        notes.append(f"You have {run.max_steps - run.step} of {limits.max_steps} steps left. Come to an answer.")
    if limits.max_tokens is not None and run.tokens_used >= WARN_AT * limits.max_tokens:
        notes.append(f"You have used {run.tokens_used:,} of {limits.max_tokens:,} tokens. Come to an answer.")
    if run.deadline - now <= (1 - WARN_AT) * limits.deadline_ms:
        notes.append(f"You have {max(0, run.deadline - now) // 1000} seconds left. Come to an answer.")
    for name, _ in sorted(repeated):
        notes.append(f"You have called {name} with the same arguments three times of late. Do something else, or answer.")
    return notes
