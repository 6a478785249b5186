from collections.abc import Callable, Sequence

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.soak import IS_SOAK, examples
from tests.support.stories import CHAT, Command, Story, commands, tell, user

from chatledger.domain.chat.decide_branches import decide_activate, decide_create_branch
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
    HeadMoved,
    MemberSet,
    MessagesAppended,
    Recorded,
)
from chatledger.domain.chat.replay import ReplayedChat
from chatledger.domain.chat.state import evolve
from chatledger.domain.errors import ChainIntegrityError, CorruptStateError
from chatledger.domain.log.codec import EncodedEvent, decode_event
from chatledger.domain.log.parts import event_hash
from chatledger.domain.values import Branch, Chat, Checkpoint, Member, Message

Answers = tuple[Chat | None, list[Message], list[Branch], list[Checkpoint], list[Member]]


def answers(chat: ReplayedChat) -> Answers:
    return chat.chat, chat.messages, chat.branches, chat.checkpoints, chat.members()


def read(encoded: Sequence[EncodedEvent]) -> list[Recorded]:
    """The events as a reader has them: decoded and hashed from what is stored."""
    return [
        Recorded(position, decode_event(event.topic, event.state), event_hash(event.state))
        for position, event in enumerate(encoded, 1)
    ]


def check_invariants(chat: ReplayedChat) -> None:
    """Check the invariants of every chat at every moment."""
    value = chat.chat
    if value is None:
        assert ([], [], [], []) == (chat.messages, chat.branches, chat.checkpoints, chat.members())
        return
    seen: set[str] = set()
    for message in chat.messages:
        assert message.parent_id is None or message.parent_id in seen
        assert message.id not in seen
        assert CHAT == message.chat_id
        seen.add(message.id)
    names = [branch.name for branch in chat.branches]
    assert len(names) == len(set(names))
    assert 1 == sum(branch.is_active for branch in chat.branches)
    for branch in chat.branches:
        head = branch.head_message_id
        assert head is None or head in seen
        assert branch.message_count == (0 if head is None else len(chat.get_chain(head)))
    assert {checkpoint.message_id for checkpoint in chat.checkpoints} <= seen
    assert (len(seen), len(names)) == (value.message_count, value.branch_count)
    assert chat.record is not None
    assert len(chat.checkpoints) == chat.record.checkpoint_count
    assert len(chat.members()) == chat.record.member_count
    assert value.user_id not in {member.user_id for member in chat.members()}


@given(commands, st.lists(st.integers(-5, 5), max_size=30))
@settings(max_examples=examples(150))
def test_invariants_hold_after_every_command(script: list[Command], clock: list[int]) -> None:
    """Acyclic, one active branch, unique names, heads and checkpoints in the chat; nothing stored ever changes."""
    story = Story()
    before: Answers = (None, [], [], [], [])
    for number, command in enumerate(script):
        story.time += clock[number] if number < len(clock) else 1
        written = story.obey(command)
        after = answers(story.chat())
        check_invariants(story.chat())
        is_new = any(isinstance(event.body, ChatCreated | ChatDeleted) for event in written)
        if not is_new:
            assert before[1] == after[1][: len(before[1])]
            assert before[0] is not None
            assert after[0] is not None
            assert before[0].updated_at <= after[0].updated_at
        before = after

    assert list(range(1, len(story.events) + 1)) == [event.version for event in story.events]


@given(commands)
def test_reading_gives_what_was_written(script: list[Command]) -> None:
    """Folding the stored bytes anew gives the same chat: replay is deterministic (PS-29)."""
    story = tell(script)
    again = read(story.encoded)
    first, second = ReplayedChat(CHAT, again), ReplayedChat(CHAT, again)

    assert story.events == again
    assert answers(story.chat()) == answers(first) == answers(second)
    assert (story.chat().record, story.chat().tombstone) == (first.record, first.tombstone)


@given(commands, st.integers(0, 1000))
def test_a_chat_goes_on_from_any_state(script: list[Command], at: int) -> None:
    """Of what was before it knows what it is asked for, and the state that it goes on from stays as it is."""
    story = tell(script)
    begun = at % (len(story.events) + 1)
    before = ReplayedChat(CHAT, story.events[:begun])
    known = answers(before)
    chat, whole = ReplayedChat.after(before), story.chat()
    for event in story.events[begun:]:
        chat.apply(event)

    assert known == answers(before)
    assert (whole.record, whole.profile, whole.tombstone) == (chat.record, chat.profile, chat.tombstone)
    assert (whole.chat, whole.branches, whole.members()) == (chat.chat, chat.branches, chat.members())
    assert whole.messages == [chat.message(message.id) for message in whole.messages]
    assert whole.checkpoints == [chat.checkpoint(checkpoint.name) for checkpoint in whole.checkpoints]
    gone = {message.id for message in known[1]} - {message.id for message in whole.messages}
    assert not any(map(chat.has_message, gone))


@given(commands)
def test_evolve_changes_nothing_by_itself(script: list[Command]) -> None:
    """Asked twice, the fold says the same, and the state is as it was."""
    story = tell(script)
    chat = ReplayedChat(CHAT)
    for event in story.events:
        before = answers(chat)

        assert evolve(chat, event) == evolve(chat, event)
        assert before == answers(chat)
        chat.apply(event)


Damage = Callable[[list[EncodedEvent], int, int], list[EncodedEvent]]


def drop(log: list[EncodedEvent], at: int, other: int) -> list[EncodedEvent]:
    return [*log[:at], *log[at + 1 :]]


def repeat(log: list[EncodedEvent], at: int, other: int) -> list[EncodedEvent]:
    return [*log[: at + 1], log[at], *log[at + 1 :]]


def swap(log: list[EncodedEvent], at: int, other: int) -> list[EncodedEvent]:
    changed = list(log)
    changed[at], changed[at + 1] = changed[at + 1], changed[at]
    return changed


def alter(log: list[EncodedEvent], at: int, other: int) -> list[EncodedEvent]:
    event = log[at]
    place = other % len(event.state)
    state = event.state[:place] + bytes([event.state[place] ^ (1 + other % 255)]) + event.state[place + 1 :]
    return [*log[:at], event._replace(state=state), *log[at + 1 :]]


LONG: list[Command] = [
    ("append", 0, 1, 1), ("append", 0, 1, 1), ("branch", 0, 1, 1), ("checkpoint", 0, 1, 1), ("update", 1, 1, 1),
    ("move", 0, 0, 1), ("activate", 1, 0, 0), ("drop", 0, 0, 1), ("fork", 0, 0, 0), ("append", 0, 1, 1),
]  # fmt: skip


@given(commands, st.sampled_from([drop, repeat, swap, alter]), st.integers(0, 1000), st.integers(0, 100_000))
@settings(max_examples=examples(300))
@example(LONG, alter, 4, 52)
@example([("append", 0, 0, 0)], alter, 2, 58)
def test_damage_is_noticed(script: list[Command], damage: Damage, at: int, other: int) -> None:
    """A dropped, repeated, reordered or altered event raises, there or at the next event of the chat (PS-24)."""
    living = [command for command in script if command[0] != "delete"]
    story = tell([("append", 0, 0, 0), *living, ("update", 6, 7, 7), ("update", 7, 6, 0)])
    damaged = damage(story.encoded, at % (len(story.encoded) - 1), other)

    with pytest.raises((ChainIntegrityError, CorruptStateError)):
        ReplayedChat(CHAT, read(damaged))
    sound = next(
        (place for place, pair in enumerate(zip(damaged, story.encoded, strict=False)) if pair[0] != pair[1]),
        len(damaged),
    )
    chat = ReplayedChat.after(ReplayedChat(CHAT, read(story.encoded[:sound])))
    with pytest.raises((ChainIntegrityError, CorruptStateError)):
        [chat.apply(event) for event in read(damaged)[sound:]]


def test_every_flipped_byte_is_noticed() -> None:
    """Whatever byte of whatever event changes, the reader gets an error of ours and never anything else."""
    story = tell([("append", 0, 0, 0), *LONG, ("update", 6, 7, 7)])
    log = story.encoded
    faults: list[str] = []
    for at in range(len(log) - 1):
        for place in range(len(log[at].state)):
            for flip in (0x01, 0x20, 0x80, 0xFF) if IS_SOAK else (0x01, 0x80):
                state = bytearray(log[at].state)
                state[place] ^= flip
                try:
                    ReplayedChat(CHAT, read([*log[:at], log[at]._replace(state=bytes(state)), *log[at + 1 :]]))
                except (ChainIntegrityError, CorruptStateError):
                    continue
                except Exception as error:  # noqa: BLE001 (whatever else it is, is the finding)
                    faults.append(f"{log[at].topic} byte {place} ^ {flip:#x}: {error!r}")
                else:
                    faults.append(f"{log[at].topic} byte {place} ^ {flip:#x}: unnoticed")

    assert [] == faults


def test_a_topic_is_part_of_the_hash() -> None:
    """Bytes that are read as another kind of event are noticed."""
    story = Story().chain("m1")
    story.write(decide_create_branch(story.chat(), "a", "m1", activate=False, branch_id="b2", created_at=1))
    story.write(decide_activate(story.chat(), "a"))
    story.append(user("m2"))
    log = story.encoded
    at = next(number for number, event in enumerate(log) if isinstance(event.event.body, BranchActivated))
    damaged = [*log[:at], log[at]._replace(topic=CheckpointDeleted.TOPIC), *log[at + 1 :]]
    with pytest.raises((ChainIntegrityError, CorruptStateError)):
        ReplayedChat(CHAT, read(damaged))


def test_an_event_of_another_chat_is_refused() -> None:
    """Also the first event, which names no hash before it."""
    story = Story()
    story.create("other")
    with pytest.raises(ChainIntegrityError):
        ReplayedChat(CHAT, story.events)


@pytest.mark.parametrize(
    "body",
    [
        ChatCreated("ada", None, None, "b9"),
        ChatUpdated({"titlx": 1}),
        MessagesAppended((Message(id="m1", name="user", data=1, created_at=1),)),
        MessagesAppended((Message(id="m9", parent_id="none", name="user", data=1, created_at=1),)),
        MessagesAppended((Message(id="m9", parent_id="m9", name="user", data=1, created_at=1),)),
        MessagesAppended((Message(id="m9", parent_id="m1", name="user", data=1, created_at=1),), 9, None, "m9"),
        MessagesAppended((Message(id="m9", parent_id="m1", name="user", data=1, created_at=1),), 0, "m1", "m7"),
        BranchCreated(1, "b9", "idea", "none", 1),
        BranchCreated(1, "b9", "main", "m1", 1),
        BranchCreated(2, "b9", "idea", "m1", 1),
        BranchActivated(9, "none"),
        BranchRenamed(9, "none", "idea"),
        BranchDeleted(9, "none"),
        BranchDeleted(0, "main"),
        HeadMoved(9, "none", None, "m1"),
        HeadMoved(0, "main", "m1", "none"),
        CheckpointSet("cp1", "cp", "none", 1),
        MemberSet("ada", "reader"),
    ],
    ids=lambda body: type(body).__name__,
)
def test_an_event_that_no_decision_makes_is_refused(body: Body) -> None:
    """The fold keeps the promises of a chat even on a log that a faulty writer wrote with valid hashes."""
    story = Story().chain("m1", "m2")
    [event] = story.encode([body])
    with pytest.raises(ChainIntegrityError):
        story.chat().apply(event)


@pytest.mark.parametrize(
    "body",
    [ChatUpdated({"title": "x"}), BranchActivated(0, "main"), CheckpointDeleted("?", "cp"), MessagesAppended(())],
)
def test_an_event_before_the_creation_is_refused(body: Body) -> None:
    """A stream begins with the creation, also after a deletion."""
    for story in (Story(), Story().chain("m1")):
        if story.events:
            story.delete()
        [event] = story.encode([body])
        with pytest.raises(ChainIntegrityError) as caught:
            story.chat().apply(event)

        assert (CHAT, event.position) == (caught.value.chat_id, caught.value.position)


def test_a_refused_event_changes_nothing() -> None:
    """After a `ChainIntegrityError` the chat is as it was before the event."""
    story = Story().chain("m1", "m2")
    before = answers(story.chat()), story.chat().record
    new = Message(id="m9", parent_id="m2", name="user", data=1, created_at=1)
    bad = Message(id="m8", parent_id="none", name="user", data=1, created_at=1)
    [event] = story.encode([MessagesAppended((new, bad), 0, "m2", "m8")])
    with pytest.raises(ChainIntegrityError):
        story.chat().apply(event)

    assert before == (answers(story.chat()), story.chat().record)


def test_deletion_and_recreation_continue_the_stream() -> None:
    """The second life starts empty, at the next version, on the hash of the tombstone (PS-14)."""
    story = Story().chain("m1", "m2")
    [tombstone] = story.delete()
    [created] = story.create(user_id="eve")
    story.append(user("m1", "another"))
    chat = ReplayedChat(CHAT, read(story.encoded))

    assert tombstone.hash == created.event.previous_hash
    assert tombstone.version + 1 == created.version
    assert ["another"] == [message.data for message in chat.messages]
    assert chat.record is not None
    assert (created.position, created.version) == (chat.record.first_position, chat.record.first_version)
    assert chat.tombstone is not None
    assert tombstone.version == chat.tombstone.head.version


@given(commands)
def test_a_tombstone_explains_the_hole_before_it(script: list[Command]) -> None:
    """When the events of deleted lives are erased, what remains folds to the same chat (PS-13, PS-14)."""
    story = tell(script)
    erased: set[int] = set()
    for event in story.events:
        if isinstance(event.body, ChatDeleted):
            erased |= set(range(event.body.first_position, event.position))
    rest = [event for event in story.events if event.position not in erased]

    assert answers(story.chat()) == answers(ReplayedChat(CHAT, rest))


def test_a_hole_after_a_tombstone_is_noticed() -> None:
    """A tombstone explains nothing that comes after it."""
    story = Story().chain("m1")
    story.delete()
    story.create()
    story.append(user("m2"))
    story.append(user("m3"))
    log = story.events
    for at in (3, 4):
        with pytest.raises(ChainIntegrityError):
            ReplayedChat(CHAT, [*log[:at], *log[at + 1 :]])


def test_a_tombstone_is_not_repeated() -> None:
    """The same deletion twice does not follow itself."""
    story = Story().chain("m1")
    [tombstone] = story.delete()
    with pytest.raises(ChainIntegrityError):
        story.chat().apply(tombstone)


def test_questions_to_a_folded_chat() -> None:
    """Chains, ancestors and names are those of the plain definition."""
    story = Story().chain("m1", "m2", "m3")
    story.add(user("a", parent_id="m1"), user("r"))
    chat = story.chat()

    assert ["m1", "m2", "m3"] == [message.id for message in chat.get_chain("m3")]
    assert chat.is_ancestor("m1", "a")
    assert chat.is_ancestor("a", "a")
    assert not chat.is_ancestor("m2", "a")
    assert not chat.is_ancestor("r", "a")
    assert chat.message("none") is None
    assert 1 == chat.branches_named_after("main")
    assert msgspec.structs.asdict(chat.get_chain("a")[1])["chat_id"] == CHAT
    with pytest.raises(LookupError):
        chat.get_chain("none")
