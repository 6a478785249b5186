"""Damaged files: reading one ends with valid chats and problems, or with an error of ours."""

import copy
import io
import json
import tempfile
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.soak import examples

from chatledger.domain.chat.decide_import import decide_import
from chatledger.domain.chat.replay import ReplayedChat
from chatledger.domain.errors import ChainIntegrityError, InvalidValueError, UnsupportedFormatError
from chatledger.importers import Problem, read_chats, validate_chat, write_chats

DATA = Path(__file__).resolve().parents[3] / "tests" / "data"
OURS = (ChainIntegrityError, InvalidValueError, UnsupportedFormatError)
DEEPEST = 1100

odd_values: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, -1, 10**400, 1e308, "", "a1", "u1", "\0", "x" * 3000, [], [1], {}, {"id": 1}, {"parts": [None, {}]}]
)


def read(content: bytes, *, format: str | None, strict: bool) -> list[Problem]:  # noqa: A002  # as `read_chats` calls it
    problems: list[Problem] = []
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "some.file"
        path.write_bytes(content)
        outcome = ""
        try:
            for chat in read_chats(path, format=format, strict=strict, on_problem=problems.append):
                validate_chat(chat)
                # What a reader yields, a ledger takes.
                ids = [
                    f"new{number}" for number in range(1 + len(chat.branches) + len(chat.checkpoints) + len(chat.runs))
                ]
                decide_import(ReplayedChat(chat.id), chat, ids=ids, now=1)
        except OURS as error:
            outcome = str(error)
    assert not outcome or str(path) in outcome
    assert not (strict and problems)
    return problems


def list_places(value: Any) -> list[tuple[Any, Any]]:
    """Every container and key in a JSON value."""
    places: list[tuple[Any, Any]] = []
    pending: list[Any] = [value]
    while pending:
        item = pending.pop()
        keys: list[Any] = []
        if isinstance(item, dict):
            keys = list(cast("dict[str, Any]", item))
        elif isinstance(item, list):
            keys = list(range(len(cast("list[Any]", item))))
        places += [(item, key) for key in keys]
        pending += [item[key] for key in keys]
    return places


def export() -> list[Any]:
    stream = io.BytesIO()
    write_chats(stream, read_chats(DATA / "oasst_messages.jsonl", on_problem=lambda _: None))
    return [json.loads(line) for line in stream.getvalue().splitlines()]


SAMPLES: dict[str, list[Any]] = {
    "chatgpt": json.loads((DATA / "chatgpt_conversations.json").read_text(encoding="utf-8")),
    "chatledger": export(),
    "claude": json.loads((DATA / "claude_conversations.json").read_text(encoding="utf-8")),
    "messages": [json.loads(line) for line in (DATA / "oasst_messages.jsonl").read_text(encoding="utf-8").splitlines()],
    "messages of an api": [
        json.loads(line) for line in (DATA / "messages_finetuning.jsonl").read_text(encoding="utf-8").splitlines()
    ],
    "openwebui": json.loads((DATA / "openwebui_chats.json").read_text(encoding="utf-8")),
    "librechat": [
        json.loads((DATA / f"librechat_{name}.json").read_text(encoding="utf-8")) for name in ("tree", "flat")
    ],
    "deepseek": json.loads((DATA / "deepseek_conversations.json").read_text(encoding="utf-8")),
    "aistudio": [json.loads((DATA / "aistudio_prompt.json").read_text(encoding="utf-8"))],
    "otlp": [json.loads(line) for line in (DATA / "otlp_traces.jsonl").read_text(encoding="utf-8").splitlines()],
    "dpo": [json.loads(line) for line in (DATA / "dpo_pairs.jsonl").read_text(encoding="utf-8").splitlines()],
    "tuning": [json.loads(line) for line in (DATA / "tuning_others.jsonl").read_text(encoding="utf-8").splitlines()],
    "one list": json.loads((DATA / "messages_openai.json").read_text(encoding="utf-8")),
    "sharegpt": json.loads((DATA / "sharegpt.json").read_text(encoding="utf-8")),
    "trees": [json.loads(line) for line in (DATA / "oasst_trees.jsonl").read_text(encoding="utf-8").splitlines()],
}


FORMATS = {
    "messages": "oasst",
    "trees": "oasst",
    "messages of an api": "messages",
    "one list": "messages",
    "tuning": "messages",
}
LISTS = ("aistudio", "chatgpt", "claude", "deepseek", "librechat", "one list", "openwebui", "sharegpt")


def render(name: str, records: list[Any]) -> bytes:
    text = json.dumps(records) if name in LISTS else "\n".join(json.dumps(record) for record in records)
    return text.encode()


@pytest.mark.parametrize("name", sorted(SAMPLES))
@given(data=st.data())
@settings(max_examples=examples(150), deadline=None)
def test_odd_values_anywhere(name: str, data: st.DataObject) -> None:
    records = copy.deepcopy(SAMPLES[name])
    for _ in range(data.draw(st.integers(1, 3))):
        places = list_places(records)
        container, key = places[data.draw(st.integers(0, len(places) - 1))]
        container[key] = copy.deepcopy(data.draw(odd_values))

    for strict in (False, True):
        read(render(name, records), format=FORMATS.get(name, name), strict=strict)


@pytest.mark.parametrize("name", sorted(SAMPLES))
@given(data=st.data())
@settings(max_examples=examples(150), deadline=None)
def test_odd_bytes_anywhere(name: str, data: st.DataObject) -> None:
    content = bytearray(render(name, SAMPLES[name]))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(content)))
        content[start : start + data.draw(st.integers(0, 30))] = data.draw(st.binary(max_size=6))

    for strict in (False, True):
        read(bytes(content), format=None, strict=strict)


@pytest.mark.parametrize("depth", range(900, DEEPEST, 7))
def test_nesting_around_the_limit_of_the_decoder(depth: int) -> None:
    """A value that can just be decoded may be too deep to be encoded again, inside its chat."""
    nested = "[" * depth + "]" * depth
    message = '{"message": {"id": "m", "parent_id": null, "name": "user", "data": ' + nested + "}}"
    head = '{"chatledger": 1}\n{"chat": {"id": "c", "user_id": "u"}}\n'
    read((head + message).encode(), format="chatledger", strict=False)
    node = '{"parent": null, "message": {"author": {"role": "user"}, "content": ' + nested + "}}"
    read(('[{"id": "c", "mapping": {"a": ' + node + "}}]").encode(), format="chatgpt", strict=False)
