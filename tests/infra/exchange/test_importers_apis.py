"""Lists of messages of APIs, and ShareGPT's: conversations without ids."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.imported_files import read

import chatledger
from chatledger.codecs import to_anthropic, to_openai
from chatledger.domain.chat.interchange import draft_of
from chatledger.domain.errors import InvalidValueError
from chatledger.importers import ImportedChat, ImportResult, detect_format

DATA = Path(__file__).resolve().parents[3] / "tests" / "data"
HELLO: list[Any] = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi!"}]


def write(path: Path, value: Any) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def is_chain(chat: ImportedChat) -> bool:
    """Whether each message follows the one before it, and `main` ends in the last."""
    ids = [message.id for message in chat.messages]
    return [None, *ids[:-1]] == [m.parent_id for m in chat.messages] and [ids[-1]] == [
        b.head_message_id for b in chat.branches
    ]


def test_messages_of_openai() -> None:
    """One list is one conversation; it can be given to the API again as it was."""
    (chat,), problems = read(DATA / "messages_openai.json", strict=True)
    source = json.loads((DATA / "messages_openai.json").read_text(encoding="utf-8"))

    assert problems == []
    assert is_chain(chat)
    assert ["system", "user", "assistant", "tool", "assistant"] == [message.name for message in chat.messages]
    assert (chat.user_id, chat.title, chat.metadata) == ("messages", "Plan a weekend in Riga", {"source": "messages"})
    assert {"openai"} == {message.form for message in chat.messages}
    assert source == [message.data for message in chat.messages] == to_openai(map(draft_of, chat.messages))


def test_one_conversation_a_line() -> None:
    """Files for fine-tuning: OpenAI's and Anthropic's messages, and what else a record says."""
    (first, second, third), problems = read(DATA / "messages_finetuning.jsonl", strict=True)

    assert problems == []
    assert all(map(is_chain, (first, second, third)))
    assert first.messages[0].data == second.messages[0].data
    assert first.messages[0].id != second.messages[0].id
    assert ["system", "user", "assistant", "tool", "assistant"] == [message.name for message in third.messages]
    assert {"source": "messages", "record": {"model": "some-model"}} == third.metadata
    lines = (DATA / "messages_finetuning.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[2])["messages"][1:3] == [message.data for message in third.messages[2:4]]
    assert [message.data for message in third.messages[2:4]] == to_anthropic(map(draft_of, third.messages[2:4]))


def test_sharegpt() -> None:
    """Roles get the names that others have."""
    chats, problems = read(DATA / "sharegpt.json", strict=True)

    assert problems == []
    assert all(map(is_chain, chats))
    assert [
        [("system", "Be brief."), ("user", "How long do leeks cook?"), ("assistant", "Ten minutes.")],
        [("user", "What time is it?"), ("assistant", '{"name": "clock"}'), ("tool", "12:00"), ("assistant", "Noon.")],
    ] == [[(message.name, message.text) for message in chat.messages] for chat in chats]
    assert [{"source": "sharegpt", "record": {"id": f"q1_{number}"}} for number in (0, 1)] == [
        c.metadata for c in chats
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (HELLO, {"messages": HELLO}),
        (HELLO, [{"messages": HELLO}]),
    ],
)
def test_shapes_of_one_conversation(tmp_path: Path, first: Any, second: Any) -> None:
    """Alone or in an object, indented or on a line, packed or not: the messages are the same."""
    found = [
        read(write(tmp_path / "a", first))[0][0],
        read(write(tmp_path / "b", json.dumps(second)))[0][0],
        read(write(tmp_path / "c", json.dumps(second, indent=1)))[0][0],
    ]
    (tmp_path / "d").write_bytes(gzip.compress(json.dumps(second).encode()))
    found.append(read(tmp_path / "d")[0][0])

    assert 1 == len({tuple((m.name, m.text) for m in chat.messages) for chat in found})
    assert 1 == len({chat.id for chat in found[1:]})


@pytest.mark.parametrize("name", ["messages_openai.json", "messages_finetuning.jsonl", "sharegpt.json"])
def test_ids_follow_from_the_content(tmp_path: Path, name: str) -> None:
    """Under another name, with other blanks and another order of keys, importing again changes nothing."""
    text = (DATA / name).read_text(encoding="utf-8")
    records = [json.loads(line) for line in text.splitlines()] if name.endswith("l") else json.loads(text)
    turned = [dict(reversed(record.items())) for record in records]
    other = "\n".join(map(json.dumps, turned)) if name.endswith("l") else json.dumps(turned)
    with chatledger.open("memory:") as ledger:
        for chat in read(DATA / name)[0]:
            ledger.import_chat(chat)
        again = [ledger.import_chat(chat) for chat in read(write(tmp_path / "other.txt", other))[0]]

        assert again == [ImportResult(chat_id=result.chat_id) for result in again]


BROKEN: list[tuple[Any, list[list[str]], list[str]]] = [
    (
        [HELLO[0], {"role": "user"}, HELLO[1]],
        [["Hello", "Hi!"]],
        ["message 2 of conversation 1: it is no message of an API"],
    ),
    (
        [{"messages": [*HELLO[:1], 5, HELLO[1]]}],
        [["Hello", "Hi!"]],
        ["message 2 of conversation 1: it is no message"],
    ),
    ([{"messages": HELLO}, {"messages": 1}], [["Hello", "Hi!"]], ["conversation 2 has no list of messages"]),
    (
        [{"messages": HELLO}, {"messages": []}],
        [["Hello", "Hi!"]],
        ["conversation 2 has no message that can be read"],
    ),
    ([{"messages": HELLO}, 7], [["Hello", "Hi!"]], ["conversation 2 has no list of messages"]),
    ([{"role": "x" * 3000, "content": "lost"}, HELLO[1]], [["Hi!"]], ["its name takes 3,000 bytes"]),
    (
        [{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt"}]}],
        [["a"]],
        ["message 2 of conversation 1: it has no"],
    ),
    ([{"conversations": [{"from": "human", "value": "a"}]}, {}], [["a"]], ["conversation 2 has no list of messages"]),
]


@pytest.mark.parametrize(("records", "kept", "reasons"), BROKEN)
def test_what_is_broken_is_left_out(tmp_path: Path, records: Any, kept: list[list[str]], reasons: list[str]) -> None:
    """One message, or one conversation; strictly it is refused."""
    path = write(tmp_path / "some.json", records)
    chats, problems = read(path)

    assert kept == [[message.text for message in chat.messages] for chat in chats]
    assert all(map(is_chain, chats))
    assert [True] * len(problems) == [
        reason in problem.message for problem, reason in zip(problems, reasons, strict=True)
    ]
    with pytest.raises(InvalidValueError, match=r"some\.json"):
        read(path, strict=True)


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    lines = [json.dumps({"messages": HELLO}), '{"messages": [', json.dumps({"messages": HELLO[:1]})]
    chats, problems = read(write(tmp_path / "some.jsonl", "\n".join(lines)))

    assert [2, 1] == [len(chat.messages) for chat in chats]
    assert [2] == [problem.line for problem in problems]


def test_other_messages(tmp_path: Path) -> None:
    """UIMessages, Gemini's contents and items of the Responses API are messages too."""
    ui = [{"id": "a", "role": "user", "parts": [{"type": "text", "text": "Hello"}]}]
    items = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}]
    gemini = {
        "messages": [{"role": "user", "parts": [{"text": "Hello"}]}, {"role": "model", "parts": [{"text": "Hi!"}]}]
    }
    for form, records in (("ui", ui), ("responses", items), ("google", gemini)):
        path = write(tmp_path / "some.json", records)

        assert "messages" == detect_format(path)
        first = read(path, strict=True)[0][0].messages[0]
        assert (form, "Hello") == (first.form, first.text)
