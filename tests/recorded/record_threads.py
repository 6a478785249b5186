"""The same as `record`, for the stream of a thread of agents: `python -m tests.recorded.record_threads`."""

import json
from pathlib import Path
from typing import Any

from tests.recorded.record import make_samples

from chatledger.domain.chat.events import Body
from chatledger.domain.versioned.content import (
    Edited,
    Leaf,
    ListNode,
    Piece,
    composite_piece,
    dict_piece,
    leaf_pieces,
    list_piece,
    piece_digest,
)
from chatledger.domain.versioned.events import (
    Begins,
    FieldRef,
    Skeleton,
    TaskWrites,
    VersionContentPut,
    VersionPut,
    VersionRest,
    VersionsCopied,
    VersionsDeleted,
    VersionsKept,
    VersionsRemoved,
    VersionWritesPut,
    WriteSlot,
)
from chatledger.domain.versioned.keys import thread_stream

SAMPLES = Path(__file__).parent / "threads.json"

LEAVES = [
    Piece(piece_digest(leaf), leaf) for leaf in (Leaf("msgpack", b"\xa1x"), Leaf("null", b""), Leaf("json", b"1"))
]
LONG = leaf_pieces("bytes", b"\0" * 300_000)[-1]
DIGESTS = [piece.digest for piece in LEAVES]
LIST = list_piece(DIGESTS * 2)
GROWN = Piece(list_piece([*DIGESTS * 2, DIGESTS[0]]).digest, ListNode(DIGESTS[0], LIST.digest, 6))
EDITED = Piece(piece_digest(Leaf("text", b"xyz")), Edited("text", DIGESTS[0], ((0, 1, b""), (2, 0, b"yz"))))
OTHERS = (dict_piece({"a": DIGESTS[0], "": DIGESTS[1]}), composite_piece("langgraph.send/1", DIGESTS[:2]))

FRAMES = (("msgpack", b"\x80"), ("json", b"{}"))

STREAM: list[list[Body]] = [
    [VersionContentPut((*LEAVES, LONG), Begins("trip/漢", "ada"))],
    [VersionPut("assistant:a", "1", None, {"c": FieldRef(LIST.digest)}, (LIST, *OTHERS), FRAMES, "python")],
    [VersionPut("", "2", "1", {"c": FieldRef(GROWN.digest)}, (GROWN,), FRAMES, "ts", "run", expires_at=2**41)],
    [
        VersionWritesPut(
            "",
            "2",
            (
                TaskWrites("task", "~path", 1_600_000_000_001, (WriteSlot(-3, "__interrupt__", DIGESTS[0]),)),
                TaskWrites("other", "", 0, (WriteSlot(0, "c", DIGESTS[1]), WriteSlot(1, "d", DIGESTS[2]))),
            ),
            tuple(LEAVES[:1]),
        )
    ],
    [
        VersionsRemoved("pruned", ("assistant:a",), (("", "1"),), (Skeleton("", "2", ("c",)),), (("", "3"),)),
        VersionsCopied("source", ("assistant:a", "assistant:a|x"), "assistant:a"),
    ],
    [VersionsDeleted(1, 6, 2, "deleted", "0123456789abcdef0123456789abcdef")],
    [VersionPut("", "4", None, {}, (), FRAMES, "python", stored_at=2**40, begins=Begins("trip/漢", None, 2**40))],
    [VersionContentPut((EDITED,))],
    [
        VersionPut(
            "",
            "5",
            "4",
            {"c": FieldRef(DIGESTS[1])},
            (LEAVES[1],),
            FRAMES,
            "python",
            writes=(TaskWrites("task", "~path", 1_600_000_000_002, (WriteSlot(0, "c", DIGESTS[1]),)),),
        )
    ],
    [VersionPut("", "6", "5", {}, (), FRAMES, "python", is_orphan=True, skeleton=("c",))],
    [VersionsDeleted(7, 4, 3, "expired")],
    [
        VersionWritesPut(
            "x", "1", (TaskWrites("task", "", 0, (WriteSlot(0, "c", DIGESTS[0]),)),), (), Begins("trip/漢", "ada")
        )
    ],
    [VersionsDeleted(12, 1, 0, "deleted")],
    [VersionsCopied("source", (), None, Begins("trip/漢", "ada"))],
    [
        VersionsKept(
            (VersionRest("", "5", {}, FRAMES, ()), VersionRest("", "6", {"c": FieldRef(DIGESTS[1], 3)})),
            Begins("trip/漢", "ada", 2**40),
        )
    ],
]
"""A thread; each inner list is one commit. New ones go last."""


def main() -> None:
    """Add what is missing."""
    known: list[dict[str, Any]] = json.loads(SAMPLES.read_text()) if SAMPLES.exists() else []
    known += make_samples(known, STREAM, thread_stream("trip/漢"))
    SAMPLES.write_text(json.dumps(known, indent=1, ensure_ascii=True) + "\n")


if __name__ == "__main__":
    main()
