"""Tables for analysis, and conversations for training: what a ledger has, in the files of others."""

import csv
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import chatledger
from chatledger import ConfigurationError, InvalidValueError, Ledger, NewMessage, user
from chatledger.exporters import (
    CONVERSATION_FORMATS,
    TABLES,
    arrow_batches,
    event_rows,
    table_rows,
    write_conversations,
    write_csv,
    write_parquet,
)
from chatledger.importers import ImportedChat, ImportedValue, read_chats

CALL: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Riga"}'}}
    ],
}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "Rain."}


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    """A chat with two branches, labels, a hidden message and a replaced one, a run; and a thread of agents."""
    with chatledger.open("memory:") as opened:
        opened.create_chat("trip", "ada", title="Riga", metadata={"channel": "mail"})
        for message_id, message in (
            ("s", {"role": "system", "content": "Be brief."}),
            ("u", {"role": "user", "content": "Weather in Riga?"}),
            ("c", CALL),
            ("r", RESULT),
            ("a", {"role": "assistant", "content": "It rains."}),
        ):
            opened.append("trip", NewMessage(message["role"], message, "openai", id=message_id))
        opened.fork("trip", "u")
        opened.append("trip", [NewMessage("assistant", {"role": "assistant", "content": "Wet."}, "openai", id="b")])
        opened.append("trip", [user("Oops", id="slip")])
        opened.annotate("trip", "slip", hidden=True)
        opened.annotate("trip", "a", metadata={"quality": 0.5, "verdict": "good", "is_safe": True})
        opened.record_run("trip", "run-1", assistant_id="weather", thread_id="trip", trigger_message_id="u")
        yield opened


def rows(ledger: Ledger, table: str) -> list[dict[str, Any]]:
    found = [*table_rows(ledger.export_all(), table)]
    assert all([*TABLES[table]] == [*row] for row in found)
    return found


def test_messages_say_whose_they_are(ledger: Ledger) -> None:
    """Every row has its chat, the plain text and whether it is on the active branch."""
    table = rows(ledger, "messages")

    assert [("s", None, "system"), ("u", "s", "user"), ("c", "u", "assistant"), ("r", "c", "tool")] == [
        (row["message_id"], row["parent_id"], row["role"]) for row in table[:4]
    ]
    assert {"trip"} == {row["chat_id"] for row in table}
    assert [*range(1, 8)] == [row["place"] for row in table]
    assert {"s", "u", "b", "slip"} == {row["message_id"] for row in table if row["is_active"]}
    assert ["slip"] == [row["message_id"] for row in table if row["is_hidden"]]
    assert "It rains." == table[4]["text"]
    assert (CALL, {"quality": 0.5, "verdict": "good", "is_safe": True}) == (
        json.loads(table[2]["data"]),
        json.loads(table[4]["labels"]),
    )


def test_other_tables(ledger: Ledger) -> None:
    (chat,) = rows(ledger, "chats")
    branches, labels, (run,) = (rows(ledger, name) for name in ("branches", "labels", "runs"))
    events = [*event_rows(ledger.history())]

    assert ("trip", "ada", "Riga", 7, 2, '{"channel":"mail"}') == tuple(
        chat[name] for name in ("chat_id", "user_id", "title", "messages", "branches", "metadata")
    )
    assert [("main", "a", False), (chat["active_branch"], "slip", True)] == [
        (branch["name"], branch["head_message_id"], branch["is_active"]) for branch in branches
    ]
    assert {("quality", "0.5", 0.5), ("verdict", '"good"', None), ("is_safe", "true", None)} == {
        (label["label"], label["value"], label["score"]) for label in labels
    }
    assert {("trip", "a", "assistant", "It rains.")} == {
        tuple(label[name] for name in ("chat_id", "message_id", "role", "text")) for label in labels
    }
    assert ("trip", "run-1", "weather", "u") == tuple(
        run[name] for name in ("chat_id", "run_id", "assistant_id", "trigger_message_id")
    )
    assert [*range(1, ledger.position + 1)] == [event["position"] for event in events]
    assert ("chat_created", "trip", 1) == tuple(events[0][name] for name in ("type", "chat_id", "version"))
    assert "Riga" == json.loads(events[0]["payload"])["title"]


def test_threads_have_a_row_for_each_checkpoint() -> None:
    versions = tuple(chatledger.importers.ImportedVersion(id=number, parent=None, line="ns") for number in "12")
    thread = ImportedValue(family="thread", id="agent", owner="ada", versions=versions)

    assert [("agent", "ada", "ns", "1"), ("agent", "ada", "ns", "2")] == [
        tuple(row[name] for name in ("thread_id", "user_id", "namespace", "checkpoint_id"))
        for row in table_rows([thread], "threads")
    ]


def test_csv_comes_back_as_it_was(ledger: Ledger) -> None:
    """With line breaks and quotes, times in ISO 8601; what is None is empty."""
    ledger.append("trip", [user('two\nlines, "quoted" and é', id="odd")])
    stream = io.BytesIO()
    table = rows(ledger, "messages")
    assert len(table) == write_csv(stream, table, "messages")
    read = [*csv.DictReader(io.StringIO(stream.getvalue().decode(), newline=""))]

    assert ['two\nlines, "quoted" and é', "", "true"] == [read[-1][name] for name in ("text", "labels", "is_active")]
    assert [row["message_id"] for row in table] == [row["message_id"] for row in read]
    assert all(row["created_at"].endswith("Z") for row in read)


def test_parquet_has_the_types_of_its_columns(ledger: Ledger) -> None:
    """Also where a column is None in all rows, and for what JSON does not have: NaN is null, half an emoji a question mark."""
    parquet = pytest.importorskip("pyarrow.parquet")
    ledger.append("trip", NewMessage("user", {"n": float("nan"), "s": "\ud83d"}, None, id="odd", created_at=10**15))
    for table in TABLES:
        source = event_rows(ledger.history()) if table == "events" else table_rows(ledger.export_all(), table)
        expected = [*source]
        stream = io.BytesIO()
        assert len(expected) == write_parquet(stream, expected, table)
        read = parquet.read_table(io.BytesIO(stream.getvalue()))

        kinds = {
            "json": "string",
            "text": "string",
            "time": "timestamp[ms, tz=UTC]",
            "integer": "int64",
            "number": "double",
        }
        assert [kinds.get(kind, "bool") for kind in TABLES[table].values()] == [
            str(field.type) for field in read.schema
        ]
        assert len(expected) == read.num_rows
    (odd,) = (row for row in rows(ledger, "messages") if row["message_id"] == "odd")
    assert {"n": None, "s": "?"} == json.loads(odd["data"])


def test_batches_of_a_feed_go_on_where_they_were_handled() -> None:
    """A feed that is not acknowledged gives its events again; what was, never."""
    pytest.importorskip("pyarrow")
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ada")
        for number in range(5):
            ledger.append("c", [user(str(number))])

        def batches() -> list[list[int]]:
            with ledger.feed(name="warehouse", follow=False, auto_ack=False) as feed:
                found = []
                for batch in arrow_batches(event_rows(feed), "events", batch_rows=2):
                    found.append(batch.column("position").to_pylist())
                    if len(found) == 2:  # the third one is lost on the way
                        feed.ack(found[-1][-1])
                return found

        first = batches()
        assert [[1, 2], [3, 4]] == first[:2]
        assert [position for batch in first[2:] for position in batch] == [
            position for batch in batches() for position in batch
        ]


def written(ledger: Ledger, form: str, **options: bool) -> bytes:
    stream = io.BytesIO()
    chats = (chat for chat in ledger.export_all() if isinstance(chat, ImportedChat))
    write_conversations(stream, chats, form, **options)
    return stream.getvalue()


def test_training_files(ledger: Ledger) -> None:
    """The active branch, or all; neither hidden messages nor calls without a result."""
    (active,) = map(json.loads, written(ledger, "openai").splitlines())
    main, _ = map(json.loads, written(ledger, "openai", all_branches=True).splitlines())
    anthropic, _ = map(json.loads, written(ledger, "anthropic", all_branches=True).splitlines())
    sharegpt, _ = map(json.loads, written(ledger, "sharegpt", all_branches=True).splitlines())

    assert ["Be brief.", "Weather in Riga?", "Wet."] == [message["content"] for message in active["messages"]]
    assert [CALL, RESULT] == main["messages"][2:4]
    assert ("Be brief.", ["user", "assistant", "user", "assistant"]) == (
        anthropic["system"],
        [message["role"] for message in anthropic["messages"]],
    )
    assert [
        ("system", "Be brief."),
        ("human", "Weather in Riga?"),
        ("function_call", '{"name": "weather", "arguments": {"city": "Riga"}}'),
        ("observation", "Rain."),
        ("gpt", "It rains."),
    ] == [(turn["from"], turn["value"]) for turn in sharegpt["conversations"]]


def test_a_conversation_of_nothing_that_a_form_has_is_none() -> None:
    """An empty list of messages is refused by whoever trains on it, and by our own import."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ada")
        data = {"role": "assistant", "parts": [{"type": "data-chart", "data": {"y": 1}}]}
        ledger.append("c", NewMessage("assistant", data, "ui"))

        assert [b"", b"", b""] == [written(ledger, form) for form in ("openai", "anthropic", "sharegpt")]


def test_a_replacement_stands_in_its_place(ledger: Ledger) -> None:
    """Once, where several have the same one; and a call without a result is left out."""
    ledger.set_active_branch("trip", "main")
    for message_id in ("c", "r", "a"):
        ledger.annotate("trip", message_id, replaced_by="b")
    ledger.append("trip", [user("And now?"), NewMessage("assistant", {**CALL, "content": "Wait."}, "openai")])
    (line,) = map(json.loads, written(ledger, "openai").splitlines())

    texts = ["Be brief.", "Weather in Riga?", "Wet.", "And now?", "Wait."]
    assert [(text, False) for text in texts] == [
        (message["content"], "tool_calls" in message) for message in line["messages"]
    ]


@pytest.mark.parametrize("form", [name for name in CONVERSATION_FORMATS if name != "markdown"])
def test_what_is_written_for_training_is_read_again(ledger: Ledger, tmp_path: Path, form: str) -> None:
    """Names and texts of each branch; written once more it is the same file."""
    path = tmp_path / "training.jsonl"
    path.write_bytes(written(ledger, form, all_branches=True))
    problems: list[object] = []
    with chatledger.open("memory:") as copy:
        chats = [*read_chats(path, on_problem=problems.append)]
        for chat in chats:
            copy.import_chat(chat)
        lines = [json.loads(line) for line in path.read_bytes().splitlines()]

        assert (problems, 2) == ([], len(chats))
        if form == "sharegpt":  # a call is text there, so written anew it is somebody's words
            turns = [[turn["value"] for turn in line["conversations"]] for line in lines]
            assert turns == [[message.text for message in chat.messages] for chat in chats]
            assert {"system", "user", "assistant", "tool"} == {message.name for message in chats[0].messages}
        else:
            again = [json.loads(line) for line in written(copy, form).splitlines()]
            assert sorted(map(json.dumps, lines)) == sorted(map(json.dumps, again))


def test_markdown_is_for_people(ledger: Ledger) -> None:
    text = written(ledger, "markdown", all_branches=True).decode()

    assert "# Riga (main)\n\n## system\n\nBe brief.\n\n## user\n\nWeather in Riga?\n\n## assistant\n\n" in text
    assert '```json\nweather({"city":"Riga"})\n```' in text
    assert "## tool\n\n```\nRain.\n```\n\n## assistant\n\nIt rains.\n\n# Riga\n" in text
    assert "Oops" not in text


def test_markdown_has_thoughts_pages_and_files() -> None:
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ada")
        parts = [
            {"type": "reasoning", "text": "Look\nit up."},
            {"type": "text", "text": "Voles."},
            {"type": "source-url", "sourceId": "1", "url": "https://fox.example", "title": "Foxes"},
            {"type": "file", "mediaType": "image/png", "filename": "fox.png", "url": "https://fox.example/fox.png"},
            {"type": "file", "mediaType": "text/plain", "filename": "a.txt", "url": "data:text/plain;base64,YQ=="},
        ]
        ledger.append("c", NewMessage("assistant", {"role": "assistant", "parts": parts}, "ui"))

        assert written(ledger, "markdown").decode() == (
            "# c\n\n## assistant\n\n> Look\n> it up.\n\nVoles.\n\n[Foxes](https://fox.example)\n\n"
            "[fox.png](https://fox.example/fox.png)\n\n(a.txt)\n\n"
        )


def test_what_is_not_there_is_refused(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidValueError, match="table must be one of messages, chats"):
        table_rows([], "events")
    with pytest.raises(InvalidValueError, match="form must be one of openai"):
        write_conversations(io.BytesIO(), [], "html")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'chatledger\[arrow\]'"):
        arrow_batches([], "chats")
