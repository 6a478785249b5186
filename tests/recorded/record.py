"""
Write samples of what was added to `STREAM`: `python -m tests.recorded.record` at the root of the project.

Samples that are there are never touched: they are what released versions wrote, and have to be read for ever. So the stream
only grows at its end.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
from tests.support.salts import salts

from chatledger.domain.chat.events import (
    Body,
    BranchActivated,
    BranchCreated,
    BranchDeleted,
    BranchRenamed,
    ChatCreated,
    ChatDeleted,
    ChatUpdated,
    CheckpointDeleted,
    CheckpointSet,
    ContentRedacted,
    HeadMoved,
    LinkCreated,
    LinkRevoked,
    MemberRemoved,
    MemberSet,
    MessagesAnnotated,
    MessagesAppended,
    Recorded,
    RegenerationApproved,
    RegenerationBegun,
    RunChanged,
    RunRecorded,
)
from chatledger.domain.chat.runs import CarryOver, PlannedRun, RecordedRun, Stretch
from chatledger.domain.log.codec import Envelope, encode_events
from chatledger.domain.values import Message

SAMPLES = Path(__file__).parent / "events.json"

ROOT = Message(id="m1", name="user", type="message", data="Grüße 🦜", created_at=1_700_000_000_001, sender_id="ada")
DATA: dict[str, Any] = {"z": None, "a": [True, 1, 1.0, -(2**63), 2**64 - 1, "\0"], "": {"nested": [[]]}}
REPLY = Message(id="m2", parent_id="m1", name="tool", data=DATA, created_at=-1, agent_id="agent", reply_to="m1")
FORMED = Message(
    id="m5", name="user", data={"role": "user"}, created_at=1_700_000_000_037, form="openai", notes={"n": 1}
)
RUN = RecordedRun(
    id="record-1",
    run_id="r1",
    thread_id="t",
    assistant_id="a",
    trigger_message_id="m1",
    references=["m1"],
    status="running",
    created_at=1,
    updated_at=1,
    repeats="r0",
    regeneration_id="g0",
)
PLANNED = PlannedRun(
    run_id="r1",
    assistant_id="a",
    runtime="python",
    trigger_message_id="m1",
    message_id="m2",
    checkpoint_id=None,
    depth=1,
    cause="trigger",
    thread_id="t",
    references=["m1"],
)

CARRIES = CarryOver(branch_id="b6", stretches=(Stretch(run_ids=("r1",)), Stretch(first="m1", last="m2")))

STREAM: list[list[Body]] = [
    [ChatCreated("ada", "Trip", {"flag": True, "n": 1}, "b1")],
    [MessagesAppended((ROOT, REPLY), 0, None, "m2")],
    [MessagesAppended((Message(id="m3", parent_id="m1", name="assistant", data=None, created_at=0),))],
    [ChatUpdated({"title": None, "metadata": {"b": 2, "a": "x"}})],
    [BranchCreated(1, "b2", "main-v2", "m3", 1_700_000_000_002, is_active=True)],
    [BranchCreated(2, "b3", "empty", None, 1_700_000_000_003)],
    [BranchActivated(0, "main")],
    [HeadMoved(1, "main-v2", "m3", "m1"), HeadMoved(1, "main-v2", "m1", None)],
    [CheckpointSet("cp1", "start", "m1", 1_700_000_000_004)],
    [CheckpointDeleted("cp1", "start")],
    [ChatDeleted(first_position=1, event_count=12, message_count=3, branch_count=3, checkpoint_count=0)],
    [ChatCreated("", None, None, "b4", 1_600_000_000_000)],
    [ChatDeleted(13, 1, 0, 1, 0, owner_digest="0123456789abcdef0123456789abcdef")],
    [ChatCreated("", None, None, "b5", 1_600_000_000_000)],
    [ChatUpdated({"expires_at": 1_900_000_000_000}), ChatUpdated({"expires_at": None})],
    [ChatDeleted(15, 3, 0, 1, 0)],
    [ChatCreated("", None, None, "b6", None, 1_900_000_000_000)],
    [MessagesAppended((ROOT, REPLY), 0, None, "m2")],
    [RunRecorded(RUN), RunRecorded(msgspec.structs.replace(RUN, run_id="r2", references=[], status="pending"))],
    [RunChanged("r1", {"status": "completed", "message_id": "m2", "checkpoint_id": "c1"})],
    [MessagesAnnotated(("m1", "m2"), {"stale": True, "replaced_by": None, "hidden": True, "metadata": {"why": "x"}})],
    [RegenerationBegun("g1", "m1", "m2", (PLANNED,), ("r1",)), RegenerationApproved("g1", ("r2",))],
    [BranchRenamed(0, "main", "Größe")],
    [BranchCreated(1, "b7", "try", "m1", 1_700_000_000_005), BranchDeleted(1, "try")],
    [ChatDeleted(19, 11, 2, 1, 0)],
    [ChatCreated("ada", None, None, "b8", 1_600_000_000_000, None, 1_600_000_000_009, 1_600_000_000_001)],
    [MessagesAppended((ROOT, REPLY), 0, None, "m2", 1_600_000_000_008)],
    [MessagesAppended((msgspec.structs.replace(ROOT, id="m3", parent_id="m2"),), 0, "m2", "m3")],
    [
        RunRecorded(RUN),
        RegenerationBegun("g2", "m1", "m2", (PLANNED,), ("r1",), 1_600_000_000_007),
    ],
    [RegenerationBegun("g3", "m1", "m2", (PLANNED,), (), carries=CARRIES)],
    [MessagesAppended((msgspec.structs.replace(ROOT, id="m4", copied_from="m1"),))],
    [RunRecorded(msgspec.structs.replace(RUN, run_id="r9"), {"n": 1}), RunChanged("r9", {"metadata": {"n": 2}})],
    [MemberSet("bob", "reader"), MemberSet("Größe", "writer")],
    [MemberRemoved("bob")],
    [ChatDeleted(30, 11, 4, 1, 0, member_digests=("0123456789abcdef0123456789abcdef",))],
    [ChatCreated("ada", None, None, "b9"), MemberSet("bob", "writer"), MemberSet("bob", "reader")],
    [MessagesAppended((FORMED,), 0, None, "m5")],
    [
        ChatUpdated({"holds": {"chat": 7}, "hold_notes": {"chat": ["trip/漢", "mara", "case 12"]}}),
        ChatUpdated({"holds": {}}),
    ],
    [ContentRedacted(("m5",), ((47, (3,)),), "request", {"kept": 2**70}, "a card number")],
    [ContentRedacted(("m5",), ((50, (1,)),), "retention")],
    [LinkCreated("l1", "0" * 64), LinkCreated("l2", "f" * 64, 0, None, 2_000_000_000_000)],
    [LinkRevoked("l1"), LinkCreated("l3", "a" * 64, until="m5")],
]
"""One chat from its creation to its last life; each inner list is one commit. New ones go last."""


def make_samples(
    known: list[dict[str, Any]], stream: list[list[Body]] = STREAM, stream_id: str = "trip/漢"
) -> list[dict[str, Any]]:
    """Make the samples that this version writes for that part of a stream which has none yet."""
    samples: list[dict[str, Any]] = []
    done, version = len(known), 0
    previous_hash = bytes.fromhex(known[-1]["hash"]) if known else b""
    for number, bodies in enumerate(stream):
        if version < done:
            version += len(bodies)
            continue
        envelope = Envelope()
        if number % 2:
            envelope = Envelope(actor="ada", correlation_id="co", causation_id="ca", command_id=f"command-{number}")
        for event in encode_events(
            bodies,
            stream_id=stream_id,
            version=version,
            previous_hash=previous_hash,
            occurred_at=1_700_000_000_000 + number,
            event_ids=[f"event-{version + offset}" for offset in range(len(bodies))],
            salts=salts(1000 * version),
            envelope=envelope,
        ):
            version, previous_hash = version + 1, event.hash
            value = Recorded(version, event.event, event.hash).to_dict()
            samples.append({"topic": event.topic, "state": event.state.hex(), "hash": event.hash.hex(), "value": value})
    return samples


def main() -> None:
    """Add what is missing."""
    known: list[dict[str, Any]] = json.loads(SAMPLES.read_text()) if SAMPLES.exists() else []
    known += make_samples(known)
    SAMPLES.write_text(json.dumps(known, indent=1, ensure_ascii=True) + "\n")


if __name__ == "__main__":
    main()
