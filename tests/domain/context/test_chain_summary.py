"""The summary of a chain (CE-31)."""

from collections.abc import Iterator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.json_values import json_values

from chatledger.domain.context.summary import (
    LazySummary,
    is_real_user_message,
    summarise,
)
from chatledger.domain.forms.detect import form_of
from chatledger.domain.values import Message


def ui(role: str, text: str, **metadata: Any) -> dict[str, Any]:
    """A UIMessage whose id is its text."""
    message = {"id": text, "role": role, "parts": [{"type": "text", "text": text}]}
    return {**message, "metadata": metadata} if metadata else message


def said(name: str, data: Any, created_at: int = 0) -> Message:
    """A stored message, whose form is told by its shape."""
    return Message(id="m", name=name, data=data, created_at=created_at, form=form_of(data))


def user(text: str, created_at: int = 0, **metadata: Any) -> Message:
    return said("user", ui("user", text, **metadata), created_at)


def assistant(text: str, created_at: int = 0) -> Message:
    return said("assistant", ui("assistant", text), created_at)


STEER = {"source": "steer-reminder"}

synthetic = st.none() | st.just(STEER) | st.just({**STEER, "onceIds": ["s"]})
once_ids = st.none() | st.lists(st.sampled_from(["a", "b", ""]), max_size=2)
ui_messages = st.builds(ui, st.just("any"), st.text(max_size=3), synthetic=synthetic, once_ids=once_ids)
messages = st.builds(
    said, st.sampled_from(["user", "assistant", "tool", "system"]), json_values | ui_messages, st.integers(0, 1_000)
)


def test_a_conversation() -> None:
    """Turns, counts, times and last messages are those of the chain."""
    summary = summarise([user("a", 1), assistant("b", 2), user("c", 3), said("tool", {"x": 1}, 4), assistant("d", 5)])

    assert 2 == summary.turn
    assert 5 == summary.message_count
    assert 3 == summary.last_message_at
    assert ui("user", "c") == summary.last_message
    assert ui("assistant", "d") == summary.last_assistant_message
    assert (ui("assistant", "b"), ui("assistant", "d")) == summary.assistant_replies
    assert summary.is_replied


def test_segments_after_one_user_message_are_one_reply() -> None:
    """The last segment with the parts of all, whatever stands between them; the last message remains a segment."""
    between = said("tool", "18 °C"), user("hurry", synthetic=STEER)
    summary = summarise([user("a"), assistant("b"), *between, assistant("c"), user("d"), assistant("e")])

    first, second = summary.assistant_replies
    assert {**ui("assistant", "c"), "parts": [*ui("", "b")["parts"], *ui("", "c")["parts"]]} == first
    assert ui("assistant", "e") == second


def test_greeting_before_the_first_user_message_is_a_reply() -> None:
    summary = summarise([assistant("welcome"), user("hi")])

    assert (ui("assistant", "welcome"),) == summary.assistant_replies
    assert not summary.is_replied


def test_synthetic_user_messages_are_no_turns() -> None:
    """They move neither the turn nor the time, but what fired with them has fired."""
    summary = summarise([user("a", 1), user("nudge", 9, synthetic={**STEER, "onceIds": ["recap"]})])

    assert (1, 2, 1) == (summary.turn, summary.message_count, summary.last_message_at)
    assert ui("user", "a") == summary.last_message
    assert frozenset({"recap"}) == summary.once_ids


@pytest.mark.parametrize(
    ("metadata", "ids"),
    [
        ({"once_ids": ["a", "b"]}, {"a", "b"}),
        ({"onceIds": ["a"]}, {"a"}),  # as Deep Agents wrote it
        ({"once_ids": ["a", 5, None]}, {"a"}),
        ({"once_ids": "a"}, set[str]()),
        ({"other": ["a"]}, set[str]()),
    ],
)
def test_fired_ids_are_read_from_metadata(metadata: dict[str, Any], ids: set[str]) -> None:
    """Of all user messages of the chain; foreign values in their place are passed over."""
    summary = summarise([user("x", **metadata), user("y", once_ids=["later"])])

    assert ids | {"later"} == summary.once_ids


def test_assistant_metadata_fire_nothing() -> None:
    assert frozenset() == summarise([said("assistant", ui("assistant", "x", once_ids=["a"]))]).once_ids


def test_plain_data_count_with_their_text() -> None:
    """Messages need not be UIMessages."""
    summary = summarise([said("user", "hello", 1), said("assistant", {"answer": "hi"}, 2)])

    assert {"role": "user", "parts": [{"type": "text", "text": "hello"}]} == summary.last_message
    assert {"role": "assistant", "parts": [{"type": "text", "text": "hi"}]} == summary.last_assistant_message


@pytest.mark.parametrize(
    ("name", "data", "is_real"),
    [
        ("user", ui("user", "x"), True),
        ("user", "x", True),
        ("user", ui("user", "x", synthetic=None), True),
        ("user", {"metadata": "odd", "parts": []}, True),
        ("user", ui("user", "x", synthetic=STEER), False),
        ("assistant", ui("assistant", "x"), False),
        ("User", "x", False),
    ],
)
def test_real_user_messages(name: str, data: Any, *, is_real: bool) -> None:
    assert is_real == is_real_user_message(said(name, data))


class ListedChain:
    """A stored chain in a list, which notes how many of its messages were taken from its end."""

    def __init__(self, chain: list[Message]) -> None:
        self.messages = chain
        self.summary = summarise(chain)
        self.turn, self.message_count = self.summary.turn, self.summary.message_count
        self.read = 0

    def turns(self) -> list[Message]:
        return [message for message in self.messages if is_real_user_message(message)]

    def last_turn(self) -> Message | None:
        return next(reversed(self.turns()), None)

    def first_turn(self) -> Message | None:
        return next(iter(self.turns()), None)

    def backwards(self) -> Iterator[Message]:
        for message in reversed(self.messages):
            self.read += 1
            yield message

    def has_fired(self, once_id: str) -> bool:
        return once_id in self.summary.once_ids

    def fired(self) -> frozenset[str]:
        return self.summary.once_ids


@given(st.lists(messages, max_size=8), st.integers(0, 8))
def test_a_lazy_summary_says_what_a_whole_one_says(chain: list[Message], at: int) -> None:
    """Whatever of the chain is stored; but the last message remains the stored one."""
    stored, unsaved = chain[:at], chain[at:]
    whole, before = summarise(chain), summarise(stored)
    lazy = LazySummary(ListedChain(stored), unsaved)

    assert (whole.turn, whole.message_count) == (lazy.turn, lazy.message_count)
    assert (before.last_message, before.last_message_at) == (lazy.last_message, lazy.last_message_at)
    assert whole.last_assistant_message == lazy.last_assistant_message
    assert whole.is_replied == lazy.is_replied
    assert whole.assistant_replies == tuple(lazy.assistant_replies)
    assert whole.once_ids == set(lazy.once_ids)
    assert whole.once_ids >= lazy.once_ids
    assert len(whole.once_ids) == len(lazy.once_ids)
    assert whole.once_ids | {"new"} == set(lazy.once_ids | {"new"})
    assert all(once_id in lazy.once_ids for once_id in whole.once_ids)


@given(
    st.lists(messages, max_size=8),
    st.one_of(st.integers(-9, 9), st.slices(9), st.builds(slice, st.none() | st.integers(-9, 9), st.none(), st.none())),
)
def test_replies_are_a_sequence(chain: list[Message], index: Any) -> None:
    """Any index or slice gives what it gives of a tuple, also as the first that is asked."""
    whole = summarise(chain).assistant_replies
    assert bool(whole) == bool(LazySummary(ListedChain(chain)).assistant_replies)

    lazy = LazySummary(ListedChain(chain)).assistant_replies
    try:
        expected = cast("Any", whole)[index]
    except IndexError:
        with pytest.raises(IndexError):
            lazy[index]
    else:
        assert expected == lazy[index]
    assert len(whole) == len(lazy)


def test_only_what_is_asked_for_is_read() -> None:
    """The last reply and the last answer are at the end; counts and the last message take no reading at all."""
    chain = ListedChain([one for at in range(50) for one in (user("a", at), assistant("b", at))])
    lazy = LazySummary(chain)
    assert (50, 100, 49) == (lazy.turn, lazy.message_count, lazy.last_message_at)
    read = [chain.read]
    assert ui("assistant", "b") == lazy.last_assistant_message
    assert lazy.is_replied
    read.append(chain.read)
    assert 2 == len(lazy.assistant_replies[-2:])
    read.append(chain.read)

    assert [0, 2, 6] == read


@given(st.lists(messages, max_size=8))
def test_counts_agree_with_the_chain(chain: list[Message]) -> None:
    summary = summarise(chain)

    real = [message for message in chain if is_real_user_message(message)]
    assert len(chain) == summary.message_count
    assert len(real) == summary.turn
    assert (real[-1].created_at if real else None) == summary.last_message_at
    assert len(summary.assistant_replies) <= len(real) + 1


def test_unsaved_messages_count_but_are_no_time_apart() -> None:
    """The last message and its time remain the stored ones; turns, replies and fired ids go on."""
    stored = ListedChain([user("a", 1), assistant("b", 2)])
    unsaved = [user("c", once_ids=["w"]), assistant("d")]
    summary = LazySummary(stored, unsaved)

    assert (2, 4) == (summary.turn, summary.message_count)
    assert (1, ui("user", "a")) == (summary.last_message_at, summary.last_message)
    assert ui("assistant", "d") == summary.last_assistant_message
    assert {"w"} == set(summary.once_ids)


def test_unsaved_messages_of_a_new_conversation_have_no_earlier_message() -> None:
    summary = LazySummary(ListedChain([]), [user("a")])

    assert (1, None, None) == (summary.turn, summary.last_message_at, summary.last_message)
