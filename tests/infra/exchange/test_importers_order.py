"""An import changes nothing that is there: in whatever order an export comes, in however many files, however often."""

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.soak import examples

import chatledger
from chatledger import Ledger, user
from chatledger.importers import ImportResult, import_chats, read_chats

NAMES = ("A", "B", "C")
Tree = dict[str, str | None]
"""The messages of a conversation, parents first, with their parents."""


@st.composite
def conversations(draw: st.DrawFn) -> dict[str, Tree]:
    """Conversations that were continued in others: each has some of the messages that all could share, and its own."""
    shared: Tree = {}
    for number in range(draw(st.integers(1, 4))):
        shared[f"s{number}"] = draw(st.sampled_from([None, *shared]))
    found: dict[str, Tree] = {}
    for name in NAMES[: draw(st.integers(2, 3))]:
        tree: Tree = {}
        for message_id, parent in shared.items():
            if (parent is None or parent in tree) and draw(st.booleans()):
                tree[message_id] = parent
        for number in range(draw(st.integers(1, 3))):
            tree[f"{name.lower()}{number}"] = draw(st.sampled_from([None, *tree]))
        found[name] = tree
    return found


def chatgpt(name: str, tree: Tree) -> dict[str, Any]:
    nodes = {
        key: {"parent": parent, "message": {"author": {"role": "user"}, "content": {"parts": [f"text of {key}"]}}}
        for key, parent in tree.items()
    }
    return {"conversation_id": name, "title": name, "mapping": nodes, "current_node": list(tree)[-1]}


def claude(name: str, tree: Tree) -> dict[str, Any]:
    messages = [
        {"uuid": key, "parent_message_uuid": parent, "sender": "human", "text": f"text of {key}"}
        for key, parent in tree.items()
    ]
    return {"uuid": name, "name": name, "chat_messages": messages}


def contents(ledger: Ledger) -> list[Any]:
    """All that a ledger has, where the ids of shared messages are those of the source: which chat has such an id is left to the first import."""
    found: list[Any] = []
    for chat in sorted(ledger.list_chats(), key=lambda chat: chat.id):
        export = ledger.export_chat(chat.id)

        def source(message_id: str | None, prefix: str = f"{chat.id}:") -> str | None:
            return message_id and message_id.removeprefix(prefix)

        messages = sorted((source(m.id), source(m.parent_id) or "", m.data["parts"]) for m in export.messages)
        branches = sorted((b.name, source(b.head_message_id), b.is_active) for b in export.branches)
        found.append((chat.id, chat.user_id, chat.title, chat.metadata, messages, branches))
    return found


def take_in(ledger: Ledger, path: Path, records: Sequence[Any]) -> list[ImportResult]:
    path.write_text(json.dumps(records), encoding="utf-8")
    chats = read_chats(path, on_problem=lambda problem: pytest.fail(str(problem)))
    return [one.get_result() for one in import_chats(ledger, chats)]


@pytest.mark.parametrize("as_exported", [chatgpt, claude])
@settings(deadline=None, max_examples=examples(15))
@given(data=st.data())
def test_any_order_any_split_any_number_of_times(
    tmp_path_factory: pytest.TempPathFactory, as_exported: Callable[[str, Tree], dict[str, Any]], data: st.DataObject
) -> None:
    trees = data.draw(conversations())
    records = [as_exported(name, tree) for name, tree in trees.items()]
    path = tmp_path_factory.mktemp("export") / "conversations.json"
    with chatledger.open("memory:") as expected:
        take_in(expected, path, records)
        once = contents(expected)
    assert {row[0]: len(row[4]) for row in once} == {name: len(tree) for name, tree in trees.items()}

    order = data.draw(st.permutations(records))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(order)))) | {0, len(order)})
    with chatledger.open("memory:") as ledger:
        for start, end in itertools.pairwise(cuts):
            take_in(ledger, path, order[start:end] * data.draw(st.integers(1, 2)))
        assert contents(ledger) == once

        # From now on every message has its id, and nothing changes any more.
        position = ledger.last_position()
        again = take_in(ledger, path, data.draw(st.permutations(records)))
        assert again == [ImportResult(chat_id=result.chat_id) for result in again]
        assert ledger.last_position() == position


def test_a_shared_message_keeps_its_id_when_the_chat_that_had_it_goes(tmp_path: Path) -> None:
    first, second = (chatgpt(name, {"r": None, name.lower(): "r"}) for name in "AB")
    path = tmp_path / "conversations.json"
    with chatledger.open("memory:") as ledger:
        take_in(ledger, path, [first, second])
        ids = [message.id for message in ledger.get_messages("B")]
        assert ids == ["B:r", "b"]
        assert ledger.get_messages("B")[0].data["id"] == "r"  # as it came
        ledger.delete_chat("A")

        assert take_in(ledger, path, [second]) == [ImportResult(chat_id="B")]
        assert [message.id for message in ledger.get_messages("B")] == ids


def test_a_chat_that_goes_on_here_takes_what_is_new_of_it(tmp_path: Path) -> None:
    """A later export of a chat that shares messages: the branch moves on below the ids that they have here."""
    path = tmp_path / "conversations.json"
    with chatledger.open("memory:") as ledger:
        take_in(ledger, path, [chatgpt("A", {"r": None}), chatgpt("B", {"r": None, "b": "r"})])
        (result,) = take_in(ledger, path, [chatgpt("B", {"r": None, "b": "r", "c": "b"})])

        assert (result.messages_added, result.versions_added, result.heads_moved) == (1, 0, 1)
        assert [message.id for message in ledger.get_messages("B")] == ["B:r", "b", "c"]


def test_an_id_too_long_for_a_prefix_becomes_a_digest(tmp_path: Path) -> None:
    long = "r" * 2040
    path = tmp_path / "conversations.json"
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("other", "ada")
        ledger.append("other", [user("hi", id=long)])
        for added in (1, 0):
            (result,) = take_in(ledger, path, [chatgpt("a longer chat", {long: None})])
            assert result.messages_added == added
        (message,) = ledger.get_messages("a longer chat")
        assert len(message.id) == 32
