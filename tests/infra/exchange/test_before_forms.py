"""The export that a version before forms wrote is read for ever: `tests/recorded/export-3.jsonl`, which is never changed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.imported_files import read

import chatledger
from chatledger import ContextEngine, Ledger, Message
from chatledger.forms import to_openai

RECORDED = Path(__file__).resolve().parents[2] / "recorded" / "export-3.jsonl"


def lines() -> dict[str, dict[str, Any]]:
    """The messages as they stand in the file, by their ids."""
    records = map(json.loads, RECORDED.read_text(encoding="utf-8").splitlines())
    return {one["message"]["id"]: one["message"] for one in records if "message" in one}


@pytest.fixture(scope="module")
def ledger() -> Iterator[Ledger]:
    with chatledger.open("memory:") as opened:
        chats, problems = read(RECORDED, strict=True)
        assert problems == []
        for chat in chats:
            opened.import_chat(chat)
        yield opened


def found(ledger: Ledger, message_id: str) -> Message:
    message = ledger.get_message(message_id)
    assert message is not None
    return message


def test_all_of_it_is_there(ledger: Ledger) -> None:
    """Every message with its name and its time; the same again changes nothing."""
    written = lines()

    assert {key: (one["name"], one["created_at"], one["copied_from"]) for key, one in written.items()} == {
        key: ((message := found(ledger, key)).name, message.created_at, message.copied_from) for key in written
    }
    assert 0 == sum(ledger.import_chat(chat).messages_added for chat in read(RECORDED)[0])


@pytest.mark.parametrize(
    ("message_id", "form"),
    [("f1", "pydantic-ai"), ("f5", "llamaindex"), ("f6", "agent-framework")],
)
def test_a_message_of_a_framework_is_as_the_framework_gave_it(ledger: Ledger, message_id: str, form: str) -> None:
    message = found(ledger, message_id)

    assert (form, lines()[message_id]["data"]["native"]["value"]) == (message.form, message.data)


def test_entries_of_claude_code(ledger: Ledger) -> None:
    """A turn, bookkeeping, and one that JSON of the log could not say then, which was kept as text."""
    entries = [found(ledger, key) for key in lines() if key.startswith("frameworks:")]

    assert {"claude-code"} == {one.form for one in entries}
    assert ["user", "bookkeeping", "bookkeeping"] == [one.name for one in entries]
    assert ["user", "custom-title", "assistant"] == [one.data["type"] for one in entries]
    assert "Riga?" == entries[0].text
    assert "half \ud83d" == entries[2].data["message"]["content"]


def test_notes_of_a_framework_stay(ledger: Ledger) -> None:
    assert {"note": "mine"} == found(ledger, "f6").notes


def test_parts_that_somebody_changed_count(ledger: Ledger) -> None:
    """What the framework had given was no longer what the message said."""
    message = found(ledger, "f7")

    assert ("ui", "changed by hand") == (message.form, message.text)
    assert "native" not in message.data


def test_messages_of_apis_are_the_ui_messages_they_were(ledger: Ledger) -> None:
    """What could not be said there is noted beside them; the result of a tool is one of OpenAI's again, which says of what."""
    apis = {f"a{number}": found(ledger, f"a{number}") for number in range(1, 13)}

    assert {"a3", "a5", "a12"} == {key for key, one in apis.items() if one.form == "openai"}
    assert {"openai", "ui"} == {one.form for one in apis.values()}
    assert {"role": "tool", "tool_call_id": "c1", "content": "Sunny"} == found(ledger, "a3").data
    assert {"chatledger": {"name": "ada"}} == found(ledger, "a1").notes
    assert not any("chatledger" in one.data.get("metadata", {}) for one in apis.values())
    called = to_openai([found(ledger, key) for key in ("a1", "a2", "a3")])
    assert ["user", "assistant", "tool"] == [one["role"] for one in called]
    assert "c1" == called[1]["tool_calls"][0]["id"] == called[2]["tool_call_id"]


@pytest.mark.parametrize(
    ("message_id", "form", "metadata"),
    [
        ("p1", "ui", {"locale": "de", "source": {"page": 3}}),
        ("p2", "ui", {}),
        ("p3", None, {}),
        ("p4", None, {}),
        ("p5", "ui", {"synthetic": {"once_ids": ["hello"]}}),
        ("p6", "ui", {"model": "m", "synthetic": False}),
        ("p7", "ui", {}),
    ],
)
def test_other_messages_stay_as_they_were(
    ledger: Ledger, message_id: str, form: str | None, metadata: dict[str, Any]
) -> None:
    """With their own metadata where these stood."""
    message = found(ledger, message_id)

    assert (form, metadata) == (message.form, dict(message.metadata))
    assert lines()[message_id]["data"] == message.data


def test_a_conversation_goes_on(ledger: Ledger) -> None:
    """What fired once has fired, and the summary is one; the record of a cache is found in the notes."""
    engine = ContextEngine(ledger, "engine", "ada")
    first = found(ledger, "e1")

    assert 1 == engine.turn_count()
    assert ["time"] == first.metadata["once_ids"]
    assert "openai" == (found(ledger, "e2").notes or {})["chatledger"]["cache"]["provider"]
    assert {"model": "gpt"} == found(ledger, "e2").data["metadata"]
    assert "They spoke." in engine.resolve().messages[0]["parts"][0]["text"]


def test_what_is_exported_now_says_its_forms(ledger: Ledger, tmp_path: Path) -> None:
    """And is read back as it is, forms and notes included."""
    path = tmp_path / "export.jsonl"
    exported = list(ledger.export_all())
    with path.open("wb") as stream:
        chatledger.importers.write_all(stream, exported)
    chats, problems = read(path, strict=True)

    assert problems == []
    assert exported == chats
