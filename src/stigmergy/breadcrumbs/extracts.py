"""JSONPath (RFC 9535) that users write: bounded in the values it visits and returns; its patterns run in linear time."""

import re
import threading
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, cast

import jsonschema_rs
import msgspec
from iregexp_check import check as is_iregexp
from jsonpath_rfc9535 import JSONPathEnvironment, JSONPathError, JSONPathNode
from jsonpath_rfc9535.function_extensions import ExpressionType, FilterFunction
from jsonpath_rfc9535.parse import Parser
from jsonpath_rfc9535.segments import JSONPathChildSegment, JSONPathRecursiveDescentSegment, JSONPathSegment
from jsonpath_rfc9535.tokens import TokenStream

from stigmergy.breadcrumbs.formats import RuleFailed, Run
from stigmergy.breadcrumbs.paths import refuse

MAX_QUERY = 2048
MAX_EXTRACT = 1024 * 1024  # bytes of JSON that one extract gives
MAX_VISITS = 100_000  # values that an extract looks at

_encode = msgspec.json.encode
_metered = threading.Lock()  # one query at a time: they share the counter


class _Queries(JSONPathEnvironment):
    """JSONPath whose segments count what they visit."""

    visits = 0

    def setup_function_extensions(self) -> None:
        super().setup_function_extensions()
        self.function_extensions |= {"match": _Pattern(r"^(?:%s)$"), "search": _Pattern("(?:%s)")}

    def visit(self) -> None:
        self.visits += 1
        if self.visits > MAX_VISITS:
            raise RuleFailed(f"the query visits more than {MAX_VISITS} values")


class _Pattern(FilterFunction):
    """`match` and `search` by an engine without backtracking."""

    @property
    def arg_types(self) -> list[ExpressionType]:
        return [ExpressionType.VALUE, ExpressionType.VALUE]

    @property
    def return_type(self) -> ExpressionType:
        return ExpressionType.LOGICAL

    def __init__(self, frame: str) -> None:
        self._frame = frame

    def __call__(self, value: object, pattern: object) -> bool:
        if not isinstance(value, str) or not isinstance(pattern, str):
            return False
        matcher = _pattern(self._frame, pattern)
        return matcher is not None and matcher.is_valid(value)


@lru_cache(128)
def _pattern(frame: str, pattern: str) -> Any:
    if not is_iregexp(pattern):
        return None
    dots = re.sub(r"\\.|\[(?:\\.|[^\]\\])*\]|\.", lambda found: r"[^\n\r]" if found[0] == "." else found[0], pattern)
    try:
        return jsonschema_rs.validator_for({"pattern": frame % dots}, pattern_options=jsonschema_rs.RegexOptions())
    except (ValueError, jsonschema_rs.ValidationError):
        return None


class _Child(JSONPathChildSegment):
    def resolve(self, nodes: Iterable[JSONPathNode]) -> Iterable[JSONPathNode]:
        visit = _queries.visit
        for node in nodes:
            visit()
            for selector in self.selectors:
                for found in selector.resolve(node):
                    visit()
                    yield found


class _Descent(JSONPathRecursiveDescentSegment):
    def resolve(self, nodes: Iterable[JSONPathNode]) -> Iterable[JSONPathNode]:
        for node in nodes:
            for each in _descendants(node):
                for selector in self.selectors:
                    for found in selector.resolve(each):
                        _queries.visit()
                        yield found


def _descendants(node: JSONPathNode) -> Iterable[JSONPathNode]:
    waiting = [node]
    while waiting:
        _queries.visit()
        node = waiting.pop()
        yield node
        value = node.value
        below: list[tuple[Any, Any]] = []
        if isinstance(value, dict):
            below = list(cast(dict[str, Any], value).items())
        elif isinstance(value, list):
            below = list(enumerate(cast(list[Any], value)))
        below.reverse()
        waiting += [node.new_child(each, key, node) for key, each in below if each.__class__ in (dict, list)]


class _Parser(Parser):
    def parse_query(self, stream: TokenStream, *, in_filter: bool = False) -> Iterable[JSONPathSegment]:
        for segment in super().parse_query(stream, in_filter=in_filter):
            counting = _Descent if isinstance(segment, JSONPathRecursiveDescentSegment) else _Child
            yield counting(env=segment.env, token=segment.token, selectors=segment.selectors)


_Queries.parser_class = _Parser
_queries = _Queries()


def extract(query: str, where: str) -> Run:
    if len(query) > MAX_QUERY:
        refuse(f"a query has at most {MAX_QUERY} characters", where)
    try:
        compiled = _queries.compile(query)
    except (JSONPathError, RecursionError, ValueError) as failure:
        refuse(f"{query!r} is not JSONPath: {failure}", where)

    def run(context: dict[str, Any]) -> Any:
        with _metered:
            _queries.visits = 0
            found = [node.value for node in compiled.finditer(context)]
        if len(found) < 2:
            return found[0] if found else None
        size = 0
        for value in found:
            size += len(_encode(value))
            if size > MAX_EXTRACT:
                raise RuleFailed(f"the result is larger than {MAX_EXTRACT} bytes")
        return found

    return run
