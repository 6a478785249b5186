"""Any container holds any format, and what is broken in it costs itself alone."""

import codecs
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.support.imported_files import read

import chatledger
from chatledger.errors import InvalidValueError
from chatledger.importers import Problem, detect_format, read_chats


def gpt(name: str) -> dict[str, Any]:
    node = {"parent": None, "message": {"author": {"role": "user"}, "content": {"parts": [f"hello {name}"]}}}
    return {"conversation_id": name, "title": name, "mapping": {f"{name}r": node}, "current_node": f"{name}r"}


def claude(name: str) -> dict[str, Any]:
    messages = [{"uuid": f"{name}r", "sender": "human", "text": f"hello {name}"}]
    return {"uuid": name, "name": name, "chat_messages": messages}


def messages(name: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": f"hello {name}"}]}


def sharegpt(name: str) -> dict[str, Any]:
    return {"conversations": [{"from": "human", "value": f"hello {name}"}]}


def tree(name: str) -> dict[str, Any]:
    prompt = {"message_id": f"{name}r", "text": f"hello {name}", "role": "prompter", "replies": []}
    return {"message_tree_id": name, "prompt": prompt}


RECORDS = [gpt, claude, messages, sharegpt, tree]
ABC = ["hello A", "hello B", "hello C"]


def first_texts(path: Path) -> tuple[list[str], list[str]]:
    chats, problems = read(path)
    return [chat.messages[0].text for chat in chats], [problem.message for problem in problems]


@pytest.mark.parametrize("record", RECORDS)
@pytest.mark.parametrize("container", ["list", "lines", "lists", "utf-16", "utf-16 lines", "utf-16 without a mark"])
def test_all_formats_in_all_containers(tmp_path: Path, record: Any, container: str) -> None:
    records = [record(name) for name in "ABC"]
    text = "\n".join(map(json.dumps, records)) if "lines" in container else json.dumps(records)
    if container == "lists":
        if record not in (gpt, claude):
            pytest.skip("a list in a list is a list of messages there")
        text = json.dumps([records[:2], records[2:]])
    data = text.encode()
    if container.startswith("utf-16"):
        data = text.encode("utf-16-le" if container.endswith("mark") else "utf-16")
    path = tmp_path / "some.json"
    path.write_bytes(data)

    assert first_texts(path) == (ABC, [])


@pytest.mark.parametrize("record", RECORDS)
def test_a_broken_record_costs_itself(tmp_path: Path, record: Any) -> None:
    a, b, c = (json.dumps(record(name)) for name in "ABC")
    path = tmp_path / "some.json"
    for name, text, texts, reason in (
        ("NaN", f'[{a}, {b[:-1]}, "score": NaN}}, {c}]', ABC, "item 2: NaN and infinite numbers replaced by null"),
        ("comma", f"[{a}, {b[:-1]},}}, {c}]", [ABC[0], ABC[2]], "item 2: not valid JSON"),
        ("bracket in a text", f'[{a}, {b[:-1]}, "x": "]}}", ,}}, {c}]', [ABC[0], ABC[2]], "item 2: not valid JSON"),
        ("cut off", f"[{a}, {b}, {c[:-9]}", ABC[:2], "item 3: not valid JSON"),
        ("cut off in a text", f'[{a}, {b}, {{"title": "]]}}', ABC[:2], "item 3: not valid JSON"),
    ):
        path.write_text(text, encoding="utf-8")
        found, problems = first_texts(path)
        assert (name, found, len(problems)) == (name, texts, 1)
        assert reason in problems[0], name
        with pytest.raises(InvalidValueError, match=r"some\.json"):
            read(path, strict=True)


@pytest.mark.parametrize("record", [gpt, claude])
@pytest.mark.parametrize("name", ["export\\conversations.json", "export/conversations.json", "conversations-001.json"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_names_and_encodings_in_archives(tmp_path: Path, record: Any, name: str, encoding: str) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        member = zipfile.ZipInfo("x")
        member.filename = name  # past the constructor, which would make slashes of backslashes on Windows
        archive.writestr(member, json.dumps([record(one) for one in "ABC"]).encode(encoding))
    path = tmp_path / "export.zip"
    path.write_bytes(packed.getvalue())

    assert first_texts(path) == (ABC, [])


def test_an_object_over_many_lines_that_is_broken_is_one_problem(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_text(json.dumps(gpt("A"), indent=2)[:-20], encoding="utf-8")
    _, problems = read(path)

    assert len(problems) == 1


@pytest.mark.parametrize("text", ["[{}]\n[{}]", json.dumps([[{}], [{}]])])
def test_lists_of_messages(tmp_path: Path, text: str) -> None:
    """A list a line, and a list of lists, are conversations; messages one a line are one conversation."""
    path = tmp_path / "some.json"
    says = [json.dumps({"role": "user", "content": name}) for name in "AB"]
    path.write_text(text.replace("{}", says[0], 1).replace("{}", says[1], 1), encoding="utf-8")
    assert first_texts(path) == (["A", "B"], [])

    path.write_text("\n".join(says), encoding="utf-8")
    (chat,), problems = read(path)
    assert ([message.text for message in chat.messages], problems) == (["A", "B"], [])


def test_turns_of_sharegpt_one_a_line(tmp_path: Path) -> None:
    path = tmp_path / "turns.jsonl"
    path.write_text('{"from": "human", "value": "hi"}\n{"from": "gpt", "value": "yo"}\n', encoding="utf-8")
    (chat,), problems = read(path)

    assert ([message.name for message in chat.messages], problems) == (["user", "assistant"], [])


@pytest.mark.parametrize("key", ["conversations", "contents"])
def test_messages_under_other_names(tmp_path: Path, key: str) -> None:
    path = tmp_path / "some.json"
    record = {"system": "Be kind.", key: [{"role": "user", "parts": [{"text": "hi"}]}]}
    path.write_text(json.dumps([record]), encoding="utf-8")
    (chat,), problems = read(path)

    assert ([message.name for message in chat.messages], problems) == (["system", "user"], [])


def test_the_system_prompt_beside_turns(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text(json.dumps([{"system": "One word.", **sharegpt("A")}]), encoding="utf-8")
    (chat,), _ = read(path)

    assert [(m.name, m.data["parts"][0]["text"]) for m in chat.messages] == [("system", "One word."), ("user", ABC[0])]
    assert chat.metadata == {"source": "sharegpt"}


DEEPSEEK = {
    "id": "c",
    "mapping": {"1": {"parent": None, "message": {"fragments": [{"type": "REQUEST", "content": "hello"}]}}},
}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"conversations": [1]}, "an unknown format"),
        ([{"message_id": "a", "data": 1}], "an unknown format"),
        ([{"role": "user"}], "an unknown format"),
    ],
)
def test_what_others_have_too_tells_no_format(tmp_path: Path, value: Any, reason: str) -> None:
    path = tmp_path / "some.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    with pytest.raises(InvalidValueError, match=reason):
        detect_format(path)


def test_messages_with_message_ids_are_messages(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text('{"role": "user", "content": "hi", "message_id": "a"}\n', encoding="utf-8")

    assert detect_format(path) == "messages"


def test_a_conversation_without_any_message_that_can_be_read_is_none(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text(json.dumps([DEEPSEEK]), encoding="utf-8")
    problems: list[Problem] = []

    assert list(read_chats(path, format="chatgpt", on_problem=problems.append)) == []
    assert "no message that can be read" in problems[-1].message


def test_messages_of_another_app_are_one_problem(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text(json.dumps({"messages": [{"sender": "me", "body": str(n)} for n in range(9)]}), encoding="utf-8")
    chats, problems = read(path)
    assert (chats, len(problems)) == ([], 1)

    mixed = [{"sender": "me"} for _ in range(7)]
    path.write_text(json.dumps({"messages": [{"role": "user", "content": "hi"}, *mixed]}), encoding="utf-8")
    (chat,), problems = read(path)
    assert len(chat.messages) == 1
    assert [problem.message.partition(":")[0] for problem in problems] == [
        "messages 2, 3, 4, 5, 6, ... of conversation 1"
    ]


def test_results_of_calls_without_ids_come_in_the_order_of_the_calls(tmp_path: Path) -> None:
    blocks = [
        *({"type": "tool_use", "id": None, "name": "web", "input": {"q": q}} for q in "ab"),
        *({"type": "tool_result", "tool_use_id": None, "name": "web", "content": f"for {q}"} for q in "ab"),
    ]
    conversation = {"uuid": "C", "chat_messages": [{"uuid": "m", "sender": "assistant", "content": blocks}]}
    path = tmp_path / "some.json"
    path.write_bytes(codecs.BOM_UTF8 + json.dumps([conversation]).encode())
    (chat,), problems = read(path)

    parts = chat.messages[0].data["parts"]
    assert ([(part["input"]["q"], part["output"]) for part in parts], problems) == (
        [("a", "for a"), ("b", "for b")],
        [],
    )


def test_nothing_is_made_of_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text('[{"mapping": {"a"', encoding="utf-8")
    chats, problems = read(path)

    assert (chats, len(problems)) == ([], 1)
    with chatledger.open("memory:") as ledger:
        assert ledger.list_chats() == []
