"""What looks wrong about triggers that are right: above all, one that can start itself.

What an action is known to write is compared with what the triggers are about. A webhook or a handler writes its delivery, and
what its definition says under `writes`; an agent and a space message write what those parts write. `no` is certain; anything
that cannot be told is said to be possible.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from stigmergy.errors import Invalid
from stigmergy.kernel.matching import CompiledRule
from stigmergy.kernel.record import COLLECTIONS
from stigmergy.kernel.rules import Rule, compiled
from stigmergy.runs.model import RUN_MESSAGES, RUNS, TOOL_CALLS
from stigmergy.triggers.definitions import check_write
from stigmergy.triggers.fields import named_paths
from stigmergy.triggers.model import DELIVERED, Write, delivered_action


class Finding(NamedTuple):
    """Something to look at. `where` is the trigger's id."""

    where: str
    code: str
    message: str


class Sample(NamedTuple):
    """A write that an action is known to make: these fields have these values then; of others nothing is known."""

    collection: str
    event: str
    fields: dict[str, Any]


# What the parts write that start these kinds. Only what is in the collections of this program counts.
_STARTED: dict[str, tuple[Sample, ...]] = {
    "agent": (
        Sample(RUNS.name, "create", {}),
        Sample(RUNS.name, "update", {}),
        Sample(RUN_MESSAGES.name, "create", {"role": "system"}),
        Sample(RUN_MESSAGES.name, "create", {"role": "user"}),
        Sample(RUN_MESSAGES.name, "create", {"role": "assistant"}),
        Sample(RUN_MESSAGES.name, "create", {"role": "tool"}),
        Sample(TOOL_CALLS.name, "create", {}),
        Sample(TOOL_CALLS.name, "update", {}),
    ),
    "space_message": (Sample("space_messages", "create", {}),),
}


def lint(rules: Iterable[Rule]) -> list[Finding]:
    """The findings on these triggers, each alone."""
    return [finding for rule in rules for finding in (*_own_loop(rule), *_never(rule))]


def _own_loop(rule: Rule) -> list[Finding]:
    try:
        ready = compiled(rule)
    except Invalid:
        return []
    for sample in known_writes(rule):
        if may_fire(rule, ready, sample):
            fields = ", ".join(f"{name} = {value!r}" for name, value in sample.fields.items())
            what = f"{sample.event} of {sample.collection}{f' with {fields}' if fields else ''}"
            message = f"it can start itself: its action writes {what}, which it may match; narrow its pattern or its condition"
            return [Finding(rule.id, "self_start", message)]
    return []


def _never(rule: Rule) -> list[Finding]:
    if not rule.enabled:
        return [Finding(rule.id, "disabled", "it is disabled and matches nothing")]
    return []


def known_writes(rule: Rule) -> list[Sample]:
    samples = [sample for sample in _STARTED.get(rule.kind, ()) if sample.collection in COLLECTIONS]
    if rule.kind in DELIVERED:
        samples += [Sample("deliveries", event, {"trigger_id": rule.id, "kind": rule.kind}) for event in ("create", "update")]
        samples += [sample for write in delivered_action(rule).writes for sample in _samples(write)]
    return samples


def _samples(write: Write) -> list[Sample]:
    ready = check_write(write)
    found: list[Sample] = []
    for event, matcher in ready.matchers.items():
        fields = {anchor.source[1]: anchor.values[0] for anchor in matcher.anchors if anchor.source[0] == "data"}
        found += [Sample(collection, event, fields) for collection in sorted(ready.collections)]
    return found


def may_fire(rule: Rule, ready: CompiledRule, sample: Sample) -> bool:
    """Whether the trigger may match such a write. Where every field that decides is known, its own predicate says it."""
    matcher = ready.matchers.get(sample.event)
    if matcher is None or sample.collection not in ready.collections:
        return False
    for anchor in matcher.anchors:
        name = anchor.source[1] if len(anchor.source) == 2 and anchor.source[0] == "data" else None
        if name in sample.fields and sample.fields[name] not in anchor.values:
            return False
    named = {path for path, _ in named_paths(rule.condition)} if rule.condition else set[Sequence[str]]()
    if named and all(len(path) == 2 and path[0] == "data" and path[1] in sample.fields for path in named):
        return _holds(ready, sample)
    return True


def _holds(ready: CompiledRule, sample: Sample) -> bool:
    matcher = ready.matchers[sample.event]
    asked = [test for text, test in matcher.parts if text == ready.payload.condition]
    subject: Any = _Known(sample)
    return all(test(subject) for test in asked)


class _Known:
    """Of a change only what a sample knows of it."""

    def __init__(self, sample: Sample) -> None:
        self.data = sample.fields
        self.before = None
