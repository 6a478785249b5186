"""Shares of the chats: who holds what."""

from hashlib import blake2b
from typing import Any

import msgspec
import pytest
from tests.support.cases import case

from chatledger.domain.chat.events import ChatCreated, ChatUpdated
from chatledger.domain.errors import ConfigurationError
from chatledger.domain.log.shares import BUCKETS, UNSHARED, Share, bucket_of, check_share, owner_named
from chatledger.domain.versioned.events import Begins, VersionPut, VersionsExpirySet
from chatledger.domain.versioned.keys import ITEM, STATE, THREAD, item_id, state_id

COUNTS = [1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60]


def test_each_bucket_is_in_one_share() -> None:
    """Of any number of shares; what belongs to nobody is in none."""
    for count in COUNTS:
        shares = [Share(number, count) for number in range(count)]
        for bucket in range(BUCKETS):
            assert [Share(bucket % count, count)] == [share for share in shares if share.holds(bucket)]
            assert {Share(bucket % count, count)} == {share.same_for(bucket) for share in shares}
        assert not any(share.holds(UNSHARED) for share in shares)


def test_buckets_never_change() -> None:
    """Nodes of all versions, and logs of all times, put a user into the same bucket."""
    users = ["", "ada", "ben", "\ud800", "\U0001f600", *(f"user {number}" for number in range(500))]
    digests = [blake2b(user.encode("utf-8", "surrogatepass"), digest_size=8).digest() for user in users]

    assert [sum(byte << 8 * (7 - at) for at, byte in enumerate(digest)) % 60 for digest in digests] == [
        bucket_of(user) for user in users
    ]
    assert set(range(60)) == {bucket_of(user) for user in users}


def test_the_owner_is_named_where_a_stream_begins() -> None:
    """By the creation of a chat, and by the first content of a state that a user has."""
    first = VersionPut("", "1", None, {})
    state, item = state_id("ada", "c"), item_id("ben", ("a",), "k")
    for stream, body, owner in (
        ("c", ChatCreated("ada", None, None, "b"), "ada"),
        ("c", ChatUpdated({}), None),
        (STATE.stream_of(state), VersionsExpirySet(None), None),
        (STATE.stream_of(state), first, None),
        (STATE.stream_of(state), msgspec.structs.replace(first, begins=Begins(state)), "ada"),
        (ITEM.stream_of(item), msgspec.structs.replace(first, begins=Begins(item)), "ben"),
        (THREAD.stream_of("t"), msgspec.structs.replace(first, begins=Begins("t", "ada")), None),
    ):
        with case(body):
            assert owner == owner_named(stream, body)


@pytest.mark.parametrize(
    "bad",
    [5, "ab", (1,), (1, 2, 3), (-1, 2), (2, 2), (0, 7), (0, 0), (0, 120), (True, 2), (0, True), (0.0, 2), (0, 2.0)],
)
def test_no_share(bad: Any) -> None:
    """The error says which numbers there are."""
    with pytest.raises(ConfigurationError, match=", ".join(map(str, COUNTS))):
        check_share(bad)


def test_shares_as_they_are_given() -> None:
    assert check_share(None) is None
    for count in COUNTS:
        assert [Share(number, count) for number in (0, count - 1)] == [
            check_share((0, count)),
            check_share([count - 1, count]),
        ]
    assert "1/3" == str(Share(1, 3))
