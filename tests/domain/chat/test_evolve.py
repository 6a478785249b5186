"""The fold, event by event: what each of them changes, and which it refuses."""

from hashlib import sha256
from typing import Any

import msgspec
import pytest
from tests.support.cases import case
from tests.support.stories import CHAT, Story

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
    MessagesAnnotated,
    MessagesAppended,
    Recorded,
    RegenerationApproved,
    RegenerationBegun,
    RunChanged,
    RunRecorded,
)
from chatledger.domain.chat.replay import ReplayedChat
from chatledger.domain.chat.runs import CarryOver, PlannedRun, RecordedRun, RegenerationRecord, Stretch
from chatledger.domain.chat.state import (
    BranchRecord,
    ChatProfile,
    ChatRecord,
    StreamHead,
    Tombstone,
    by_seen,
    describe_chat,
    evolve,
)
from chatledger.domain.errors import ChainIntegrityError
from chatledger.domain.log.tombstones import owner_digest
from chatledger.domain.values import Annotation, Chat, Message
from chatledger.domain.versioned.events import VersionContentPut, VersionsExpirySet

HEAD = StreamHead(version=3, position=9, hash=b"h")
RECORD = ChatRecord(
    first_position=7,
    first_version=1,
    head=HEAD,
    created_at=1,
    updated_at=2,
    message_count=3,
    branch_count=4,
    checkpoint_count=5,
    active_branch="main",
)


def only(story: Story, body: Body, **event: Any) -> Recorded:
    """The next event of a story, with other fields than those that a writer gives it."""
    (recorded,) = story.encode([body])
    return msgspec.structs.replace(recorded, event=msgspec.structs.replace(recorded.event, **event))


def test_a_chat_is_described_by_its_rows() -> None:
    """All fields; nothing where one of the rows is not there."""
    profile = ChatProfile("c", "ada", "Trip", {"a": 1}, 99)

    assert describe_chat(RECORD, profile, "Hello") == Chat(
        id="c",
        user_id="ada",
        title="Trip",
        metadata={"a": 1},
        created_at=1,
        updated_at=2,
        message_count=3,
        branch_count=4,
        expires_at=99,
        last_text="Hello",
    )
    assert [None, None, None] == [
        describe_chat(None, profile, None),
        describe_chat(RECORD, None, None),
        describe_chat(None, None, None),
    ]


def test_branches_are_in_the_order_in_which_they_were_seen() -> None:
    """The last one first; then those that were never active, the newest first, ties by name."""
    kept = {
        name: BranchRecord(name, name, None, created_at, seen, 0)
        for name, created_at, seen in [("a", 1, 0), ("b", 2, 0), ("c", 2, 0), ("d", 0, 3), ("e", 9, 2)]
    }

    assert ["d", "e", "b", "c", "a"] == [branch.name for branch in by_seen(kept.values())]


def test_an_event_follows_the_one_before() -> None:
    """By its chat, its version and the hash that it names; a tombstone may leave versions out, and nothing else may."""
    story = Story().chain("m1", "m2")
    last = story.events[-1]
    tombstone = ChatDeleted(1, 3, 2, 1, 0)
    cases: list[tuple[Body, dict[str, Any]]] = [
        (ChatUpdated({}), {"originator_id": "another"}),
        (tombstone, {"originator_id": "another"}),
        *(
            (body, {"originator_version": last.version + step, "previous_hash": hash_})
            for body in (ChatUpdated({}), tombstone)
            for step, hash_ in ((1, b"other"), (0, last.hash), (-1, last.hash))
        ),
        (ChatUpdated({}), {"originator_version": last.version + 2, "previous_hash": last.hash}),
    ]
    for body, event in cases:
        with case(body, event), pytest.raises(ChainIntegrityError) as caught:
            evolve(story.chat(), only(story, body, **event))
        assert last.position + 1 == caught.value.position

    for step in (2, 3):
        erased = only(story, tombstone, originator_version=last.version + step, previous_hash=b"of what is erased")
        assert evolve(story.chat(), erased).record is None


def test_the_head_after_an_event() -> None:
    """It has the event's version, position, hash and time, and the tree over all since the last tombstone, which begins a new one."""
    story = Story().chain("m1")
    first, second = story.events
    record = story.chat().record
    assert record is not None
    leaves = [sha256(b"\0" + event.position.to_bytes(8) + event.hash).digest() for event in (first, second)]
    root = sha256(b"\1" + b"".join(leaves)).digest()
    assert StreamHead(2, 2, second.hash, second.event.occurred_at, 2, root) == record.head

    story.time += 5
    (deleted,) = story.delete()
    tombstone = story.chat().tombstone
    alone = sha256(b"\0" + deleted.position.to_bytes(8) + deleted.hash).digest()
    digest = owner_digest(CHAT, "ada")
    assert (
        Tombstone(StreamHead(3, 3, deleted.hash, story.time - 1, 1, alone), story.time - 1, None, digest) == tombstone
    )


def test_a_tombstone_has_the_id_of_its_command() -> None:
    """By it a deletion that is repeated is known."""
    story = Story().chain()
    changes = evolve(story.chat(), only(story, ChatDeleted(1, 1, 0, 1, 0), command_id="once"))

    assert changes.tombstone is not None
    assert "once" == changes.tombstone.command_id


def test_events_of_other_kinds_of_streams_are_refused() -> None:
    """Before and after the chat is there."""
    for story in (Story(), Story().chain("m1")):
        for body in (VersionContentPut(()), VersionsExpirySet(None)):
            with case(body), pytest.raises(ChainIntegrityError):
                evolve(story.chat(), only(story, body))


LEAST, MOST = -(2**63), 2**63 - 1


def test_times_are_numbers_of_64_bits() -> None:
    """That of each event, and those in its body: what indexes cannot store is refused."""

    def bodies(time: int) -> list[Body]:
        return [
            ChatUpdated({"expires_at": time}),
            MessagesAppended((), changed_at=time),
            BranchCreated(1, "b9", "idea", None, time),
            CheckpointSet("cp", "cp", "m1", time),
            RegenerationBegun("g", "m1", "m2", (), (), time),
        ]

    def created(time: int) -> list[Body]:
        return [
            ChatCreated("ada", None, None, "b", **{name: time})
            for name in ("created_at", "expires_at", "updated_at", "branch_created_at")
        ]

    for make, story in ((bodies, Story().chain("m1", "m2")), (created, Story())):
        for time in (LEAST, MOST):
            for body in make(time):
                with case(body):
                    evolve(story.chat(), only(story, body))
                    evolve(story.chat(), only(story, body, occurred_at=time))
        for time in (MOST + 1, 2**64 - 1):
            for body in make(time):
                with case(body), pytest.raises(ChainIntegrityError):
                    evolve(story.chat(), only(story, body))
            with case(time), pytest.raises(ChainIntegrityError):
                evolve(story.chat(), only(story, make(1)[0], occurred_at=time))


@pytest.mark.parametrize(
    "changes", [{"title": 1}, {"metadata": []}, {"expires_at": "1"}, {"user_id": "eve"}, {"title": "x", "id": "y"}]
)
def test_a_chat_changes_in_what_can_change(changes: dict[str, Any]) -> None:
    """Title, metadata and end, and these are what they always are."""
    story = Story().chain()
    with pytest.raises(ChainIntegrityError):
        evolve(story.chat(), only(story, ChatUpdated(changes)))


def test_an_imported_chat_was_never_changed_before_it_was_made() -> None:
    """Times that a file gives stay, but for one that cannot be."""
    for given, times in (
        ({}, (5, 5, 5)),
        ({"created_at": 3}, (3, 5, 3)),
        ({"created_at": 9}, (9, 9, 9)),
        ({"updated_at": 9}, (5, 9, 5)),
        ({"created_at": 9, "updated_at": 7}, (9, 9, 9)),
        ({"created_at": 3, "updated_at": 4, "branch_created_at": 6}, (3, 4, 6)),
    ):
        story = Story()
        changes = evolve(story.chat(), only(story, ChatCreated("ada", None, None, "b", **given), occurred_at=5))
        assert changes.record is not None
        assert changes.branch is not None
        with case(given):
            assert times == (changes.record.created_at, changes.record.updated_at, changes.branch.created_at)
            assert changes.is_new_name


def test_branches_and_checkpoints_as_they_are_kept() -> None:
    """Whoever becomes active is seen at that position; an id stays with its branch; counts are those of what is there."""
    story = Story().chain("m1")
    story.write([BranchCreated(1, "b8", "first", "m1", 3), BranchCreated(2, "b9", "second", None, 4, is_active=True)])
    chat = story.chat()
    assert BranchRecord("b8", "first", "m1", 3, 0, 1) == chat.branch_record("first")
    assert BranchRecord("b9", "second", None, 4, 4, 2) == chat.branch_record("second")
    story.write([BranchActivated(1, "first")])
    assert BranchRecord("b8", "first", "m1", 3, 5, 1) == chat.branch_record("first")

    counts: list[int] = []
    for body in (
        CheckpointSet("x", "a", "m1", 1),
        CheckpointSet("y", "b", "m1", 1),
        CheckpointSet("x", "a", "m1", 2),
        CheckpointDeleted("x", "a"),
        CheckpointDeleted("y", "b"),
    ):
        story.write([body])
        assert chat.record is not None
        counts.append(chat.record.checkpoint_count)
    assert [1, 2, 2, 1, 0] == counts


def a_run(run_id: str, **rest: Any) -> RecordedRun:
    """A run that goes on."""
    fields = {"id": f"of {run_id}", "thread_id": "t", "assistant_id": "bot", "status": "running", **rest}
    return RecordedRun(run_id=run_id, created_at=1, updated_at=1, **fields)


def test_runs_are_counted_and_kept() -> None:
    """A change is none of a new run; one that does not fit is refused, as damage."""
    story = Story().chain("m1")
    story.write([RunRecorded(a_run("R1")), RunRecorded(a_run("R2")), RunChanged("R1", {"status": "completed"})])
    chat = story.chat()

    assert chat.record is not None
    assert 2 == chat.record.run_count
    assert [("R1", "completed", CHAT), ("R2", "running", CHAT)] == [
        (run.run_id, run.status, run.chat_id) for run in chat.runs()
    ]
    for body in (RunChanged("R9", {}), RunRecorded(a_run("R1")), RunChanged("R1", {"run_id": "R3"})):
        with case(body), pytest.raises(ChainIntegrityError) as caught:
            chat.apply(only(story, body))
        assert (CHAT, len(story.events) + 1) == (caught.value.chat_id, caught.value.position)


def test_a_second_life_has_nothing_of_the_first() -> None:
    """Neither messages, nor names that were given, runs, annotations, checkpoints or regenerations."""
    story = Story().chain("m1", "m2")
    story.write(
        [
            BranchCreated(1, "b8", "main-v2", "m1", 3),
            CheckpointSet("x", "a", "m1", 1),
            RunRecorded(a_run("R1")),
            RegenerationBegun("g", "m1", "m2", (), ()),
        ]
    )
    assert 2 == story.chat().branches_named_after("main")
    story.delete()
    chat = story.chat()

    assert (None, None) == (chat.record, chat.profile)
    assert 0 == chat.branches_named_after("main")
    assert ([], [], [], [], []) == (chat.messages, chat.branches, chat.checkpoints, chat.runs(), chat.branches_seen())
    assert (None, None, None, None) == (
        chat.run("R1"),
        chat.regeneration("g"),
        chat.annotation("m1"),
        chat.checkpoint("a"),
    )
    story.create()
    assert 1 == chat.branches_named_after("main")


def test_what_a_chat_does_not_have_is_refused_by_name() -> None:
    """The error says which chat, and where on the log."""
    story = Story().chain("m1")
    bad = MessagesAppended((Message(id="m9", parent_id="none", name="user", data=1, created_at=1),))
    with pytest.raises(ChainIntegrityError, match="'none'") as caught:
        story.chat().apply(only(story, bad))

    assert (CHAT, 3) == (caught.value.chat_id, caught.value.position)
    with pytest.raises(LookupError, match="'none'") as missing:
        ReplayedChat(CHAT).get_chain("none")
    assert {"message_id": "none", "chat_id": CHAT} == vars(missing.value)


def test_a_chat_is_made_with_all_that_is_said_of_it() -> None:
    """Also when it ends; and it changes in all of that at once."""
    story = Story()
    changes = evolve(story.chat(), only(story, ChatCreated("ada", "Trip", {"a": 1}, "b", expires_at=99)))
    assert ChatProfile(CHAT, "ada", "Trip", {"a": 1}, 99) == changes.profile

    story.create()
    said: dict[str, Any] = {"title": "x", "metadata": {"b": 2}, "expires_at": 7}
    story.write([ChatUpdated(said)])
    assert ChatProfile(CHAT, "ada", **said) == story.chat().profile


def test_a_branch_leaves_and_its_name_stays_given() -> None:
    """Counts go down, checkpoints name their chat, and a new name of a branch counts as one that was given."""
    story = Story().chain("m1")
    story.write([BranchCreated(1, "b8", "idea", "m1", 3), CheckpointSet("x", "a", "m1", 1)])
    chat = story.chat()
    assert [CHAT] == [checkpoint.chat_id for checkpoint in chat.checkpoints]
    story.write([BranchRenamed(1, "idea", "plan")])
    assert [1, 1, 0] == [chat.branches_named_after(name) for name in ("idea", "plan", "other")]
    assert chat.record is not None
    assert 2 == chat.record.branch_count
    story.write([BranchDeleted(1, "plan")])
    assert chat.record is not None
    assert 1 == chat.record.branch_count == len(chat.branches)


def test_messages_that_are_imported_keep_the_time_of_their_chat() -> None:
    """A file says when the chat was changed last; no import makes it younger than it is."""
    story = Story().chain("m1")
    record = story.chat().record
    assert record is not None
    for changed_at, updated_at in ((record.updated_at + 500, record.updated_at + 500), (1, record.updated_at)):
        event = only(story, MessagesAppended((), changed_at=changed_at))
        changed = evolve(story.chat(), event).record
        assert changed is not None
        assert updated_at == changed.updated_at


def test_annotations_are_merged_and_end() -> None:
    """Each change leaves what it does not name; an annotation that says nothing any more is none."""
    story = Story().chain("m1", "m2")
    chat = story.chat()
    said = []
    for changes in ({"stale": True}, {"hidden": True, "metadata": {"a": 1}}, {"stale": False, "hidden": False}):
        story.write([MessagesAnnotated(("m1", "m2"), changes)])
        said.append(chat.annotation("m1"))
        assert said[-1] == chat.annotation("m2") == chat.messages[0].annotation
    assert [
        Annotation(stale=True),
        Annotation(stale=True, hidden=True, metadata={"a": 1}),
        Annotation(metadata={"a": 1}),
    ] == said
    story.write([MessagesAnnotated(("m1",), {"metadata": {}})])
    assert chat.annotation("m1") is None
    assert Annotation(metadata={"a": 1}) == chat.annotation("m2")
    whole: dict[str, Any] = {"stale": True, "hidden": True, "replaced_by": "m2", "metadata": {"b": 2}}
    story.write([MessagesAnnotated(("m1",), whole)])
    assert Annotation(**whole) == chat.annotation("m1")
    assert chat.annotation("none") is None


def test_runs_and_regenerations_as_they_are_kept() -> None:
    """All that their events say, with the time of the event where they say none; what is approved is added."""
    story = Story().chain("m1", "m2")
    chat = story.chat()
    carries = CarryOver(branch_id="b", stretches=(Stretch(first="m1"),))
    planned = PlannedRun(
        run_id="R1", assistant_id="bot", runtime="python", trigger_message_id="m1", message_id="m2",
        checkpoint_id=None, depth=1, cause="trigger", thread_id="t", references=[],
    )  # fmt: skip
    story.write([RunRecorded(a_run("R1", trigger_message_id="m1", references=["m1"]), {"a": 1})])
    began = story.time
    story.write([RegenerationBegun("g1", "m1", "m2", (planned,), ("R1",), None, carries)])
    story.write([RegenerationBegun("g2", "m1", "m2", (), (), 7)])
    story.write([RegenerationApproved("g1", ("R2", "R3"))])
    assert RegenerationRecord("g1", "m1", "m2", (planned,), ("R1", "R2", "R3"), began, carries) == chat.regeneration(
        "g1"
    )
    assert RegenerationRecord("g2", "m1", "m2", (), (), 7) == chat.regeneration("g2")

    ended = {"status": "completed", "message_id": "m2", "checkpoint_id": "x", "metadata": {}}
    for time, updated_at in ((0, 1), (9, 9)):
        changed = evolve(chat, only(story, RunChanged("R1", ended), occurred_at=time))
        assert changed.runs is not None
        assert changed.runs.run is not None
        assert (updated_at, "m2", "completed", "x", {}) == (
            changed.runs.run.updated_at,
            changed.runs.run.message_id,
            changed.runs.run.status,
            changed.runs.run.checkpoint_id,
            changed.runs.run.metadata,
        )
        assert ({"a": 1}, "running") == (changed.runs.before and changed.runs.before.metadata, chat.runs()[0].status)


def test_runs_are_found_by_what_they_belong_to() -> None:
    """By the regeneration, by the message, or by both."""
    story = Story().chain("m1", "m2")
    for run_id, regeneration_id, message_id in (("R1", "g", "m1"), ("R2", "g", "m2"), ("R3", None, "m2")):
        story.write([RunRecorded(a_run(run_id, regeneration_id=regeneration_id, message_id=message_id))])

    def found(**which: str) -> list[str]:
        return [run.run_id for run in story.chat().runs(**which)]

    assert [["R1", "R2", "R3"], ["R1", "R2"], ["R2", "R3"], ["R2"]] == [
        found(),
        found(regeneration_id="g"),
        found(message_id="m2"),
        found(regeneration_id="g", message_id="m2"),
    ]


def test_events_of_runs_that_no_decision_makes_are_refused() -> None:
    """What they name has to be there, once, and only what can change changes; the error says what does not fit."""
    story = Story().chain("m1")
    story.write([RunRecorded(a_run("R1")), RegenerationBegun("g", "m1", "m1", (), ())])
    for body, why in (
        (MessagesAnnotated(("m1", "none"), {"stale": True}), "message 'none'"),
        (MessagesAnnotated(("m1",), {"id": 1}), "cannot change"),
        (MessagesAnnotated(("m1",), {"stale": 1}), "Expected `bool`"),
        (RunRecorded(a_run("R1")), "a run 'R1' already"),
        (RunRecorded(a_run("R2", trigger_message_id="none")), "message 'none'"),
        (RunRecorded(a_run("R2", message_id="none")), "message 'none'"),
        (RunRecorded(a_run("R2", references=["m1", "none"])), "message 'none'"),
        (RunChanged("R2", {}), "no run 'R2'"),
        (RunChanged("R1", {"message_id": "none"}), "message 'none'"),
        (RunChanged("R1", {"thread_id": "t2"}), "cannot change"),
        (RegenerationBegun("g", "m1", "m1", (), ()), "regeneration 'g' already"),
        (RegenerationBegun("h", "none", "m1", (), ()), "message 'none'"),
        (RegenerationBegun("h", "m1", "none", (), ()), "message 'none'"),
        (RegenerationApproved("h", ("R1",)), "no regeneration 'h'"),
    ):
        with case(body), pytest.raises(ChainIntegrityError, match=why):
            evolve(story.chat(), only(story, body))
