"""Exports of Open WebUI, LibreChat and DeepSeek; each fixture has the shapes of three versions of them."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.imported_files import read

import chatledger
from chatledger.importers import ImportedChat, ImportResult, detect_format

DATA = Path(__file__).resolve().parents[3] / "tests" / "data"
FILES = {
    "openwebui": ["openwebui_chats.json"],
    "librechat": ["librechat_tree.json", "librechat_flat.json"],
    "deepseek": ["deepseek_conversations.json"],
}


def shape(chat: ImportedChat) -> list[tuple[str, str | None, str]]:
    return [(message.id, message.parent_id, message.name) for message in chat.messages]


def parts(chat: ImportedChat, message_id: str) -> list[tuple[str, Any]]:
    """Types of parts with their main field."""
    (message,) = (message for message in chat.messages if message.id == message_id)
    keys = ("text", "url", "output", "data")
    return [(part["type"], next(part[key] for key in keys if key in part)) for part in message.data["parts"]]


def heads(chat: ImportedChat) -> dict[str, str | None]:
    return {branch.name: branch.head_message_id for branch in chat.branches}


@pytest.mark.parametrize(("name", "file"), [(name, file) for name, files in FILES.items() for file in files])
def test_detected_and_imported_once(name: str, file: str) -> None:
    """By its content; once more changes nothing, and every branch is there."""
    assert name == detect_format(DATA / file)
    with chatledger.open("memory:") as ledger:
        chats, problems = read(DATA / file, strict=True)
        results = [ledger.import_chat(chat) for chat in chats]
        again = [ledger.import_chat(chat) for chat in read(DATA / file)[0]]

        assert (problems, all(result.messages_added for result in results)) == ([], True)
        assert again == [ImportResult(chat_id=result.chat_id) for result in results]
        assert [chat.title for chat in chats] == [ledger.get_chat(chat.id).title for chat in chats]  # type: ignore[union-attr]


def test_open_webui() -> None:
    """Thoughts, calls and their results, files and pages, ratings; the branch that was seen last is main."""
    tree, alone, old = read(DATA / "openwebui_chats.json", strict=True)[0]
    _, first, second = tree.messages

    assert (tree.user_id, tree.created_at, tree.updated_at) == ("u-7", 1_700_000_000_000, 1_700_000_030_000)
    assert {"source": "openwebui", "models": ["deepseek-r1"], "tags": ["animals"], "pinned": True} == {
        key: value for key, value in (tree.metadata or {}).items() if value is not False
    }
    assert shape(tree) == [("ow-q", None, "user"), ("ow-a1", "ow-q", "assistant"), ("ow-a2", "ow-q", "assistant")]
    assert heads(tree) == {"main": "ow-a2", "main-v2": "ow-a1"}
    assert parts(tree, "ow-q") == [
        ("text", "What do foxes eat?"),
        ("file", "data:image/png;base64,iVBORw0K"),
        ("data-openwebui", {"type": "file", "id": "f1", "name": "den.pdf"}),
    ]
    assert parts(tree, "ow-a1") == [
        ("reasoning", "Voles & berries."),
        ("text", "Voles."),
        ("data-openwebui", {"error": {"content": "cut off"}}),
    ]
    assert parts(tree, "ow-a2") == [
        ("reasoning", "Look it up."),
        ("dynamic-tool", "voles, berries"),
        ("text", "Voles and berries."),
        ("source-url", "https://fox.example"),
        ("data-openwebui", {"source": {"name": "den.pdf"}, "metadata": {"source": "den.pdf"}}),
    ]
    assert (first.annotation and first.annotation.metadata) == {"rating": -1, "comment": "too short"}
    assert (second.notes, second.created_at) == (
        {"model": "deepseek-r1", "usage": {"total_tokens": 9}},
        1_700_000_020_000,
    )
    assert (alone.title, alone.created_at, shape(alone)) == ("Alone", 1_744_577_557_000, [("ow-only", None, "user")])
    assert (old.title, shape(old)) == ("Old", [("o1", None, "user"), ("o2", "o1", "assistant")])


def test_librechat() -> None:
    """A tree and a flat list, from before there was `content` and after."""
    (tree,) = read(DATA / "librechat_tree.json", strict=True)[0]
    (flat,) = read(DATA / "librechat_flat.json", strict=True)[0]

    assert shape(tree) == [("lc-q", None, "user"), ("lc-a1", "lc-q", "assistant"), ("lc-a2", "lc-q", "assistant")]
    assert heads(tree) == {"main": "lc-a2", "main-v2": "lc-a1"}
    assert parts(tree, "lc-a1") == [("text", "Voles.")]
    assert parts(tree, "lc-a2") == [
        ("reasoning", "Look it up."),
        ("dynamic-tool", "voles"),
        ("text", "Voles, mostly."),
        ("data-librechat", {"type": "image_file", "image_file": {"file_id": "f1"}}),
    ]
    assert {"of": "fox"} == tree.messages[2].data["parts"][1]["input"]
    assert (tree.messages[0].created_at, tree.messages[1].notes) == (
        1_714_581_311_530,
        {"model": "gpt-x", "finish_reason": "stop"},
    )
    assert (tree.messages[1].annotation and tree.messages[1].annotation.metadata) == {"rating": "thumbsDown"}
    assert (tree.metadata or {})["options"] == {"model": "gpt-x", "promptPrefix": "You know animals."}
    assert [("f1", None, "user"), ("f2", "f1", "assistant"), ("f3", "f1", "assistant")] == shape(flat)


def test_a_deep_tree_of_librechat(tmp_path: Path) -> None:
    """A conversation may be longer than the interpreter's stack is deep."""
    text = '{"conversationId": "deep", "messagesTree": []}'
    pieces = [
        f'{{"messageId": "m{n}", "parentMessageId": "{f"m{n - 1}" if n else ""}", "text": "x", "children": ['
        for n in range(3000)
    ]
    path = tmp_path / "deep.json"
    path.write_text(text.replace("[]", f"[{''.join(pieces)}{']}' * 3000}]"), encoding="utf-8")
    ((chat,), problems) = read(path, strict=True)

    assert (len(chat.messages), problems) == (3000, [])
    assert heads(chat) == {"main": "m2999"}


def test_deepseek() -> None:
    """Ids stand for a conversation alone, so here they have its id before them."""
    tree, bare = read(DATA / "deepseek_conversations.json", strict=True)[0]

    assert shape(tree) == [
        ("ds-1:1", None, "user"),
        ("ds-1:2", "ds-1:1", "assistant"),
        ("ds-1:3", "ds-1:1", "assistant"),
    ]
    assert heads(tree) == {"main": "ds-1:3", "main-v2": "ds-1:2"}
    assert parts(tree, "ds-1:1") == [("text", "What do foxes eat?"), ("data-deepseek", {"file_name": "den.pdf"})]
    assert parts(tree, "ds-1:2") == [("reasoning", "Voles, I think."), ("text", "Voles.")]
    assert parts(tree, "ds-1:3") == [
        ("source-url", "https://fox.example"),
        ("text", "Berries.[citation:1]"),
        ("data-deepseek", {"type": "TIP", "content": "AI"}),
    ]
    assert tree.messages[2].data["parts"][0]["sourceId"] == "citation:1"
    assert (tree.created_at, tree.messages[1].notes) == (1_738_202_400_000, {"model": "deepseek-reasoner"})
    assert (bare.id, shape(bare)) == (
        "2024-12-31T10:30:00+03:00",
        [("2024-12-31T10:30:00+03:00:1", None, "user")],
    )


BROKEN: list[tuple[str, Any, list[str], str]] = [
    ("openwebui", {"id": 5, "chat": {"history": {"messages": {"a": {"role": "user"}}}}}, ["a"], ""),
    ("openwebui", {"id": "c", "chat": {"history": {"messages": {"a": {"content": "x"}}}}}, [], "has no sender"),
    ("librechat", {"conversationId": "c", "messages": [{"messageId": 1}]}, [], "is not a text"),
    (
        "librechat",
        {"conversationId": "c", "messages": [{"messageId": "a", "parentMessageId": "gone"}]},
        ["a"],
        "'gone', which is not there",
    ),
    (
        "deepseek",
        {"id": "c", "mapping": {"1": {"parent": None, "message": {"inserted_at": 1, "fragments": []}}}},
        [],
        "has no sender",
    ),
]


@pytest.mark.parametrize(("name", "value", "kept", "reason"), BROKEN)
def test_what_is_broken_is_left_out(tmp_path: Path, name: str, value: Any, kept: list[str], reason: str) -> None:
    path = tmp_path / "some.json"
    path.write_text(json.dumps([value]), encoding="utf-8")
    chats, problems = read(path)

    assert name == detect_format(path)
    assert kept == [message.id for chat in chats for message in chat.messages]
    assert (not reason) == (not problems)
    assert any(reason in str(problem) for problem in problems) or not reason
