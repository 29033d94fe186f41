"""What it costs a write to be matched: one predicate, and an index of ten thousand rules beside an empty one.

    PYTHONPATH=tests python bench/matching.py

It takes a few seconds; each figure is the best of several rounds.
"""

import time
import timeit
from collections.abc import Callable
from typing import Any

from stigmergy.kernel.conditions import compile_condition
from stigmergy.kernel.matching import CompiledRule, RuleIndex, compile_rule
from stigmergy.kernel.predicates import Matcher
from stigmergy.kernel.selectors import ContextMatch, Selector, compile_selector, parse_event
from support.subjects import Write

TEMPLATES = {"tasks": "users/{owner_id}/orch-chats/{space_id}/tasks"}
RULES = 10_000


WRITE = Write(
    {"status": "failed", "n": 3, "title": "hello", "session": "s7"},
    before={"status": "running"},
    context={"page": {"kind": "x"}},
    tags=("a", "b", "session:7"),
)


def microseconds(call: Callable[[Any], Any], argument: Any, rounds: int = 7) -> float:
    timer = timeit.Timer("call(argument)", globals={"call": call, "argument": argument})
    number = max(1, int(0.02 / min(timer.repeat(3, 1))))
    return min(timer.repeat(rounds, number)) / number * 1e6


def show(what: str, cost: float, beside: float, of: str) -> None:
    print(f"{what:<62} {cost:>9.3f} µs  {cost / beside:>8.1f} x {of}", flush=True)


def predicates() -> None:
    idle = microseconds(lambda subject: True, WRITE)
    print(f"{'a function that returns True':<62} {idle:>9.3f} µs")
    two_tags = Selector(all_tags=("a", "b"), context_match=(ContextMatch("page.kind", "eq", "x"),))
    for what, matcher in (
        ("status == 'failed'", compile_condition("status == 'failed'")),
        ("status in ['failed', 'dead'] && n > 2", compile_condition("status in ['failed', 'dead'] && n > 2")),
        ("update (status='failed')", parse_event("update (status='failed')")["update"] or Matcher(bool)),
        ("selector: two tags and one equality", compile_selector(two_tags)),
        ("CEL: size(title) == 5", compile_condition("size(title) == 5")),
        ("CEL, but a native term says no first", compile_condition("size(title) == 5 && status == 'x'")),
    ):
        show(what, microseconds(matcher.predicate, WRITE), idle, "a function call")


def rules(kind: str) -> list[CompiledRule]:
    def made(n: int) -> CompiledRule:
        selector = Selector(schema_name="task.v1", any_tags=(f"session:{n}",)) if kind == "tag" else None
        condition = {
            "session, ten each": f"session == 's{n % (RULES // 10)}' && n > 2",
            "session, none": f"session == 'none{n}' && n > 2",
            "several kinds": (f"session == 'none{n}'", f"status == 'x{n}'", f"n == {n + 100}")[n % 3],
        }.get(kind, "")
        shorthand = parse_event("update")
        compiled = None if selector is None else compile_selector(selector)
        return compile_rule(f"r{n}", "tasks", shorthand, compiled, compile_condition(condition), templates=TEMPLATES)

    return [made(n) for n in range(RULES)]


def index() -> None:
    empty = microseconds(RuleIndex([]).match, WRITE)
    print(f"{'an empty index':<62} {empty:>9.3f} µs")
    for what, kind, expected in (
        ("none fires", "session, none", 0),
        ("none fires, three fields asked", "several kinds", 0),
        ("one fires, found by its tag", "tag", 1),
        ("ten fire, found by an equality", "session, ten each", 10),
    ):
        begin = time.perf_counter()
        compiled = rules(kind)
        middle = time.perf_counter()
        filed = RuleIndex(compiled)
        end = time.perf_counter()
        assert len(filed.match(WRITE)) == expected
        show(f"{RULES:,} rules, {what}", microseconds(filed.match, WRITE), empty, "an empty index")
        print(f"{'':4}compiled in {(middle - begin) * 1e3:,.0f} ms, filed in {(end - middle) * 1e3:,.0f} ms")
    everyone = [rule.matches for rule in rules("session, none")]
    one_by_one = microseconds(lambda write: [ask(write) for ask in everyone], WRITE, 3)
    show(f"{RULES:,} rules, asked one by one", one_by_one, empty, "an empty index")


def worst() -> None:
    """The slowest terms that are accepted, over the largest values they are given."""
    numbers = list(range(1000))
    for text, data in (
        ("x.all(i, duration(i) > duration('1s'))", {"x": ["1h" * 60] * 500}),
        ("x.all(i, {'a': y} == {'a': y})", {"x": numbers[:100], "y": numbers[:90]}),
        ("size(x) == 330", {"x": [{"a": i, "b": "x"} for i in range(330)]}),
        ("x.filter(i, true).size() == 120", {"x": numbers[:120]}),
        ("y.matches('\\\\w\\\\w\\\\w\\\\w\\\\w\\\\w\\\\w')", {"y": "abcdefg"}),
        ("title == 'x' || size(title) == 5", {"title": "hello", "body": "x" * 1_048_576}),
    ):
        write, condition = Write(data), compile_condition(text)
        print(f"{text[:62]:<62} {microseconds(condition.predicate, write, 3):>9.1f} µs", flush=True)


if __name__ == "__main__":
    print("Predicates")
    predicates()
    print("\nThe index")
    index()
    print("\nThe worst that is accepted")
    worst()
