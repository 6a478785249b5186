"""Sizes that must not grow, and words that must not appear."""

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

pytestmark = [pytest.mark.lint, pytest.mark.xdist_group("tidy")]  # one worker parses all modules

ROOT = Path(__file__).parent.parent
LAYERS = ("domain", "projections", "infra")
MODULES = sorted(
    path.relative_to(ROOT)
    for layer in LAYERS
    for path in (ROOT / layer).rglob("*.py")
    if "__pycache__" not in path.parts
)
MAX_FUNCTION_LINES = 50

WRITTEN = sorted(
    path.relative_to(ROOT)
    for folder in (*LAYERS, "src", "tests", "benchmarks", "docs")
    for path in (ROOT / folder).rglob("*.py")
    if "__pycache__" not in path.parts
)
RIDDLE = re.compile(r'\s*"""(What|Who|How many|How much)')
DEFINED = re.compile(r"\s*(?:async )?(?:def|class) (\w+)")

FILLER_NAMES = {"found", "given", "known", "said", "one", "asked"}
MOST_FILLERS = 3
"""In 1,000 lines with a statement of a layer."""

BANNED_IN_DOMAIN = {
    "now": "take the time as an argument, in ms",
    "today": "take the time as an argument, in ms",
    "utcnow": "take the time as an argument, in ms",
    "time_ns": "take the time as an argument, in ms",
    "uuid4": "take ids as arguments",
    "random": "take what was drawn as an argument",
}


@functools.cache
def _trees() -> list[tuple[Path, ast.AST]]:
    return [(module, ast.parse((ROOT / module).read_text())) for module in MODULES]


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines without the docstring: a documented function is not a long one."""
    first = node.body[0]
    has_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    documented = (first.end_lineno or 0) - first.lineno + 1 if has_docstring else 0
    return (node.end_lineno or 0) - node.lineno + 1 - documented


def test_functions_are_short() -> None:
    """A function that outgrows the budget has a second job: name it."""
    long = {
        f"{module}: {node.name}": _code_lines(node)
        for module, tree in _trees()
        for node in _functions(tree)
        if _code_lines(node) > MAX_FUNCTION_LINES
    }

    assert {} == long


def test_a_class_name_stands_for_one_thing() -> None:
    """Who searches for a name finds one class."""
    names = Counter(node.name for _, tree in _trees() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    assert {name for name, count in names.items() if count > 1} == set()


def test_names_say_the_role() -> None:
    """Names that fit any variable say nothing of it: they do not come back."""
    lines, fillers = Counter[str](), Counter[str]()
    for module, tree in _trees():
        layer = module.parts[0]
        lines[layer] += len({node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt)})
        fillers[layer] += sum(_name_of(node) in FILLER_NAMES for node in ast.walk(tree))
    assert {layer: count for layer, count in fillers.items() if 1000 * count / lines[layer] > MOST_FILLERS} == {}


def _name_of(node: ast.AST) -> str:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    return node.arg if isinstance(node, ast.arg) else ""


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Not for types either: where A needs B and B needs A, neither is understood without the other."""
    graph = grimp.build_graph("chatledger", *(f"chatledger.{layer}" for layer in LAYERS))
    TopologicalSorter({module: graph.find_modules_directly_imported_by(module) for module in graph.modules}).prepare()


def test_docstrings_begin_with_what_they_document() -> None:
    """The first word is a noun or a verb that a reader would search for. Only the claim of a test may begin as it likes."""
    found = [
        f"{module}:{number}"
        for module in WRITTEN
        for number, name in _riddles((ROOT / module).read_text(encoding="utf-8"))
        if not name.startswith("test_")
    ]

    assert [] == found


def _riddles(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line of each docstring that begins with a question, and the name that was defined before it."""
    name = ""
    for number, line in enumerate(text.splitlines(), 1):
        if defined := DEFINED.match(line):
            name = defined[1]
        elif RIDDLE.match(line):
            yield number, name


def test_domain_asks_nobody() -> None:
    """Decisions and folds read no clock and roll no dice: those come in as arguments."""
    found = {
        f"{module}: {word}": remedy
        for module, tree in _trees()
        if module.parts[0] == "domain"
        for word, remedy in _banned(tree)
    }

    assert {} == found


def _banned(tree: ast.AST) -> Iterator[tuple[str, str]]:
    # A parameter called `now` is the remedy, not the breach: only attributes such as `datetime.now` count for it.
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    used = attributes | {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    for word, remedy in BANNED_IN_DOMAIN.items():
        if word in (attributes if word == "now" else used):
            yield word, remedy
