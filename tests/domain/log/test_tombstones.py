"""Tombstones, which know their owners without a name, and foreign messages."""

from hashlib import sha256

from tests.support.cases import case

from chatledger.domain.chat.events import ChatDeleted, ChatUpdated, Event, Recorded
from chatledger.domain.log.tombstones import (
    foreign_message,
    is_foreign,
    is_owner_of_deleted,
    owner_digest,
    removed_stream,
    removed_until,
)
from chatledger.domain.versioned.events import VersionsDeleted


def test_a_digest_never_changes() -> None:
    """Those on old logs have to be found; no two pairs of chat and user run together."""
    assert sha256(b"owner:3:\xc3\xa9c" + "ad\u00e1".encode()).hexdigest()[:32] == owner_digest("\u00e9c", "ad\u00e1")
    assert owner_digest("a", "b:c") != owner_digest("ab:", "c")


def test_owners_find_their_own_tombstones() -> None:
    """By the digest; where a tombstone has none, by what is known from elsewhere."""
    told = ChatDeleted(1, 1, 0, 1, 0, owner_digest("c", "ada"))
    for body, user, known, is_owner in (
        (told, "ada", None, True),
        (told, "ben", None, False),
        (told, "ben", "ben", False),
        (ChatDeleted(1, 1, 0, 1, 0), "ada", None, False),
        (ChatDeleted(1, 1, 0, 1, 0), "ada", "ada", True),
        (ChatDeleted(1, 1, 0, 1, 0), "ada", "ben", False),
        (VersionsDeleted(1, 1, 1, "expired"), "ada", "ada", True),
    ):
        with case(body, user, known):
            assert is_owner == is_owner_of_deleted(body, "c", user, known=known)


def test_a_foreign_message_stands_where_it_is() -> None:
    """It is no event: without version, time and id; its hash is that of what stands there."""
    recorded = foreign_message(5, "c", b"content", "no event")
    event = recorded.event

    assert is_foreign(recorded)
    assert (5, "c", 0, "", 0, b"") == (
        recorded.position,
        event.originator_id,
        event.originator_version,
        event.event_id,
        event.occurred_at,
        event.previous_hash,
    )
    assert ("no event", sha256(b"content").digest()) == (event.body.why, recorded.hash)
    assert not is_foreign(Recorded(5, Event("c", 1, "e", 0, b"", ChatUpdated({})), b""))


def test_streams_that_account_for_what_was_removed() -> None:
    """They say up to where; other streams, also those that look alike, do not."""
    for until in (0, 7, 2**63):
        assert until == removed_until(removed_stream(until, "some:thing"))
    prefix = "chatledger:lost:foreign:"
    assert prefix + "7:x" == removed_stream(7, "x")
    for other in ("c", "7:x", prefix, prefix + "7", prefix + "7:", prefix + ":x", prefix + "a:x", prefix + "\u0667:x",
                  prefix + "-7:x", prefix + " 7:x", "x" + prefix + "7:x"):  # fmt: skip
        with case(other):
            assert removed_until(other) is None
