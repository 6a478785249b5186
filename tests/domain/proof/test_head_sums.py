"""Sums over the heads of chats: equal for equal heads, however they came about, and a way down to those that differ."""

from collections.abc import Mapping
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from chatledger.domain.chat.state import StreamHead
from chatledger.domain.proof.head_sums import bucket_of, bucket_sums, moved, rows_below, sums_under

Heads = dict[str, tuple[int, str]]
CHATS = st.text("abcdefgh", min_size=1, max_size=2)
HEADS = st.tuples(st.integers(1, 3), st.sampled_from(["00" * 32, "5c" * 32]))


def differing(theirs: Heads, ours: Heads) -> set[str]:
    """The buckets that one comes to from the root."""
    trees = [partial(rows_below, bucket_sums(heads)) for heads in (theirs, ours)]
    places: list[str] = []
    for _ in range(3):
        there, here = (sums_under(tree, places) for tree in trees)
        places = [place for place in there.keys() | here.keys() if there.get(place) != here.get(place)]
        if not places:
            break
    return set(places)


@given(st.dictionaries(CHATS, HEADS), st.dictionaries(CHATS, HEADS | st.none()))
def test_the_way_down_ends_at_the_buckets_of_what_differs(
    ours: Heads, edits: Mapping[str, tuple[int, str] | None]
) -> None:
    theirs = {chat_id: head for chat_id, head in {**ours, **edits}.items() if head is not None}
    unlike = {chat_id for chat_id in theirs.keys() | ours.keys() if theirs.get(chat_id) != ours.get(chat_id)}
    assert differing(theirs, ours) == {bucket_of(chat_id).hex() for chat_id in unlike}


@given(st.lists(st.tuples(CHATS, HEADS | st.none())))
def test_a_sum_that_was_moved_is_that_of_what_there_is(edits: list[tuple[str, tuple[int, str] | None]]) -> None:
    heads: Heads = {}
    sums: dict[bytes, bytes] = {}
    for chat_id, head in edits:
        before, after = (
            None if each is None else StreamHead(each[0], 0, bytes.fromhex(each[1]))
            for each in (heads.pop(chat_id, None), head)
        )
        bucket = bucket_of(chat_id)
        sums[bucket] = moved(sums.get(bucket, b""), chat_id, before, after)
        if head is not None:
            heads[chat_id] = head
    assert {bucket: total for bucket, total in sums.items() if total} == bucket_sums(heads)


def test_a_place_that_is_asked_for_again_and_again_is_read_once() -> None:
    """A request of a megabyte would have all sums read 300,000 times."""
    places: list[bytes] = []

    def read(first: bytes) -> list[tuple[bytes, bytes]]:
        places.append(first)
        return []

    sums_under(read, ["", "a3", "", "a3", ""])
    assert places == [b"", b"\xa3"]
