"""Detection runs when a message is written or handed in, never when it is read."""

import ast
from pathlib import Path

import pytest

from chatledger.domain import errors

ROOT = Path(errors.__file__).resolve().parent.parent
ALLOWED = {
    "domain/chat/decide_messages.py": "where a draft becomes a message",
    "domain/chat/import_fit.py": "the names of forms, to repair what a file says",
    "domain/context/engine/reading.py": "what is handed to a context engine",
    "domain/context/in_forms.py": "messages that are handed to `to_openai` and its like as they are",
    "domain/versioned/messages.py": "messages in the values of agents, which name no form; told once, when the index takes them in",
    "infra/exchange/jsonl.py": "an importer",
    "infra/exchange/deepagents.py": "an importer",
    "infra/exchange/linear.py": "an importer",
    "infra/ledger/drafts.py": "where dicts and objects of SDKs become drafts",
}


@pytest.mark.guard
def test_only_what_makes_messages_tells_forms() -> None:
    """Whoever reads a message asks for its stored form; see `Message.form`."""
    found = {
        path.relative_to(ROOT).as_posix()
        for layer in ("domain", "projections", "infra")
        for path in (ROOT / layer).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").rpartition(".")[2] == "detect"
    }

    assert ALLOWED.keys() == found
