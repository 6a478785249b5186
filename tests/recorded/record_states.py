"""The same as `record`, for the stream of a graph's state: `python -m tests.recorded.record_states`."""

import json
from pathlib import Path
from typing import Any

from tests.recorded.record import make_samples

from chatledger.domain.chat.events import Body
from chatledger.domain.content import Leaf, ListNode, Parts, Piece, dict_piece
from chatledger.domain.graph.events import (
    FieldRef,
    StateContentPut,
    StateDeleted,
    StateExpirySet,
    StatePut,
    state_id,
    state_stream,
)

SAMPLES = Path(__file__).parent / "states.json"

STATE_ID = state_id("ada:x", "trip/漢")
ONE, TWO, THREE = (bytes((number,)) * 20 for number in (1, 2, 3))
PIECES = (
    Piece(ONE, Leaf("msgpack", b"\x01")),
    Piece(TWO, ListNode(ONE + THREE, TWO, 7)),
    Piece(THREE, Parts("msgpack", ONE)),
    dict_piece({"a": ONE, "": TWO}),
)

STREAM: list[list[Body]] = [
    [
        StateContentPut(PIECES),
        StatePut(STATE_ID, 1, {"docs": FieldRef(ONE, 3), "": FieldRef(TWO, 2**40)}, PIECES[:1], "search", None),
    ],
    [StatePut(STATE_ID, 2, {}, (), None, 1, is_final=True, expires_at=1_900_000_000_000)],
    [StateDeleted(first_position=1, event_count=3, version_count=2, reason="expired")],
    [StatePut(STATE_ID, 1, {}, (), stored_at=1_600_000_000_000)],
    [StateExpirySet(1_900_000_000_000)],
    [StateExpirySet(None)],
]
"""A state; each inner list is one commit. New ones go last."""


def main() -> None:
    """Add what is missing."""
    known: list[dict[str, Any]] = json.loads(SAMPLES.read_text()) if SAMPLES.exists() else []
    known += make_samples(known, STREAM, state_stream(STATE_ID))
    SAMPLES.write_text(json.dumps(known, indent=1, ensure_ascii=True) + "\n")


if __name__ == "__main__":
    main()
