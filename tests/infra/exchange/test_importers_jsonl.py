import gzip
import io
import json
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.soak import examples

from chatledger import Chat
from chatledger.domain.chat.import_tree import Reporter
from chatledger.domain.chat.runs import MessageRun, PlannedRun
from chatledger.domain.errors import ChainIntegrityError, InvalidValueError, UnsupportedFormatError
from chatledger.domain.values import Annotation
from chatledger.importers import (
    ImportedBranch,
    ImportedChat,
    ImportedCheckpoint,
    ImportedMessage,
    ImportedRegeneration,
    Problem,
    read_chats,
    validate_chat,
    write_chats,
)
from chatledger.infra.exchange.jsonl import read_jsonl, write_chat

# Everything but lone surrogates, which no JSON text in UTF-8 can hold.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    ["\u2028", "\r\n", "\x00", "\x1f", "\ufeff", "😀e\u0301", "</script>", '"\\', "\x85"]
)
ids = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12)
values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
times = st.none() | st.integers(-(2**53), 2**53)


@st.composite
def chats(draw: st.DrawFn, chat_ids: st.SearchStrategy[str] = ids, prefix: str = "") -> ImportedChat:
    keys = [prefix + key for key in draw(st.lists(ids, unique=True, max_size=8))]
    names = draw(st.lists(ids, unique=True, min_size=1, max_size=4))
    active = draw(st.integers(0, len(names) - 1))
    marks = draw(st.lists(ids, unique=True, max_size=3)) if keys else []
    optional = st.none() | ids
    some = st.none() | st.sampled_from(keys) if keys else st.none()
    annotations = st.builds(
        Annotation,
        stale=st.booleans(),
        hidden=st.booleans(),
        metadata=st.dictionaries(texts, values, max_size=2),
    )
    reached = {
        "assistant_id": ids,
        "runtime": ids,
        "thread_id": ids,
        "trigger_message_id": some,
        "message_id": some,
        "references": st.lists(st.sampled_from(keys), max_size=2) if keys else st.just([]),
        "checkpoint_id": optional,
    }
    planned = st.builds(
        PlannedRun, run_id=texts, depth=st.integers(1, 9), cause=st.sampled_from(["trigger", "reference"]), **reached
    )
    runs = st.builds(
        MessageRun,
        id=texts,
        run_id=ids,
        status=st.sampled_from(["pending", "running", "completed", "error"]),
        created_at=st.integers(0, 2**53),
        updated_at=st.integers(0, 2**53),
        repeats=optional,
        regeneration_id=optional,
        **reached,
    )
    regenerations = st.builds(
        ImportedRegeneration,
        id=ids,
        edited_message_id=st.sampled_from(keys),
        new_message_id=st.sampled_from(keys),
        runs=st.lists(planned, max_size=2).map(tuple),
        approved=st.lists(texts, max_size=2).map(tuple),
        created_at=times,
    )
    return ImportedChat(
        id=draw(chat_ids),
        user_id=draw(optional) or "",
        title=draw(st.none() | texts),
        metadata=draw(st.none() | st.dictionaries(texts, values, max_size=4)),
        created_at=draw(times),
        updated_at=draw(times),
        messages=tuple(
            ImportedMessage(
                id=key,
                parent_id=draw(st.none() | st.sampled_from(keys[:number])) if number else None,
                name=draw(ids),
                type=draw(st.sampled_from(["message", "fragment", None])),
                data=draw(values),
                created_at=draw(times),
                **cast("dict[str, Any]", {draw(st.sampled_from(["sender_id", "agent_id"])): draw(optional)}),
                form=draw(st.sampled_from([None, "acme"])),
                notes=draw(st.none() | st.dictionaries(texts, values, min_size=1, max_size=2)),
                reply_to=draw(st.none() | st.sampled_from(keys[:number])) if number else None,
                annotation=draw(st.none() | annotations) if number % 3 == 0 else None,
            )
            for number, key in enumerate(keys)
        ),
        branches=tuple(
            ImportedBranch(
                id=draw(optional),
                name=name,
                head_message_id=draw(st.none() | st.sampled_from(keys)) if keys else None,
                created_at=draw(times),
                is_active=number == active,
            )
            for number, name in enumerate(names)
        ),
        checkpoints=tuple(
            ImportedCheckpoint(
                id=draw(optional), name=name, message_id=draw(st.sampled_from(keys)), created_at=draw(times)
            )
            for name in marks
        ),
        expires_at=draw(times),
        runs=tuple(draw(st.lists(runs, max_size=2, unique_by=lambda run: run.run_id))),
        regenerations=tuple(draw(st.lists(regenerations, max_size=1))) if keys else (),
    )


def export(*given_chats: ImportedChat) -> bytes:
    stream = io.BytesIO()
    assert len(given_chats) == write_chats(stream, given_chats)
    return stream.getvalue()


def parse(text: bytes, *, strict: bool = False) -> tuple[list[ImportedChat], list[Problem]]:
    problems: list[Problem] = []
    report = Reporter("export.jsonl", strict=strict, on_problem=problems.append)
    found = list(read_jsonl(io.BytesIO(text), report))
    for chat in found:
        validate_chat(chat)
    return found, problems


def canonical(chat: ImportedChat) -> str:
    """Tells 1 from True and 1.0, 0.0 from -0.0, and one key order from another."""
    return repr(msgspec.to_builtins(chat))


@pytest.mark.soak
@given(chats(st.just("one")), chats(st.just("two"), prefix="2:"))
@settings(max_examples=examples(40))
def test_reading_what_was_written_is_the_identity(one: ImportedChat, two: ImportedChat) -> None:
    """To the last bit: value types, key order, order of messages, branches and checkpoints."""
    # The prefix keeps the ids of the chats apart, except where an id itself begins with it.
    two = (
        two
        if not {m.id for m in one.messages} & {m.id for m in two.messages}
        else ImportedChat(id="two", user_id="", title=None, metadata=None, messages=(), branches=(MAIN,))
    )
    found, problems = parse(export(one, two), strict=True)

    assert problems == []
    assert [canonical(one), canonical(two)] == [canonical(chat) for chat in found]
    assert [one, two] == found


def _line(**record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode()


_RUN: dict[str, Any] = {
    "id": "r",
    "run_id": "R1",
    "thread_id": "t",
    "assistant_id": "writer",
    "trigger_message_id": "m1",
    "message_id": "m2",
    "status": "completed",
    "created_at": 5,
    "updated_at": 6,
}
MAIN = ImportedBranch(name="main", head_message_id=None, is_active=True)
SMALL = ImportedChat(
    id="c1",
    user_id="ada",
    title=None,
    metadata={"z": 1, "a": 2},
    messages=(
        ImportedMessage(id="m1", parent_id=None, name="user", data="hi", form=None),
        ImportedMessage(id="m2", parent_id="m1", name="assistant", data=None, form=None),
    ),
    branches=(ImportedBranch(name="main", head_message_id="m2", is_active=True, id="b1"),),
    checkpoints=(ImportedCheckpoint(name="start", message_id="m1"),),
    runs=(msgspec.convert(_RUN, MessageRun),),
)
OLD = """\
{"chatledger":1}
{"chat":{"id":"c1","user_id":"ada","title":null,"metadata":{"z":1,"a":2},"created_at":null,"updated_at":null}}
{"message":{"id":"m1","parent_id":null,"name":"user","data":"hi","type":"message","created_at":null,"sender_id":null,"agent_id":null,"reply_to":null}}
{"message":{"id":"m2","parent_id":"m1","name":"assistant","data":null,"type":"message","created_at":null,"sender_id":null,"agent_id":null,"reply_to":null}}
{"branch":{"name":"main","head_message_id":"m2","created_at":null,"is_active":true,"id":"b1"}}
{"checkpoint":{"name":"start","message_id":"m1","created_at":null,"id":null}}
{"end":{"chat_id":"c1","messages":2,"branches":1,"checkpoints":1}}
{"chats":1}
"""


def test_the_first_format_is_read() -> None:
    """As it was written before there were annotations and runs in it."""
    assert parse(OLD.encode(), strict=True) == ([msgspec.structs.replace(SMALL, runs=())], [])


@given(st.data())
def test_any_missing_end_is_noticed(data: st.DataObject) -> None:
    """Whatever is cut off the end of an export, a problem says so; strictly it is an error."""
    whole = export(
        SMALL, msgspec.structs.replace(SMALL, id="c2", messages=(), branches=(MAIN,), checkpoints=(), runs=())
    )
    # The last line break alone is no loss.
    part = whole[: data.draw(st.integers(0, len(whole) - 2))]
    _, problems = parse(part)

    assert problems
    with pytest.raises((InvalidValueError, ChainIntegrityError)):
        parse(part, strict=True)


@given(st.integers(1, 7))
def test_any_missing_line_is_noticed(number: int) -> None:
    lines = export(SMALL).splitlines(keepends=True)
    _, problems = parse(b"".join(lines[:number] + lines[number + 1 :]))

    assert problems


def test_the_format_is_as_documented() -> None:
    lines = [json.loads(line) for line in export(SMALL).splitlines()]

    assert lines[0] == {"chatledger": 6}
    assert [next(iter(line)) for line in lines] == [
        "chatledger",
        "chat",
        "message",
        "message",
        "branch",
        "checkpoint",
        "run",
        "end",
        "totals",
    ]
    assert lines[-2] == {
        "end": {"chat_id": "c1", "messages": 2, "branches": 1, "checkpoints": 1, "runs": 1, "regenerations": 0}
    }
    assert lines[-1] == {"totals": {"chats": 1, "threads": 0, "states": 0}}


def test_an_export_has_every_field_of_a_chat() -> None:
    """What is left out is counted anew; a hold stays with the ledger that it was set on."""
    lists = {"messages", "branches", "checkpoints", "runs", "regenerations"}
    exported = json.loads(export(SMALL).splitlines()[1])["chat"]

    assert {"message_count", "branch_count", "last_text", "hold"} == {*Chat.__struct_fields__} - {*exported}
    assert lists | {*exported} == {*ImportedChat.__struct_fields__}


def test_gzip_and_repeated_chats(tmp_path: Path) -> None:
    """The same again is left out; other content is given too, for a ledger to add what is new in it."""
    path, other = tmp_path / "export.jsonl.gz", msgspec.structs.replace(SMALL, title="other")
    path.write_bytes(gzip.compress(export(SMALL, SMALL, other)))
    problems: list[Problem] = []

    assert (list(read_chats(path, on_problem=problems.append)), problems) == ([SMALL, other], [])


def test_a_cut_off_chat_is_kept_as_far_as_it_goes() -> None:
    lines = export(SMALL).splitlines(keepends=True)
    (chat,), problems = parse(b"".join(lines[:4]))

    assert (SMALL.messages, "m2") == (chat.messages, chat.branches[0].head_message_id)
    reasons = ["is cut off: its end", "has no usable branch", "the export is cut off"]
    assert all(reason in problem.message for problem, reason in zip(problems, reasons, strict=True))


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (b"{", "not a record of this format"),
        (b"\xff", "not a record of this format"),
        (b'{"message": {"id": 1}}', "Expected `str`"),
        (b'{"message": {"id": "x", "parent_id": null, "name": "", "data": 1}}', "its name must not be empty"),
        (b'{"message": {"id": "", "parent_id": null, "name": "user", "data": 1}}', "its id must not be empty"),
        (b'{"message": {"id": "x", "parent_id": null, "name": "user", "data": nan}}', "malformed"),
        (b'{"message": {"id": "x", "parent_id": null, "name": "user", "data": ' + b"[" * 99_999, "nested too deeply"),
        (b'{"runs": {}}', "unknown field"),
        (b'{"run": {}}', "missing required field"),
        (_line(run=_RUN), "repeated id"),
        (_line(run={**_RUN, "run_id": ""}), "empty, impossible or repeated id"),
        (_line(run={**_RUN, "run_id": "other", "references": ["m9"]}), "the message 'm9' of run 'other'"),
        (_line(run={**_RUN, "run_id": "other", "status": "lost"}), "not a record of this format"),
        (_line(regeneration={"id": "g", "edited_message_id": "m1", "new_message_id": "m9"}), "message 'm9' of regen"),
        (
            _line(regeneration={"id": "", "edited_message_id": "m1", "new_message_id": "m2"}),
            "empty, impossible or repeated id",
        ),
        (b"{}", "has one kind, this has 0"),
        (b'{"chatledger": 1, "chats": 1}', "has one kind, this has 2"),
        (b'{"branch": {"name": "main", "head_message_id": null}}', "repeated name"),
        (b'{"checkpoint": {"name": "start", "message_id": "m1"}}', "repeated name"),
        (b'{"message": {"id": "m1", "parent_id": null, "name": "user", "data": "changed"}}', "other content"),
    ],
)
def test_a_broken_record_is_skipped(broken: bytes, reason: str) -> None:
    lines = export(SMALL).splitlines()
    text = b"\n".join([*lines[:7], broken, *lines[7:]])
    found, problems = parse(text)

    assert found == [SMALL]
    assert any(reason in problem.message and problem.line == 8 for problem in problems)
    with pytest.raises((InvalidValueError, ChainIntegrityError), match=r"export\.jsonl, line 8: "):
        parse(text, strict=True)


def test_broken_links_are_refused_when_reading_strictly() -> None:
    text = export(SMALL).replace(b'"parent_id":"m1"', b'"parent_id":"m9"')
    (chat,), problems = parse(text)

    assert ([m.parent_id for m in chat.messages], [problem.line for problem in problems]) == ([None, None], [4])
    with pytest.raises(ChainIntegrityError, match=r"export\.jsonl, line 4: "):
        parse(text, strict=True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (export(SMALL).split(b"\n", 1)[1], "does not begin with its format version"),
        (export(SMALL).replace(b'{"chat":', b'{"chat": 1, "x":'), "outside a chat"),
        (export(SMALL) + b'{"chats":1}\n', "follows the last line"),
    ],
)
def test_a_broken_frame_is_reported(text: bytes, reason: str) -> None:
    assert any(reason in problem.message for problem in parse(text)[1])


def test_a_newer_format_is_refused() -> None:
    with pytest.raises(UnsupportedFormatError, match="version 7"):
        parse(export(SMALL).replace(b'{"chatledger":6}', b'{"chatledger":7}'))


def _nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "chat",
    [
        msgspec.structs.replace(SMALL, title="\ud800"),
        msgspec.structs.replace(SMALL, metadata={"a": float("inf")}),
        msgspec.structs.replace(SMALL, branches=()),
        msgspec.structs.replace(SMALL, branches=(msgspec.structs.replace(SMALL.branches[0], id="\udfff"),)),
    ],
)
def test_what_could_not_be_read_back_is_not_written(chat: ImportedChat) -> None:
    stream = io.BytesIO()
    with pytest.raises(InvalidValueError):
        write_chat(stream, chat)

    assert stream.getvalue() == b""


def test_a_value_nested_too_deeply_is_refused() -> None:
    message = ImportedMessage(id="m1", parent_id=None, name="user", data=_nested(100_000))
    chat = msgspec.structs.replace(SMALL, messages=(message,), branches=(MAIN,), checkpoints=(), runs=())
    with pytest.raises(InvalidValueError, match="nested too deeply"):
        write_chat(io.BytesIO(), chat)
