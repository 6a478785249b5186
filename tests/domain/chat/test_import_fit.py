"""Records of foreign files, made to fit a ledger's limits one by one."""

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatledger.domain.chat.import_fit import describe_id_fault, fit_chat, fit_message, with_floats
from chatledger.domain.chat.interchange import (
    ImportedBranch,
    ImportedChat,
    ImportedCheckpoint,
    ImportedMessage,
    ImportedRegeneration,
)
from chatledger.domain.chat.runs import MessageRun
from chatledger.domain.limits import MAX_ID_BYTES, MAX_JSON_DEPTH, MAX_TITLE_BYTES
from chatledger.domain.values import Annotation
from chatledger.domain.versioned.keys import THREAD_PREFIX


def message(message_id: str, parent_id: str | None, data: Any = "x", **rest: Any) -> ImportedMessage:
    return ImportedMessage(id=message_id, parent_id=parent_id, name="user", data=data, **rest)


def made(fields: dict[str, Any]) -> ImportedMessage:
    """A message that is sound but for these fields."""
    values: dict[str, Any] = {"id": "m", "parent_id": None, "name": "user", "data": 1, **fields}
    return ImportedMessage(**values)


@given(st.floats(2.0**64, 2.0**69))
def test_a_number_as_javascript_writes_it_is_exact(number: float) -> None:
    """Its shortest digits, and zeros: the float is the one it came from, and nothing is told."""
    rounded: list[int] = []

    assert [number] == with_floats([int(Decimal(repr(number)))], rounded)
    assert rounded == []


def test_other_integers_are_told() -> None:
    """What was no float loses digits; what no float can hold stays, and is refused."""
    rounded: list[int] = []
    exact = 2**64 - 1

    assert {"a": [float(2**70 + 1)], "b": exact, "c": 10**400} == with_floats(
        {"a": [2**70 + 1], "b": exact, "c": 10**400}, rounded
    )
    assert [2**70 + 1] == rounded


def nested(value: Any, levels: int) -> Any:
    """A value in so many objects and lists."""
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


def test_what_fits_stays() -> None:
    """Integers of 64 bits; and what is nested too deeply, which is refused for that."""
    assert [int, int, float, float] == [type(one) for one in with_floats([-(2**63), 2**64 - 1, -(2**63) - 1, 2**64])]
    assert nested(float(2**70), MAX_JSON_DEPTH) == with_floats(nested(2**70 + 1, MAX_JSON_DEPTH))
    inner: Any = with_floats(nested(2**70 + 1, MAX_JSON_DEPTH + 1))
    for level in reversed(range(MAX_JSON_DEPTH + 1)):
        inner = inner[0 if level % 2 else "a"]
    assert 2**70 + 1 == inner


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("x" * MAX_ID_BYTES, None),
        ("é" * (MAX_ID_BYTES // 2), None),
        (5, "is not a text"),
        ("", "is empty"),
        ("a\0", "contains a NUL"),
        ("\ud800", "contains a lone surrogate"),
        ("x" * (MAX_ID_BYTES + 1), "has 2049 bytes, more than 2048"),
        ("é" * (MAX_ID_BYTES // 2 + 1), "has 2050 bytes, more than 2048"),
    ],
)
def test_what_an_id_is(value: object, fault: str | None) -> None:
    assert fault == describe_id_fault(value)


@pytest.mark.parametrize(
    ("given_fields", "kept", "told"),
    [
        ({"type": ""}, {"type": None}, "type must not be empty; imported without"),
        ({"sender_id": "\0"}, {"sender_id": None}, "sender_id must not contain a NUL"),
        ({"sender_id": "a", "agent_id": "b"}, {"sender_id": "a", "agent_id": None}, "imported without agent_id"),
        ({"type": "", "agent_id": "b"}, {"type": None, "agent_id": "b"}, "type must not be empty; imported without"),
        ({"created_at": 2**63}, {"created_at": None}, "created_at must be whole milliseconds"),
        ({"data": [2**70 + 1]}, {"data": [2**70 + 1]}, None),
        ({"data": {"n": 2**70}, "type": ""}, {"data": {"n": 2**70}, "type": None}, "type must not be empty"),
        ({"parent_id": "x" * 3000}, {"parent_id": "x" * 3000}, None),
    ],
)
def test_an_attribute_that_is_refused_is_left_out(
    given_fields: dict[str, Any], kept: dict[str, Any], told: str | None
) -> None:
    said: list[str] = []
    fitted = fit_message("c", made(given_fields), said.append)

    assert fitted is not None
    assert kept == {name: getattr(fitted, name) for name in kept}
    assert [told is not None and told in line and "message 'm' of chat 'c'" in line for line in said] == [True] * (
        told is not None
    )


@pytest.mark.parametrize("fields", [{"id": ""}, {"name": "\0"}, {"data": 10**5000}, {"data": [b""]}])
def test_a_message_that_cannot_be_kept_is_skipped(fields: dict[str, Any]) -> None:
    said: list[str] = []

    assert fit_message("c", made(fields), said.append) is None
    assert ["skipped"] == [line[-7:] for line in said]


@pytest.mark.guard
def test_a_message_beyond_the_largest_event_is_skipped() -> None:
    """64 MiB; texts below that lie beside the log. A message that fits is taken as it is."""
    said: list[str] = []
    sound, large = message("m", None, "x" * 2_000_000), message("m", None, "x" * (65 * 1024 * 1024))

    assert fit_message("c", sound, said.append) is sound
    assert fit_message("c", large, said.append) is None
    assert fit_message("c", msgspec.structs.replace(large, parent_id=""), said.append) is None
    assert [True] * 2 == ["message 'm' of chat 'c': " in line for line in said]


RUN = MessageRun(id="i", run_id="r", thread_id="t", assistant_id="bot", status="completed", created_at=1, updated_at=2)
ANSWERED = (
    message("m1", None, annotation=Annotation(hidden=True, metadata={"a": 1})),
    message("m2", "m1", reply_to="m1"),
)
SOUND = ImportedChat(
    id="c",
    user_id="ada",
    title="é" * (MAX_TITLE_BYTES // 2),
    metadata={"a": [1, None, 2.5]},
    messages=ANSWERED,
    branches=(ImportedBranch(name="main", head_message_id="m2", created_at=1, is_active=True),),
    checkpoints=(ImportedCheckpoint(name="cp", message_id="m1"),),
    runs=(RUN,),
    regenerations=(ImportedRegeneration(id="g", edited_message_id="m1", new_message_id="m2", created_at=3),),
    created_at=4,
    updated_at=5,
    expires_at=6,
)
LATE = 2**63


def at(value: Any, created_at: int | None) -> tuple[Any, ...]:
    return (msgspec.structs.replace(value, created_at=created_at),)


def answered(**fields: Any) -> tuple[ImportedMessage, ...]:
    """The messages with these values in the first."""
    return (msgspec.structs.replace(ANSWERED[0], **fields), ANSWERED[1])


def test_a_sound_chat_stays_as_it_is() -> None:
    """Nothing of it is made anew, and nothing is told."""
    said: list[str] = []
    bare = ImportedChat(id="c", user_id="", title=None, metadata=None, messages=(), branches=())
    fitted = fit_chat(SOUND, said.append)

    assert fitted is not None
    assert (SOUND, bare, []) == (fitted, fit_chat(bare, said.append), said)
    for name in ("branches", "checkpoints", "regenerations"):
        assert getattr(SOUND, name)[0] is getattr(fitted, name)[0]
    assert SOUND.messages[1] is fitted.messages[1]


@pytest.mark.parametrize(
    ("given_fields", "kept", "told"),
    [
        ({"user_id": "\0"}, {"user_id": ""}, "user_id must not contain a NUL"),
        ({"title": "a" + "é" * 8192}, {"title": "a" + "é" * 8191}, "its title takes 16,385 bytes; cut to 16,384"),
        ({"title": "a\ud800"}, {"title": "a?"}, None),
        ({"metadata": {"a": float("nan")}}, {"metadata": None}, "imported without its metadata"),
        ({"metadata": {"a": 2**70}}, {"metadata": {"a": float(2**70)}}, None),
        ({"metadata": {"a": 2**70 + 1}}, {"metadata": {"a": float(2**70)}}, "1 integer(s) beyond 64 bits"),
        *(({name: LATE}, {name: None}, f"{name} must be") for name in ("created_at", "updated_at", "expires_at")),
        *(
            ({name: at(items[0], LATE)}, {name: at(items[0], None)}, f"created_at of a {name[: -len(plural)]} must be")
            for name, items, plural in (
                ("branches", SOUND.branches, "es"),
                ("checkpoints", SOUND.checkpoints, "s"),
                ("regenerations", SOUND.regenerations, "s"),
            )
        ),
        (
            {"runs": (RUN, msgspec.structs.replace(RUN, run_id="s", runtime=""))},
            {"runs": (RUN,)},
            "run 's' of chat 'c'",
        ),
        *(
            (
                {"messages": answered(merged_from=(to,))},
                {"messages": ANSWERED},
                f"message 'm1' of chat 'c' merges '{to}'",
            )
            for to in ("m1", "nowhere")
        ),
        *(
            ({"messages": answered(reply_to=to)}, {"messages": ANSWERED}, f"message 'm1' of chat 'c' answers '{to}'")
            for to in ("m1", "m2", "gone")
        ),
        (
            {"messages": answered(annotation=Annotation(hidden=True, metadata={"a": b""}))},
            {"messages": answered(annotation=Annotation(hidden=True))},
            "the annotation of 'm1', chat 'c'",
        ),
        (
            {"messages": answered(annotation=Annotation(metadata={"a": b""}))},
            {"messages": answered(annotation=None)},
            "the annotation of 'm1', chat 'c'",
        ),
    ],
)
def test_what_a_ledger_would_refuse_of_a_chat_is_left_out(
    given_fields: dict[str, Any], kept: dict[str, Any], told: str | None
) -> None:
    """The rest is taken; what loses something is told."""
    said: list[str] = []

    assert msgspec.structs.replace(SOUND, **kept) == fit_chat(
        msgspec.structs.replace(SOUND, **given_fields), said.append
    )
    assert [told is not None and told in line and "chat 'c'" in line for line in said] == [True] * (told is not None)


@pytest.mark.parametrize("chat_id", ["", "\0", THREAD_PREFIX])
def test_a_chat_without_an_id_is_skipped(chat_id: str) -> None:
    said: list[str] = []

    assert fit_chat(msgspec.structs.replace(SOUND, id=chat_id), said.append) is None
    assert [(f"chat {chat_id!r}: ", "; skipped")] == [(line[: len(repr(chat_id)) + 7], line[-9:]) for line in said]
