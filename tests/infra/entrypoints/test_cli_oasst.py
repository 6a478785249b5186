"""The real OpenAssistant file through the command line, against a plain walk of the file."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.support.cli_world import ask, ask_lines, run

import chatledger

ROOT = Path(__file__).resolve().parents[3]
FILE = Path(os.environ.get("CHATLEDGER_OASST") or ROOT.parent / "shared" / "data" / "oasst1-en-validation.jsonl")

pytestmark = pytest.mark.skipif(not FILE.is_file(), reason=f"needs {FILE.name}; CHATLEDGER_OASST names its place")


class Walk:
    """The content of the file, read line by line without any of our code."""

    def __init__(self) -> None:
        rows = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
        known = {row["message_id"] for row in rows}
        self.rows = {row["message_id"]: row for row in rows}
        self.trees: dict[str, dict[str, str | None]] = {}
        self.children: dict[str, set[str]] = {}
        for row in rows:
            # A message whose parent is not in the file becomes a root.
            parent = row["parent_id"] if row["parent_id"] in known else None
            self.trees.setdefault(row["message_tree_id"], {})[row["message_id"]] = parent
            if parent is not None:
                self.children.setdefault(parent, set()).add(row["message_id"])

    def path(self, tree_id: str, leaf: str | None) -> list[str]:
        """From the root of a tree to a leaf."""
        found: list[str] = []
        while leaf is not None:
            found.insert(0, leaf)
            leaf = self.trees[tree_id][leaf]
        return found


def check_against(walk: Walk, location: Path) -> dict[str, Any]:
    """Every chat, parent link, text, fork, leaf and branch. Returns what was asked."""
    chats = {chat["id"]: chat for chat in ask("chats", at=location)}
    assert chats.keys() == walk.trees.keys()
    with chatledger.open(location):  # the commands share it, so that no server starts for each of them
        shown = {chat_id: ask("show", chat_id, at=location) for chat_id in chats}
    for chat_id, parents in walk.trees.items():
        messages = {message["id"]: message for message in shown[chat_id]["messages"]}
        branches = shown[chat_id]["branches"]
        leaves = {id_ for id_ in parents if id_ not in walk.children}
        children: dict[str, set[str]] = {}
        for message in messages.values():
            if message["parent_id"] is not None:
                children.setdefault(message["parent_id"], set()).add(message["id"])

        assert chats[chat_id]["message_count"] == len(parents)
        assert parents == {id_: message["parent_id"] for id_, message in messages.items()}
        assert children == {id_: found for id_, found in walk.children.items() if id_ in parents}
        assert {branch["head_message_id"] for branch in branches} == leaves
        assert len(branches) == len(leaves)
        assert [branch["name"] for branch in branches if branch["is_active"]] == ["main"]
        for id_, message in messages.items():
            assert message["data"]["parts"] == [{"type": "text", "text": walk.rows[id_]["text"]}]
            assert message["name"] == {"prompter": "user"}.get(walk.rows[id_]["role"], "assistant")
    return {"chats": chats, "shown": shown}


@pytest.mark.soak
def test_oasst_end_to_end(tmp_path: Path) -> None:
    """Import, rebuild and a second import: each time what the file says, and the log says it once."""
    walk = Walk()
    location = tmp_path / "data"
    imported = run("import", FILE, at=location)

    assert imported.exit_code == 0
    assert imported.stdout.startswith("Imported 191 chats: 191 new, 0 changed, 0 unchanged.\n2,022 messages")
    orphans = [row for row in walk.rows.values() if row["parent_id"] is not None and row["parent_id"] not in walk.rows]
    assert imported.stderr.count("\n") == imported.stderr.count("becomes a root") == len(orphans)
    assert len(walk.rows) == 2022
    assert len(walk.trees) == 191
    first = check_against(walk, location)
    for tree_id in sorted(walk.trees, key=lambda tree: len(walk.trees[tree]))[-3:]:
        for branch in first["shown"][tree_id]["branches"]:
            chain = ask("show", tree_id, "--branch", branch["name"], at=location)["messages"]
            assert walk.path(tree_id, branch["head_message_id"]) == [message["id"] for message in chain]
    assert run("rebuild", at=location).exit_code == 0
    assert first == check_against(walk, location)

    position = ask_lines("log", at=location)[-1]["position"]
    again = run("import", FILE, at=location)
    assert again.exit_code == 0
    assert again.stdout.startswith("Nothing changed: 191 chats read, all here already.\n")
    assert position == ask_lines("log", at=location)[-1]["position"]
