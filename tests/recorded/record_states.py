"""The same as `record`, for the stream of a graph's state: `python -m tests.recorded.record_states`."""

import json
from pathlib import Path
from typing import Any

from tests.recorded.record import make_samples

from chatledger.domain.chat.events import Body
from chatledger.domain.versioned.content import Leaf, ListNode, Parts, Piece, dict_piece
from chatledger.domain.versioned.events import (
    Begins,
    FieldRef,
    VersionContentPut,
    VersionPut,
    VersionsDeleted,
    VersionsExpirySet,
)
from chatledger.domain.versioned.keys import STATE, state_id

SAMPLES = Path(__file__).parent / "states.json"

STATE_ID = state_id("ada:x", "trip/漢")
ONE, TWO, THREE = (bytes((number,)) * 20 for number in (1, 2, 3))
PIECES = (
    Piece(ONE, Leaf("msgpack", b"\x01")),
    Piece(TWO, ListNode(ONE + THREE, TWO, 7)),
    Piece(THREE, Parts("msgpack", ONE)),
    dict_piece({"a": ONE, "": TWO}),
)

FIRST, SECOND = "000000000001", "000000000002"
BEGINS = Begins(STATE_ID)

STREAM: list[list[Body]] = [
    [
        VersionContentPut(PIECES, BEGINS),
        VersionPut("", FIRST, None, {"docs": FieldRef(ONE, 3), "": FieldRef(TWO, 2**40)}, PIECES[:1], node="search"),
    ],
    [VersionPut("", SECOND, FIRST, {}, is_final=True, expires_at=1_900_000_000_000)],
    [VersionsDeleted(first_position=1, event_count=3, version_count=2, reason="expired")],
    [VersionPut("", FIRST, None, {}, stored_at=1_600_000_000_000, begins=BEGINS)],
    [VersionsExpirySet(1_900_000_000_000)],
    [VersionsExpirySet(None)],
    [VersionsExpirySet(None, {"user": 7}, {"user": ("ada", "mara", None)}), VersionsExpirySet(None, {})],
]
"""A state; each inner list is one commit. New ones go last."""


def main() -> None:
    """Add what is missing."""
    known: list[dict[str, Any]] = json.loads(SAMPLES.read_text()) if SAMPLES.exists() else []
    known += make_samples(known, STREAM, STATE.stream_of(STATE_ID))
    SAMPLES.write_text(json.dumps(known, indent=1, ensure_ascii=True) + "\n")


if __name__ == "__main__":
    main()
