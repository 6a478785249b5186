"""Conversations that are given in Python: refused, or repaired where they come from a file, before anything of them is written."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, cast

import msgspec
import pytest
from tests.support.salts import salts
from tests.support.stories import CHAT

from chatledger.domain.chat.decide_import import decide_import
from chatledger.domain.chat.import_check import (
    describe_json_fault,
    repair_annotations,
    repair_regenerations,
    repair_runs,
    validate_chat,
    validate_links,
)
from chatledger.domain.chat.import_tree import Reporter
from chatledger.domain.chat.interchange import (
    ImportedBranch,
    ImportedChat,
    ImportedCheckpoint,
    ImportedMessage,
    ImportedRegeneration,
    Problem,
)
from chatledger.domain.chat.replay import ReplayedChat
from chatledger.domain.chat.runs import CarryOver, MessageRun, PlannedRun, Stretch
from chatledger.domain.errors import ChainIntegrityError, ChatledgerError, InvalidValueError
from chatledger.domain.log.codec import NO_HASH, Envelope, decode_event, encode_events
from chatledger.domain.values import Annotation

RUN = MessageRun(
    id="run", run_id="r", thread_id="t", assistant_id="bot", trigger_message_id="m1", references=["m1"],
    message_id="m2", checkpoint_id="k", status="completed", created_at=1, updated_at=2,
)  # fmt: skip
PLANNED = PlannedRun(
    run_id="r", assistant_id="bot", runtime="python", trigger_message_id="m1", message_id="m2", checkpoint_id="k",
    depth=1, cause="trigger", thread_id="t", references=["m1"],
)  # fmt: skip
CHAT_WITH_ALL = ImportedChat(
    id=CHAT,
    user_id="ada",
    title="Trip",
    metadata={"a": 1},
    messages=(
        ImportedMessage(id="m1", parent_id=None, name="user", data="q", annotation=Annotation(hidden=True)),
        ImportedMessage(id="m2", parent_id="m1", name="assistant", data="a", agent_id="bot", reply_to="m1"),
    ),
    branches=(ImportedBranch(name="main", head_message_id="m2", is_active=True, id="b", created_at=1),),
    checkpoints=(ImportedCheckpoint(name="cp", message_id="m1", id="c", created_at=1),),
    runs=(RUN,),
    regenerations=(
        ImportedRegeneration(
            id="g",
            edited_message_id="m1",
            new_message_id="m1",
            runs=(PLANNED,),
            approved=("r",),
            carries=CarryOver(branch_id="b", stretches=(Stretch(first="m2", last="m2", run_ids=("r",)),)),
        ),
    ),
)
WRONG: list[Any] = [
    None, 0, 1, 1.5, True, b"x", "", [], {}, object(), "\0", "\ud800", 2**70, ("a",), [None], (1,), "x", {"a": 1}, {1: 2},
]  # fmt: skip


def variants(value: Any, replace: Callable[[Any], Any]) -> Iterator[Any]:
    """A struct with each wrong value in each field of it, and of the structs in it, put in its place by `replace`."""
    for field in value.__struct_fields__:
        found: Any = getattr(value, field)

        def put(new: Any, field: str = field) -> Any:
            return replace(msgspec.structs.replace(value, **{field: new}))

        items = cast("tuple[Any, ...]", found) if isinstance(found, tuple) else ()

        def put_first(new: Any, put: Callable[[Any], Any] = put, items: tuple[Any, ...] = items) -> Any:
            return put((new, *items[1:]))

        yield from map(put, WRONG)
        if isinstance(found, msgspec.Struct):
            yield from variants(found, put)
        elif items and isinstance(items[0], msgspec.Struct):
            yield from variants(items[0], put_first)


def test_what_is_imported_can_be_read_back() -> None:
    """Whatever stands in whichever field: it is refused, or its events are read as they were written."""
    taken = refused = 0
    for chat in variants(CHAT_WITH_ALL, lambda new: new):
        with suppress(ChatledgerError):
            refused += 1
            validate_chat(chat)
            bodies = decide_import(ReplayedChat(chat.id), chat, ids=["new"] * 9, now=1)
            for encoded in encode_events(
                bodies,
                stream_id=CHAT,
                version=0,
                previous_hash=NO_HASH,
                occurred_at=1,
                event_ids=["e"] * len(bodies),
                salts=salts(),
                envelope=Envelope(),
            ):
                decode_event(encoded.topic, encoded.state)
            refused, taken = refused - 1, taken + 1
    assert refused > taken > 0


@pytest.mark.parametrize("branch_id", [7, b"x", object(), "\ud800"])
def test_an_error_says_where(branch_id: Any) -> None:
    """An id from a table of one's own is often a number."""
    branch = msgspec.structs.replace(CHAT_WITH_ALL.branches[0], id=branch_id)
    with pytest.raises(InvalidValueError, match=f"chat '{CHAT}'"):
        validate_chat(msgspec.structs.replace(CHAT_WITH_ALL, branches=(branch,)))


def changed(**fields: Any) -> ImportedChat:
    return msgspec.structs.replace(CHAT_WITH_ALL, **fields)


def with_message(**fields: Any) -> ImportedChat:
    """The conversation with these values in its second message."""
    first, second = CHAT_WITH_ALL.messages
    return changed(messages=(first, msgspec.structs.replace(second, **fields)))


def with_run(**fields: Any) -> ImportedChat:
    return changed(runs=(msgspec.structs.replace(RUN, **fields),))


def with_regeneration(**fields: Any) -> ImportedChat:
    return changed(regenerations=(msgspec.structs.replace(CHAT_WITH_ALL.regenerations[0], **fields),))


def tree(**parents: str | None) -> ImportedChat:
    """A conversation of nothing but messages with these parents."""
    messages = tuple(ImportedMessage(id=key, parent_id=parent, name="user", data=1) for key, parent in parents.items())
    main = ImportedBranch(name="main", head_message_id=None, is_active=True)
    return changed(messages=messages, branches=(main,), checkpoints=(), runs=(), regenerations=())


OTHER = ImportedBranch(name="other", head_message_id=None)
SOUND = [
    CHAT_WITH_ALL,
    tree(),
    tree(m1=None, m2="m1", m3=None, m4="m1"),
    changed(branches=(OTHER, *CHAT_WITH_ALL.branches), metadata=None),
    with_message(data={"é": [1.5, True, None, "é", {}, 2**70]}),
    with_message(data={"\ud800": [float("nan"), "cut \ud83d"]}),
]
BROKEN_LINKS = [
    (tree(m1="m1"), "own ancestors"),
    (tree(m1="m2", m2="m1"), "own ancestors"),
    (tree(m1="gone"), "'gone', which is not there"),
    (
        changed(branches=(msgspec.structs.replace(CHAT_WITH_ALL.branches[0], head_message_id="gone"),)),
        "branch 'main' of",
    ),
    (changed(checkpoints=(ImportedCheckpoint(name="cp", message_id="gone"),)), "checkpoint 'cp' of"),
    (with_message(annotation=Annotation(replaced_by="gone")), "the annotation of message 'm2' of"),
    (with_run(trigger_message_id="gone"), "run 'r' of"),
    (with_run(message_id="gone"), "run 'r' of"),
    (with_run(references=["m1", "gone"]), "run 'r' of"),
    (with_regeneration(edited_message_id="gone"), "regeneration 'g' of"),
    (with_regeneration(new_message_id="gone"), "regeneration 'g' of"),
    (
        with_regeneration(carries=CarryOver(branch_id="b", stretches=(Stretch(first="m1", last="gone"),))),
        "regeneration 'g' of",
    ),
]
BROKEN_VALUES = [
    (changed(id=""), "the id of chat ''"),
    (changed(metadata={"a": "\ud800"}), "the metadata of chat 'chat-1'"),
    (with_message(annotation=Annotation(metadata={"a": b""})), "the metadata of the annotation of message 'm2'"),
    (with_message(annotation={"hidden": True}), "the annotation of message 'm2'"),
    (tree(m2="m1", m1=None), "message 'm2' comes before its parent"),
    (tree(m0=None, m3="m1", m1="m0"), "message 'm3' comes before its parent"),
    (changed(messages=CHAT_WITH_ALL.messages[:1] * 2), "has the message id 'm1' twice"),
    (changed(branches=(*CHAT_WITH_ALL.branches, OTHER, OTHER)), "has the branch name 'other' twice"),
    (changed(branches=(*CHAT_WITH_ALL.branches, msgspec.structs.replace(OTHER, name=""))), "has an empty branch name"),
    (changed(checkpoints=CHAT_WITH_ALL.checkpoints * 2), "has the checkpoint name 'cp' twice"),
    (changed(runs=(RUN, RUN)), "has the run id 'r' twice"),
    (changed(regenerations=CHAT_WITH_ALL.regenerations * 2), "has the regeneration id 'g' twice"),
    (changed(branches=(OTHER,)), "0 active"),
    (changed(branches=(*CHAT_WITH_ALL.branches, msgspec.structs.replace(OTHER, is_active=True))), "2 active"),
]
BROKEN_MESSAGES = [
    (tree(**{"a\0": None}), r"the id of message 'a\\x00' of .* NUL"),
    (tree(**{"é" * 1025: None}), "the id of message .* 2050 bytes"),
    (with_message(name=""), "message 'm2' of .* no name"),
    (with_message(data={"a": [b""]}), "the data of message 'm2'"),
    (with_message(data=object()), "the data of message 'm2'"),
]  # fmt: skip


@pytest.mark.parametrize("chat", SOUND)
def test_a_sound_chat_is_valid(chat: ImportedChat) -> None:
    validate_chat(chat)
    validate_links(chat)


@pytest.mark.parametrize(
    ("chat", "expected", "error"),
    [
        *((chat, expected, ChainIntegrityError) for chat, expected in BROKEN_LINKS),
        *((chat, expected, InvalidValueError) for chat, expected in BROKEN_VALUES),
    ],
)
def test_a_broken_chat_is_refused(chat: ImportedChat, expected: str, error: type[Exception]) -> None:
    """What leads nowhere, is there twice, or is no value of its place; the error says where."""
    for check in (validate_chat, validate_links):
        with pytest.raises(error, match=expected) as caught:
            check(chat)
        assert f"chat {chat.id!r}" in str(caught.value)


@pytest.mark.parametrize(("chat", "expected"), BROKEN_MESSAGES)
def test_a_broken_message_is_refused(chat: ImportedChat, expected: str) -> None:
    """But for one who looks at each message next."""
    validate_links(chat)
    with pytest.raises(InvalidValueError, match=expected) as caught:
        validate_chat(chat)
    assert "chat 'chat-1'" in str(caught.value)


def test_only_a_conversation_is_one() -> None:
    with pytest.raises(InvalidValueError, match="expected an ImportedChat, not dict"):
        validate_chat({})  # type: ignore[arg-type]  # what a caller without types may give


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (float("inf"), "not finite"),
        ("\ud800", "surrogate"),
        ({"\ud800": 1}, "key"),
        ({1: 2}, "key"),
        (b"", "bytes is not a JSON type"),
        ((1,), "tuple is not a JSON type"),
    ],
)
def test_what_json_cannot_say(value: Any, fault: str) -> None:
    """Wherever it stands, however deep."""
    deep = value
    for _ in range(5_000):
        deep = {"a": [1, deep, 2], "b": 3}
    for one in (value, [value], deep):
        assert fault in (describe_json_fault(one) or "")


# What a file says of messages


def test_replacements_that_are_not_there_are_left_out() -> None:
    """And told; what else was said of the message stays."""
    told: list[Problem] = []
    report = Reporter("file", strict=False, on_problem=told.append)
    messages = [
        ImportedMessage(id=f"m{at}", parent_id=None, name="user", data=at, annotation=annotation)
        for at, annotation in enumerate(
            [
                None,
                Annotation(hidden=True),
                Annotation(replaced_by="m0"),
                Annotation(replaced_by="m3", stale=True),
                Annotation(replaced_by="gone"),
            ]
        )
    ]
    repaired = repair_annotations("c", messages, report=report)

    assert [True, True, True, False, False] == [one is given for one, given in zip(repaired, messages, strict=True)]
    assert [
        msgspec.structs.replace(messages[3], annotation=Annotation(stale=True)),
        msgspec.structs.replace(messages[4], annotation=None),
    ] == [*repaired[3:]]
    assert [
        "message 'm3' cannot replace message 'm3' of chat 'c'; left out",
        "message 'gone' cannot replace message 'm4' of chat 'c'; left out",
    ] == [one.message for one in told]


def test_runs_and_regenerations_of_messages_that_are_not_there_are_left_out() -> None:
    """And told, with their lines; so are those whose ids are taken. The others stay as they are."""
    told: list[Problem] = []
    report = Reporter("file", strict=False, on_problem=told.append)
    runs = [
        RUN,
        RUN,
        *(
            msgspec.structs.replace(RUN, run_id="s", **{name: value})
            for name, value in {"trigger_message_id": "x", "message_id": "y", "references": ["m1", "z"]}.items()
        ),
        msgspec.structs.replace(RUN, run_id="t", message_id=None),
    ]
    (regeneration,) = CHAT_WITH_ALL.regenerations
    regenerations = [
        regeneration,
        regeneration,
        msgspec.structs.replace(regeneration, id="h", new_message_id="x"),
        msgspec.structs.replace(regeneration, id="i"),
    ]
    messages = CHAT_WITH_ALL.messages

    assert (runs[0], runs[5]) == repair_runs("c", zip(runs, range(6), strict=True), messages, report=report)
    assert (regeneration, regenerations[3]) == repair_regenerations(
        "c", zip(regenerations, range(6, 10), strict=True), messages, report=report
    )
    repeated = "of chat 'c' has an empty, impossible or repeated id; skipped"
    assert [
        (1, f"run 'r' {repeated}"),
        *(
            (at, f"the message '{lost}' of run 's' of chat 'c' is not there; skipped")
            for at, lost in enumerate("xyz", 2)
        ),
        (7, f"regeneration 'g' {repeated}"),
        (8, "the message 'x' of regeneration 'h' of chat 'c' is not there; skipped"),
    ] == [(one.line, one.message) for one in told]
