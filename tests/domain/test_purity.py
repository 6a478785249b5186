import ast
from collections.abc import Iterator
from pathlib import Path

from chatledger.domain import errors

ROOT = Path(errors.__file__).resolve().parent
MODULES = sorted(ROOT.rglob("*.py"))
BANNED_IMPORTS = {
    "asyncio", "io", "os", "pathlib", "random", "secrets", "socket", "subprocess", "sys", "tempfile",
    "threading", "time", "uuid",
}  # fmt: skip
"""Not `datetime`: dates are values. What reads the clock there, `now` and its like, tests/test_tidy.py bans."""
BANNED_NAMES = {"open", "print", "input", "eval", "exec", "globals", "__import__"}


def test_the_modules_are_found() -> None:
    """The scan looks at the whole layer."""
    assert {"state.py", "codec.py", "replay.py", "messages.py"} <= {path.name for path in MODULES}


def test_the_domain_is_pure() -> None:
    """No clock, no randomness, no I/O: ids and times are arguments, so the same events give the same state everywhere."""
    found = [f"{path.name}: {what}" for path in MODULES for what in _impure(ast.parse(path.read_text()))]

    assert [] == found, "take ids and times as arguments; the ledger in infra/ gives them"


def _impure(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.partition(".")[0] in BANNED_IMPORTS)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield from [node.module] if node.module.partition(".")[0] in BANNED_IMPORTS else []
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in BANNED_NAMES:
            yield node.id
        elif isinstance(node, ast.Global):
            yield "global"


def test_the_domain_keeps_no_state() -> None:
    """Module variables in capitals are `Final` or tuples: nothing changes between two calls."""
    mutable = [
        f"{path.name}: {ast.unparse(node)}"
        for path in MODULES
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List | ast.Dict | ast.Set)
    ]

    assert [] == mutable
