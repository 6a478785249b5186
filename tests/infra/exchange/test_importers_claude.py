"""Claude's data export."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.support.imported_files import read

import chatledger
from chatledger.domain.errors import InvalidValueError
from chatledger.importers import ImportResult, detect_format

PATH = Path(__file__).resolve().parents[3] / "tests" / "data" / "claude_conversations.json"
EXPORT: list[dict[str, Any]] = json.loads(PATH.read_text(encoding="utf-8"))
TREE, LINE = EXPORT


def write(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def short(message_id: str | None) -> int | None:
    """The number in an id of the sample."""
    return None if message_id is None else int(message_id[-4:])


def test_an_export() -> None:
    """Titles, times, owner, the tree that parents make; a chat of an older export is a line."""
    (tree, line), problems = read(PATH, strict=True)

    assert problems == []
    assert (tree.id, tree.user_id, tree.title) == (TREE["uuid"], TREE["account"]["uuid"], "Leeks")
    assert (tree.created_at, tree.updated_at) == (1_747_303_200_000, 1_747_384_200_000)
    assert {"source": "claude", "summary": "About cooking."} == tree.metadata
    assert [(1, None), (2, 1), (3, 1), (4, 3), (5, 4)] == [(short(m.id), short(m.parent_id)) for m in tree.messages]
    assert [("main", 5, True), ("main-v2", 2, False)] == [
        (branch.name, short(branch.head_message_id), branch.is_active) for branch in tree.branches
    ]
    assert ["user", "assistant", "assistant", "user", "assistant"] == [message.name for message in tree.messages]
    assert 1_747_303_201_123 == tree.messages[0].created_at
    assert [(11, None), (12, 11)] == [(short(m.id), short(m.parent_id)) for m in line.messages]
    assert (line.title, line.messages[1].data["parts"]) == (None, [{"type": "text", "text": "Hi! How can I help?"}])


def test_blocks_and_attachments() -> None:
    """Thinking, calls with their results, the text of attachments; what has no part is kept as it is."""
    (tree, _), _ = read(PATH)
    thought, read_by_model, called = (tree.messages[at].data["parts"] for at in (1, 3, 4))

    assert [("reasoning", "Soup is easy."), ("text", "A soup, with potatoes.")] == [
        (p["type"], p["text"]) for p in thought
    ]
    assert ["no dairy, please", {"file_name": "oven.jpg"}] == [
        part.get("text") or part["data"] for part in read_by_model
    ]
    assert ["dynamic-tool", "text", "data-claude"] == [part["type"] for part in called]
    assert (
        "search",
        "toolu_1",
        "output-available",
        {"query": "vegan tart"},
        [{"type": "text", "text": "Tofu works."}],
    ) == tuple(called[0][key] for key in ("toolName", "toolCallId", "state", "input", "output"))


def test_citations_are_sources_and_summaries_are_thoughts(tmp_path: Path) -> None:
    """A page stands after the text that cites it, once for each place; what has no address is kept as it is."""

    def citation(place: int, details: dict[str, Any]) -> dict[str, Any]:
        return {"uuid": f"c-{place}", "start_index": place, "end_index": place + 5, "details": details}

    page = {"type": "web_search_citation", "url": "https://a.example", "title": "A"}
    cited = [citation(0, page), citation(0, page), citation(7, page), citation(9, {"type": "file"})]
    blocks: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "", "summaries": [{"summary": "Compares"}, {"summary": "towns."}]},
        {"type": "text", "text": "Ravello, then Rome.", "citations": cited},
    ]
    message = {**TREE["chat_messages"][0], "content": blocks}
    changed = {**TREE, "model": "claude-x", "chat_messages": [message]}
    ((chat,), problems) = read(write(tmp_path / "c.json", [changed]), strict=True)
    thought, text, *sources = chat.messages[0].data["parts"]

    assert (problems, (chat.metadata or {})["model"]) == ([], "claude-x")
    assert ("reasoning", "Compares\n\ntowns.") == (thought["type"], thought["text"])
    assert {"type": "text", "text": "Ravello, then Rome."} == text
    assert [("c-0", "https://a.example", "A"), ("c-7", "https://a.example", "A")] == [
        (part["sourceId"], part["url"], part["title"]) for part in sources[:2]
    ]
    assert [{"type": "data-claude", "data": cited[3]}] == sources[2:]


def test_calls_without_ids_and_failed_ones(tmp_path: Path) -> None:
    """A result goes to the call of its name."""
    blocks: list[dict[str, Any]] = [
        {"type": "tool_use", "name": "search", "input": {}},
        {"type": "tool_result", "name": "search", "content": [{"type": "text", "text": "no net"}], "is_error": True},
        {"type": "tool_result", "name": "search", "content": "late"},
    ]
    message = {**TREE["chat_messages"][0], "content": blocks}
    ((chat,), problems) = read(write(tmp_path / "c.json", [{**TREE, "chat_messages": [message]}]), strict=True)
    call, late = chat.messages[0].data["parts"]

    assert problems == []
    assert ("output-error", "no net", "data-claude") == (call["state"], call["errorText"], late["type"])


def test_the_zip_is_told_from_that_of_chatgpt(tmp_path: Path) -> None:
    """Both hold a conversations.json."""
    path = tmp_path / "data.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(PATH, "conversations.json")
        archive.writestr("users.json", "[]")

    assert "claude" == detect_format(path)
    assert read(PATH) == read(path)


def test_importing_again_changes_nothing() -> None:
    with chatledger.open("memory:") as ledger:
        first = [ledger.import_chat(chat) for chat in read(PATH)[0]]
        again = [ledger.import_chat(chat) for chat in read(PATH)[0]]

        assert [5, 2] == [result.messages_added for result in first]
        assert again == [ImportResult(chat_id=result.chat_id) for result in first]
        assert ["Leeks", None] == [chat.title for chat in ledger.list_chats()]
        assert ["no dairy, please"] == [hit.message.text for hit in ledger.search("dairy")]


BROKEN: list[tuple[dict[str, Any], list[int], str]] = [
    ({"uuid": 5}, [], "the uuid of conversation 1 is not a text"),
    ({"chat_messages": {}}, [], "conversation 1 has no list of chat_messages"),
    ({"chat_messages": [*TREE["chat_messages"][:2], {}]}, [1, 2], "message 3 of chat"),
    (
        {"chat_messages": [TREE["chat_messages"][0], {**TREE["chat_messages"][1], "sender": None}]},
        [1],
        "has no sender",
    ),
    ({"created_at": "soon"}, [1, 2, 3, 4, 5], "is not an ISO 8601 time"),
]


@pytest.mark.parametrize(("change", "kept", "reason"), BROKEN)
def test_what_is_broken_is_left_out(tmp_path: Path, change: dict[str, Any], kept: list[int], reason: str) -> None:
    """One message, one time, or one conversation; strictly it is refused."""
    path = write(tmp_path / "c.json", [{**TREE, **change}, LINE])
    chats, problems = read(path)

    assert [*([kept] if kept else []), [11, 12]] == [[short(message.id) for message in chat.messages] for chat in chats]
    assert [reason in problem.message for problem in problems] == [True]
    with pytest.raises(InvalidValueError, match=r"c\.json"):
        read(path, strict=True)


def test_what_follows_a_skipped_message_goes_to_the_one_before(tmp_path: Path) -> None:
    messages = [dict(message) for message in TREE["chat_messages"]]
    del messages[2]["sender"]
    (chat,), _ = read(write(tmp_path / "c.json", [{**TREE, "chat_messages": messages}]))

    assert [(1, None), (2, 1), (4, 1), (5, 4)] == [(short(m.id), short(m.parent_id)) for m in chat.messages]


def test_the_leaf_that_the_export_names_is_main(tmp_path: Path) -> None:
    leaf = TREE["chat_messages"][1]["uuid"]
    (chat,), _ = read(write(tmp_path / "c.json", [{**TREE, "current_leaf_message_uuid": leaf}]))

    assert [("main", 2), ("main-v2", 5)] == [(b.name, short(b.head_message_id)) for b in chat.branches]
