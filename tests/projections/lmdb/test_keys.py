from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from tests.support.json_values import ids, objects, texts

from chatledger.projections.lmdb.keys import (
    NO_SEGMENT,
    Tag,
    fork_key,
    id_key,
    message_key,
    number,
    order_suffix,
    place_key,
    scope,
    scopes,
    segment_key,
    to_number,
)

MAX_KEY_BYTES = 511
A_UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"


def spoiled(text: str, at: int, letter: str) -> str:
    return text[: at % 36] + letter + text[at % 36 + 1 :]


uuids = st.uuids().map(str)
uuid_like = st.one_of(
    uuids,
    uuids.map(str.upper),
    uuids.map(lambda text: text.replace("-", "")),
    uuids.map(lambda text: f"{{{text}}}"),
    st.builds(spoiled, uuids, st.integers(0, 35), st.sampled_from([" ", "-", "A", "g", "\t", "é", "\uff10"])),
    st.binary(min_size=16, max_size=16).map(lambda raw: raw.decode("latin-1")),
)
of_chats = st.builds(
    "{}:{}".format, st.sampled_from(["c" * 31, "c" * 32, "c:" * 40, "d" * 64]), uuids | st.text(":ab", max_size=40)
)
any_id = st.one_of(
    ids, uuid_like, of_chats, st.text("ab/", min_size=395, max_size=405), st.integers(1, 2048).map("x".__mul__)
)
entries = st.tuples(texts, st.one_of(texts, st.booleans(), st.integers(-5, 5), st.floats(-3, 3)))


@given(any_id, any_id)
@example(A_UUID, A_UUID.upper())
@example(A_UUID, A_UUID.replace("-", ""))
@example("u" + A_UUID, A_UUID)
@example("x" * 400, "x" * 401)
@example("0f8fad5b-d9cb-469f-a165-7086772895  ", "0f8fad5b-d9cb-469f-a165-7086772895 \t")
@example("c" * 60 + ":" + A_UUID, "d" * 60 + ":" + A_UUID)
@pytest.mark.parametrize("key_of", [id_key, message_key])
def test_no_two_ids_share_a_key(key_of: Callable[[str], bytes], a: str, b: str) -> None:
    """Ids are case-sensitive and encoded without collisions (PS-16)."""
    assert (a == b) == (key_of(a) == key_of(b))
    assert 1 <= len(key_of(a)) <= MAX_KEY_BYTES - 9


def test_messages_of_transcripts_have_short_keys_side_by_side() -> None:
    """Their ids begin with that of their chat."""
    chat = "claude/-home-ada-project/" + A_UUID
    keys = [message_key(f"{chat}:{UUID(int=number)}") for number in (1, 2)]

    assert {50} == {*map(len, keys)}
    assert keys[0][:-1] == keys[1][:-1]


@pytest.mark.parametrize("text", ["f81d4fae-7dec-41d0-a765-00a0c91e6bf6", str(UUID(int=0)), str(UUID(int=2**128 - 1))])
def test_uuids_are_short(text: str) -> None:
    """The default ids take 17 bytes."""
    assert b"u" + UUID(text).bytes == id_key(text)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_numbers_sort_by_value(a: int, b: int) -> None:
    """Keys that hold numbers are in the order of the numbers."""
    assert (a < b) == (number(a) < number(b))
    assert a == to_number(number(a))


times = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2)


@given(st.tuples(times, ids), st.tuples(times, ids))
@example((5, "a"), (5, "a!"))
@example((-1, "a"), (0, "a"))
@example((5, "é"), (5, "🦜"))
@example((5, "\uffff"), (5, "🦜"))
def test_lists_are_newest_first_then_by_id(a: tuple[int, str], b: tuple[int, str]) -> None:
    """`updated_at` descending, ties by id ascending, the order of code points (PS-8)."""
    listing = scope()
    keys = order_suffix(*a, 1), order_suffix(*b, 2)

    assert ((-a[0], a[1]) < (-b[0], b[1])) == (keys[0] < keys[1])
    assert all(len(listing) + len(key) <= MAX_KEY_BYTES for key in keys)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_long_ids_that_begin_alike_have_keys_of_their_own(a: int, b: int) -> None:
    """Chats whose ids share 400 bytes do not take each other's place in a list."""
    assume(a != b)
    keys = [order_suffix(5, "x" * 2000, chat_no) for chat_no in (a, b)]

    assert keys[0] != keys[1]
    assert len(scope()) + max(map(len, keys)) <= MAX_KEY_BYTES
    assert order_suffix(5, "x" * 400, a) < min(keys)


@pytest.mark.parametrize(
    ("a", "b", "is_same"),
    [
        (True, 1, False),
        (False, 0, False),
        (True, 1.0, False),
        ("1", 1, False),
        ("True", True, False),
        ("", 0, False),
        (1, 1.0, True),
        (0, -0.0, True),
        (-3, -3.0, True),
        (1, 1.5, False),
        (2**53, float(2**53), True),
        (2**60, float(2**60), True),
        (2**53 + 1, float(2**53), False),
        ("a", "A", False),
        ("é", "e\u0301", False),
    ],
)
def test_entries_are_equal_by_type(a: Any, b: Any, is_same: bool) -> None:  # noqa: FBT001 (a column of the table)
    """`True` does not match `1`, `"1"` does not match `1`; JSON has one kind of number (PS-10)."""
    assert is_same == (scope(entry=("k", a)) == scope(entry=("k", b)))


@given(st.none() | texts, st.none() | entries, st.none() | texts, st.none() | entries)
@example("", None, None, None)
@example(None, ("a", "b"), "a", None)
@example("a", ("b", 1), None, ("a", 1))
def test_lists_have_keys_of_their_own(
    a: str | None, x: tuple[str, str | float] | None, b: str | None, y: tuple[str, str | float] | None
) -> None:
    """An empty user is not no user, and owner, key and value do not run together (PS-9, PS-10)."""
    same_entry = x == y and (x is None or y is None or isinstance(x[1], bool) == isinstance(y[1], bool))

    assert (a == b and same_entry) == (scope(user_id=a, entry=x) == scope(user_id=b, entry=y))


@given(texts, objects, st.sets(texts, max_size=3))
def test_a_chat_is_in_the_lists_of_its_scalars(user_id: str, metadata: dict[str, Any], members: set[str]) -> None:
    """
    All chats, its owner's, and one for each scalar entry with and without owner; never twice the same.

    And one for each member: a thousand entries of five hundred members would be half a million rows with every message.
    """
    found = scopes(user_id, metadata, members)
    scalars = {key: value for key, value in metadata.items() if isinstance(value, str | int | float)}

    assert len(found) == len(set(found)) == 2 + 2 * len(scalars) + len(members)
    assert {scope(), scope(user_id=user_id)} <= set(found)
    for entry in scalars.items():
        assert {scope(entry=entry), scope(user_id=user_id, entry=entry)} <= set(found)


@given(st.integers(0, 2**64 - 1), st.integers(0, NO_SEGMENT), st.integers(0, 2**32 - 1))
def test_rows_of_a_chat_lie_together(chat_no: int, segment: int, offset: int) -> None:
    """Every key of a chat begins with its number, so the chat goes with one sweep."""
    prefix = number(chat_no)
    keys = [segment_key(chat_no, Tag.SEGMENT, segment), place_key(chat_no, Tag.PAGE, segment, offset)]
    keys.append(fork_key(chat_no, Tag.FORK, segment, offset, segment))

    assert all(key.startswith(prefix) for key in keys)
    assert keys[2].startswith(place_key(chat_no, Tag.FORK, segment, offset))
    assert 3 == len(set(keys))
