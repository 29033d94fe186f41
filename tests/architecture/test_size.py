"""Files and functions stay small: the aim is shown when it is missed, and far beyond it the test fails."""

import ast
import math
import warnings

import pytest

from support.repository import ROOT, files

FILE_AIM, FILE_LIMIT = 500, 650
FUNCTION_AIM, FUNCTION_LIMIT = 60, 90
FUNCTION_P95_LIMIT = 45

pytestmark = pytest.mark.filterwarnings("default:beyond the aim")


def file_sizes() -> dict[str, int]:
    return {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in files("*.py")}


def function_sizes() -> dict[str, int]:
    sizes: dict[str, int] = {}
    for path in files("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
                sizes[f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"] = node.end_lineno - node.lineno + 1
    return sizes


@pytest.mark.parametrize(
    ("measure", "aim", "limit"),
    [(file_sizes, FILE_AIM, FILE_LIMIT), (function_sizes, FUNCTION_AIM, FUNCTION_LIMIT)],
    ids=["files", "functions"],
)
def test_lines_stay_within_the_limit(measure, aim, limit):
    outliers = {name: lines for name, lines in measure().items() if lines > aim}
    if outliers:
        longest_first = sorted(outliers.items(), key=lambda item: -item[1])
        warnings.warn(f"beyond the aim of {aim} lines: {longest_first}", stacklevel=1)
    assert not {name: lines for name, lines in outliers.items() if lines > limit}


def test_nearly_all_functions_are_short():
    lines = sorted(size for name, size in function_sizes().items() if name.startswith("src/"))
    assert lines[math.ceil(0.95 * len(lines)) - 1] <= FUNCTION_P95_LIMIT
