import ast
from pathlib import Path

import pytest

import chatledger.domain

ROOT = Path(chatledger.domain.__file__).resolve().parent
MODULES = sorted(ROOT.rglob("*.py"))
BANNED_IMPORTS = {
    "asyncio", "io", "os", "pathlib", "random", "secrets", "socket", "subprocess", "sys", "tempfile",
    "threading", "time", "uuid",
}  # fmt: skip
"""Not `datetime`: dates are values. What reads the clock there, `now` and its like, tests/test_tidy.py bans."""
BANNED_NAMES = {"open", "print", "input", "eval", "exec", "globals", "__import__"}


def test_the_modules_are_found() -> None:
    """The scan looks at the whole layer."""
    assert {"state.py", "codec.py", "folded.py", "messages.py"} <= {path.name for path in MODULES}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_domain_is_pure(path: Path) -> None:
    """No clock, no randomness, no I/O: ids and times are arguments, so the same events give the same state everywhere."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names if name.name.partition(".")[0] in BANNED_IMPORTS]
        if isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found += [node.module] if node.module.partition(".")[0] in BANNED_IMPORTS else []
        if isinstance(node, ast.Name) and node.id in BANNED_NAMES:
            found.append(node.id)
        if isinstance(node, ast.Global):
            found.append("global")

    assert [] == found, "take ids and times as arguments; the ledger in infra/ gives them"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_domain_keeps_no_state(path: Path) -> None:
    """Module variables in capitals are `Final` or tuples: nothing changes between two calls."""
    assignments = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Assign)]
    mutable = [ast.unparse(node) for node in assignments if isinstance(node.value, ast.List | ast.Dict | ast.Set)]

    assert [] == mutable
