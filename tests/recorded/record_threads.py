"""The same as `record`, for the stream of a thread of agents: `python -m tests.recorded.record_threads`."""

import json
from pathlib import Path
from typing import Any

from tests.recorded.record import make_samples

from chatledger.domain.chat.events import Body
from chatledger.domain.content import (
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
from chatledger.domain.thread.events import (
    AgentCheckpointPut,
    AgentCheckpointsDeleted,
    AgentContentPut,
    AgentThreadCopied,
    AgentThreadDeleted,
    AgentWritesPut,
    Skeleton,
    TaskWrites,
    WriteSlot,
    thread_stream,
)

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

STREAM: list[list[Body]] = [
    [AgentContentPut((*LEAVES, LONG), "ada")],
    [
        AgentCheckpointPut(
            "assistant:a",
            "1",
            None,
            ("msgpack", b"\x80"),
            ("json", b"{}"),
            {"c": LIST.digest},
            (LIST, *OTHERS),
            "python",
        )
    ],
    [
        AgentCheckpointPut(
            "", "2", "1", ("msgpack", b"\x80"), ("json", b"{}"), {"c": GROWN.digest}, (GROWN,), "ts", "run", "ada"
        )
    ],
    [
        AgentWritesPut(
            "",
            "2",
            (
                TaskWrites("task", "~path", 1_600_000_000_001, (WriteSlot(-3, "__interrupt__", DIGESTS[0]),)),
                TaskWrites("other", "", 0, (WriteSlot(0, "c", DIGESTS[1]), WriteSlot(1, "d", DIGESTS[2]))),
            ),
            (),
            "ada",
        )
    ],
    [
        AgentCheckpointsDeleted("pruned", ("assistant:a",), (("", "1"),), (Skeleton("", "2", ("c",)),), (("", "3"),)),
        AgentThreadCopied("source", "assistant:a", "ada"),
    ],
    [AgentThreadDeleted(1, 6, 2, "0123456789abcdef0123456789abcdef")],
    [
        AgentCheckpointPut(
            "", "4", None, ("msgpack", b"\x80"), ("json", b"{}"), {}, (), "python", stored_at=1_600_000_000_000
        )
    ],
    [AgentContentPut((EDITED,))],
    [
        AgentCheckpointPut(
            "",
            "5",
            "4",
            ("msgpack", b"\x80"),
            ("json", b"{}"),
            {"c": DIGESTS[1]},
            (LEAVES[1],),
            "python",
            writes=(TaskWrites("task", "~path", 1_600_000_000_002, (WriteSlot(0, "c", DIGESTS[1]),)),),
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
