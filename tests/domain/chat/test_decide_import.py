from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.soak import examples
from tests.support.stories import CHAT, Story, user

from chatledger.domain.chat.decide_branches import decide_create_branch
from chatledger.domain.chat.decide_import import check_run, decide_import, import_result, rest_of
from chatledger.domain.chat.events import (
    Body,
    BranchCreated,
    BranchDeleted,
    ChatCreated,
    CheckpointSet,
    HeadMoved,
    MessagesAnnotated,
    MessagesAppended,
    RegenerationBegun,
    RunRecorded,
)
from chatledger.domain.chat.import_versions import OnChange, Settled, settle_changes
from chatledger.domain.chat.interchange import (
    ImportedBranch,
    ImportedChat,
    ImportedCheckpoint,
    ImportedMessage,
    ImportedRegeneration,
    ImportResult,
)
from chatledger.domain.chat.replay import ReplayedChat
from chatledger.domain.chat.runs import CarryOver, MessageRun, PlannedRun, Stretch
from chatledger.domain.errors import (
    ChatNotFoundError,
    InvalidValueError,
    MessageConflictError,
    MessageNotFoundError,
    ParentNotFoundError,
    SelfParentError,
)
from chatledger.domain.values import Annotation, Message


def message(message_id: str, parent_id: str | None, data: Any = "hello", **rest: Any) -> ImportedMessage:
    return ImportedMessage(id=message_id, parent_id=parent_id, name="user", data=data, created_at=5, **rest)


def conversation(**given: Any) -> ImportedChat:
    """m1 <- m2 <- m3 on `main`, m1 <- a on `idea`, which is active."""
    values: dict[str, Any] = {
        "id": CHAT,
        "user_id": "ada",
        "title": "Trip",
        "metadata": {"a": 1},
        "messages": (message("m1", None), message("m2", "m1"), message("m3", "m2"), message("a", "m1")),
        "branches": (
            ImportedBranch(name="main", head_message_id="m3", id="b-main"),
            ImportedBranch(name="idea", head_message_id="a", is_active=True, created_at=9),
        ),
        "checkpoints": (ImportedCheckpoint(name="cp", message_id="m2", created_at=7),),
        **given,
    }
    return ImportedChat(**values)


def decide(state: ReplayedChat, chat: ImportedChat, limit: int | None = None) -> list[Body]:
    ids = [f"new{number}" for number in range(30)]
    return decide_import(state, chat, ids=ids, now=1_000, limit=limit)


def test_a_new_chat_is_as_it_was_imported() -> None:
    """Messages, heads, the active branch and checkpoints; times and ids as given (PS-34)."""
    story = Story()
    bodies = decide(story.chat(), conversation())
    story.write(bodies)
    replayed = story.chat()

    assert {"main": ("m3", False, 3), "idea": ("a", True, 2)} == {
        branch.name: (branch.head_message_id, branch.is_active, branch.message_count) for branch in replayed.branches
    }
    assert [("m1", None), ("m2", "m1"), ("m3", "m2"), ("a", "m1")] == [(m.id, m.parent_id) for m in replayed.messages]
    assert [("cp", "m2", 7)] == [(mark.name, mark.message_id, mark.created_at) for mark in replayed.checkpoints]
    result = import_result(Settled(conversation()), bodies)
    assert (True, 4, 2, 0, 1) == (
        result.is_new,
        result.messages_added,
        result.branches_added,
        result.heads_moved,
        result.checkpoints_set,
    )


def test_a_repeated_import_has_nothing_to_do() -> None:
    """What is there stays, and is not written again."""
    story = Story()
    story.write(decide(story.chat(), conversation()))

    assert [] == decide(story.chat(), conversation(title="Other", metadata=None, user_id="eve"))


RUN = MessageRun(
    id="record", run_id="r", thread_id="t", assistant_id="bot", trigger_message_id="m1", references=["m1"],
    message_id="a", status="completed", created_at=1, updated_at=2, chat_id="other", metadata={"n": 1},
)  # fmt: skip
SECOND_RUN = msgspec.structs.replace(RUN, id="", run_id="s", metadata={}, trigger_message_id=None, references=[])
PLANNED = PlannedRun(
    run_id="r", assistant_id="bot", runtime="python", trigger_message_id="m1", message_id="a", checkpoint_id=None,
    depth=1, cause="trigger", thread_id="t", references=[],
)  # fmt: skip
REGENERATION = ImportedRegeneration(
    id="g", edited_message_id="m1", new_message_id="m2", runs=(PLANNED,), approved=("r",), created_at=6,
    carries=CarryOver(branch_id="b-main", stretches=(Stretch(first="m3", last="m3"),)),
)  # fmt: skip


def everything(**given: Any) -> ImportedChat:
    """The conversation with all that one can have: what says when it came, or which id it has, and what does not."""
    m1, m2, m3, a = conversation().messages
    main, idea = conversation().branches
    said = Annotation(stale=True, replaced_by="m3", metadata={"why": "edited"})
    return conversation(**{
        "messages": (
            m1, msgspec.structs.replace(m2, annotation=said), m3,
            msgspec.structs.replace(a, annotation=Annotation(hidden=True)),
        ),
        "branches": (
            msgspec.structs.replace(main, created_at=4),
            ImportedBranch(name="side", head_message_id=None),
            msgspec.structs.replace(idea, created_at=None),
        ),
        "checkpoints": (
            *conversation().checkpoints, ImportedCheckpoint(name="own", message_id="a", id="mark"),
        ),
        "runs": (RUN, SECOND_RUN),
        "regenerations": (REGENERATION, msgspec.structs.replace(REGENERATION, id="h", created_at=None)),
        "created_at": 2, "updated_at": 8, "expires_at": 50, **given,
    })  # fmt: skip


APPENDED = tuple(
    Message(id=key, parent_id=parent, name="user", data="hello", created_at=5, type="message")
    for key, parent in (("m1", None), ("m2", "m1"), ("m3", "m2"), ("a", "m1"))
)
POINTERS: list[Body] = [
    CheckpointSet("new2", "cp", "m2", 7),
    CheckpointSet("mark", "own", "a", 1_000),
    MessagesAnnotated(("m2",), {"stale": True, "replaced_by": "m3", "metadata": {"why": "edited"}}),
    MessagesAnnotated(("a",), {"hidden": True}),
    RegenerationBegun("g", "m1", "m2", (PLANNED,), ("r",), 6, REGENERATION.carries),
    RegenerationBegun("h", "m1", "m2", (PLANNED,), ("r",), None, REGENERATION.carries),
    RunRecorded(msgspec.structs.replace(RUN.recorded, chat_id=""), {"n": 1}),
    RunRecorded(msgspec.structs.replace(SECOND_RUN.recorded, id="new3", chat_id="")),
]


def test_the_events_of_a_new_chat() -> None:
    """
    What is said of a time or an id is kept, the rest is of now and new. What is active comes first.

    Events of a run have no chat, as they are in one.
    """
    bodies = decide(ReplayedChat(CHAT), everything())

    assert [
        ChatCreated("ada", "Trip", {"a": 1}, "b-main", 2, 50, 8, 4),
        MessagesAppended(APPENDED, 0, None, "m3", 8),
        BranchCreated(1, "new0", "idea", "a", 1_000, is_active=True),
        BranchCreated(2, "new1", "side", None, 1_002),
        *POINTERS,
    ] == bodies
    assert ImportResult(
        chat_id=CHAT, is_new=True, messages_added=4, branches_added=3, checkpoints_set=2, messages_annotated=2,
        runs_added=2, regenerations_added=2,
    ) == import_result(Settled(everything()), bodies)  # fmt: skip


def test_the_events_of_a_new_chat_without_a_main_branch() -> None:
    """The one that each chat begins with is deleted as soon as another one is active; without an active one it stays."""
    idea, side = (
        ImportedBranch(name="idea", head_message_id="a", is_active=True),
        ImportedBranch(name="side", head_message_id="m1"),
    )
    bodies = decide(ReplayedChat(CHAT), conversation(branches=(side, idea), checkpoints=()))

    assert [
        ChatCreated("ada", "Trip", {"a": 1}, "new0"),
        MessagesAppended(APPENDED),
        BranchCreated(1, "new1", "idea", "a", 1_000, is_active=True),
        BranchDeleted(0, "main"),
        BranchCreated(2, "new2", "side", "m1", 1_001),
    ] == bodies
    assert 2 == import_result(Settled(conversation()), bodies).branches_added
    for branches in ((), (side,)):
        assert BranchDeleted not in map(type, decide(ReplayedChat(CHAT), conversation(branches=branches)))


def test_the_events_of_what_a_chat_lacks() -> None:
    """A branch that is there moves forward, a new one does not become active; nothing that was said here changes."""
    story = Story()
    story.write(decide(story.chat(), conversation()))
    longer = everything()
    bodies = decide(
        story.chat(),
        msgspec.structs.replace(
            longer,
            messages=(*longer.messages, message("m4", "m3")),
            branches=(
                ImportedBranch(name="main", head_message_id="m4"),
                ImportedBranch(name="idea", head_message_id=None),
                ImportedBranch(name="side", head_message_id="m3", is_active=True, id="b-side", created_at=3),
            ),
        ),
    )
    new_message = Message(id="m4", parent_id="m3", name="user", data="hello", created_at=5, type="message")

    assert [
        MessagesAppended((new_message,), None, None, None, 8),
        BranchCreated(2, "b-side", "side", "m3", 3),
        HeadMoved(0, "main", "m3", "m4"),
        *POINTERS[1:-1],
        RunRecorded(msgspec.structs.replace(SECOND_RUN.recorded, id="new0", chat_id="")),
    ] == bodies
    assert ImportResult(
        chat_id=CHAT, messages_added=1, branches_added=1, heads_moved=1, checkpoints_set=1, messages_annotated=2,
        runs_added=2, regenerations_added=2, versions_added=1,
    ) == import_result(Settled(longer, {"old": "m4", "older": "z"}), bodies)  # fmt: skip
    story.write(bodies)
    assert [] == decide(story.chat(), longer)


@pytest.mark.parametrize("limit", range(3, 7))
def test_an_import_in_parts_comes_to_the_same(limit: int) -> None:
    """However many events one commit may have, the result is that of one."""
    whole, parts = Story(), Story()
    whole.write(decide(whole.chat(), conversation()))
    while bodies := decide(parts.chat(), conversation(), limit):
        parts.write(bodies)

    assert [(b.name, b.head_message_id, b.is_active) for b in whole.chat().branches] == [
        (b.name, b.head_message_id, b.is_active) for b in parts.chat().branches
    ]
    assert [m.id for m in whole.chat().messages] == [m.id for m in parts.chat().messages]
    assert [c.name for c in whole.chat().checkpoints] == [c.name for c in parts.chat().checkpoints]


def test_a_longer_import_moves_branches_forward() -> None:
    """A branch moves to a descendant of its head; one that went another way stays where it is."""
    story = Story()
    story.write(decide(story.chat(), conversation()))
    longer = conversation(
        messages=(*conversation().messages, message("m4", "m3")),
        branches=(
            ImportedBranch(name="main", head_message_id="m4", is_active=True),
            ImportedBranch(name="idea", head_message_id="m2"),
        ),
    )
    bodies = decide(story.chat(), longer)
    story.write(bodies)

    assert [("main", "m3", "m4")] == [(b.branch, b.from_head, b.to_head) for b in bodies if isinstance(b, HeadMoved)]
    assert [["m4"]] == [[m.id for m in b.messages] for b in bodies if isinstance(b, MessagesAppended)]
    assert {"main": False, "idea": True} == {branch.name: branch.is_active for branch in story.chat().branches}


GONE = "nowhere"


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"messages": (message("m1", "m1"),)}, SelfParentError),
        ({"messages": (message("m1", "none"),)}, ParentNotFoundError),
        ({"messages": (message("m2", "m1"), message("m1", None))}, ParentNotFoundError),
        ({"messages": (message("m1", None), message("m1", None, "other"))}, MessageConflictError),
        ({"messages": (message("m1", None, float("nan")),)}, InvalidValueError),
    ],
)
def test_messages_that_do_not_fit_are_refused(given: dict[str, Any], error: type[Exception]) -> None:
    """Dangling parents, cycles and bad values raise before anything is decided (SM-11)."""
    with pytest.raises(error):
        decide(ReplayedChat(CHAT), conversation(**given))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"branches": (ImportedBranch(name="", head_message_id="m1"),)}, "branch name must"),
        (
            {"branches": (ImportedBranch(name="main", head_message_id="m1", created_at=-(2**64)),)},
            "created_at of a branch",
        ),
        (
            {"branches": (ImportedBranch(name="side", head_message_id="m1", created_at=-(2**64)),)},
            "created_at of a branch",
        ),
        ({"checkpoints": (ImportedCheckpoint(name="", message_id="m1"),)}, "checkpoint name must"),
        (
            {"checkpoints": (ImportedCheckpoint(name="c", message_id="m1", created_at=2**64),)},
            "created_at of a checkpoint",
        ),
        ({"user_id": "\0"}, "user_id must"),
        ({"title": 5}, "title must"),
        ({"metadata": []}, "metadata must"),
        ({"created_at": "now"}, "created_at must"),
        ({"updated_at": "now"}, "updated_at must"),
        ({"expires_at": "now"}, "expires_at must"),
        ({"regenerations": (msgspec.structs.replace(REGENERATION, id=""),)}, "regeneration id must"),
        ({"regenerations": (msgspec.structs.replace(REGENERATION, created_at=2**64),)}, "created_at of a regeneration"),
        ({"runs": (msgspec.structs.replace(RUN, run_id=""),)}, "run_id must"),
        ({"runs": (msgspec.structs.replace(RUN, thread_id=""),)}, "thread_id must"),
        ({"messages": (message("m", None, annotation=Annotation(metadata={"a": b""})),)}, "metadata contains"),
        (
            {"messages": (message("m", None, annotation=Annotation(replaced_by="m")),)},
            "message 'm' cannot be replaced by",
        ),
    ],
)
def test_a_value_that_breaks_a_rule_is_refused(given: dict[str, Any], words: str) -> None:
    """The error begins with what it is."""
    with pytest.raises(InvalidValueError, match=f"^{words}"):
        decide(ReplayedChat(CHAT), conversation(**{"branches": (), "checkpoints": (), **given}))


@pytest.mark.parametrize(
    "given",
    [
        {"branches": (ImportedBranch(name="main", head_message_id=GONE),)},
        {"branches": (ImportedBranch(name="idea", head_message_id=GONE),)},
        {"checkpoints": (ImportedCheckpoint(name="cp", message_id=GONE),)},
        {"messages": (message("m1", None, annotation=Annotation(replaced_by=GONE)),)},
        {"runs": (msgspec.structs.replace(RUN, trigger_message_id=GONE),)},
        {"runs": (msgspec.structs.replace(RUN, message_id=GONE),)},
        {"runs": (msgspec.structs.replace(RUN, references=["m1", GONE]),)},
        {"regenerations": (msgspec.structs.replace(REGENERATION, edited_message_id=GONE),)},
        {"regenerations": (msgspec.structs.replace(REGENERATION, new_message_id=GONE),)},
        {
            "regenerations": (
                msgspec.structs.replace(
                    REGENERATION, carries=CarryOver(branch_id="b", stretches=(Stretch(last=GONE),))
                ),
            )
        },
    ],
)
def test_what_names_a_message_that_is_not_imported_is_refused(given: dict[str, Any]) -> None:
    """Even if the chat has it: an import is complete in itself."""
    story = Story().chain(GONE)
    for state in (ReplayedChat(CHAT), story.chat()):
        with pytest.raises(MessageNotFoundError) as caught:
            decide(state, conversation(**{"branches": (), "checkpoints": (), **given}))
        assert (GONE, CHAT) == (caught.value.message_id, caught.value.chat_id)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        *((name, "", f"{name} must not be empty") for name in ("run_id", "thread_id", "assistant_id", "runtime")),
        *((name, "", f"{name} must not be empty") for name in ("checkpoint_id", "repeats", "regeneration_id")),
        *((name, 2**64, f"{name} of a run must be") for name in ("created_at", "updated_at")),
        ("status", "odd", "the status of run 'r' is 'odd', not one of pending, running, waiting, completed, error"),
        ("metadata", [], "the metadata of a run must be"),
    ],
)
def test_a_run_that_breaks_a_rule_is_refused(field: str, value: Any, words: str) -> None:
    """Ids, times, its status and its metadata are looked at."""
    check_run(RUN)
    with pytest.raises(InvalidValueError, match=f"^{words}"):
        check_run(msgspec.structs.replace(RUN, **{field: value}))


def test_metadata_of_an_annotation_are_copied() -> None:
    """What becomes of the caller's later has no effect."""
    metadata = {"a": [1]}
    annotated = message("m", None, annotation=Annotation(metadata=metadata))
    bodies = decide(ReplayedChat(CHAT), conversation(messages=(annotated,), branches=(), checkpoints=()))
    metadata["a"].append(2)

    assert MessagesAnnotated(("m",), {"metadata": {"a": [1]}}) == bodies[-1]


def test_an_import_does_not_overwrite_a_message() -> None:
    """An id that is stored with other content is refused (SM-6), unless that was settled before."""
    story = Story().chain()
    story.append(user("m1", "other"))
    with pytest.raises(MessageConflictError):
        decide(story.chat(), conversation())


# Messages that were changed at their source


def again(story: Story, chat: ImportedChat, on_change: OnChange = "version") -> list[Body]:
    """Take a chat in as a ledger does."""
    bodies = decide_import(
        story.chat(),
        settle_changes(story.chat(), chat, on_change),
        ids=[story.new_id() for _ in range(20)],
        now=1_000,
    )
    story.write(bodies)
    return bodies


def texts(story: Story, branch: str) -> list[Any]:
    """The data on a branch, oldest first."""
    chat = story.chat()
    found = chat.branch(branch)
    at, said = None if found is None else found.head_message_id, list[Any]()
    while at is not None:
        message = chat.message(at)
        assert message is not None
        said.append(message.data)
        at = message.parent_id
    return said[::-1]


def line(*said: Any, **given: Any) -> ImportedChat:
    """A conversation on one branch: messages m0, m1, ... with these data."""
    messages = tuple(message(f"m{n}", f"m{n - 1}" if n else None, data) for n, data in enumerate(said))
    head = messages[-1].id if messages else None
    main = ImportedBranch(name="main", head_message_id=head, is_active=True)
    return conversation(**{"messages": messages, "branches": (main,), "checkpoints": (), **given})


def test_a_placeholder_that_was_filled_comes_as_a_new_version() -> None:
    """The branch moves to it, later turns come in after it, and nothing changes when all of that is imported again."""
    story = Story()
    again(story, line("q", ""))
    for said in (["q", "an answer"], ["q", "an answer", "and?", ""], ["q", "an answer", "and?", "that is all"]):
        again(story, line(*said))

        assert said == texts(story, "main")
        assert [] == again(story, line(*said))
    assert "" == story.chat().messages[1].data


def test_what_follows_a_changed_message_follows_its_new_version() -> None:
    """Also when it was there before; a branch that went on here stays, and so do checkpoints."""
    story = Story()
    again(story, line("q", "a", "q2", checkpoints=(ImportedCheckpoint(name="cp", message_id="m1"),)))
    story.write(
        decide_create_branch(story.chat(), "mine", "m2", activate=False, branch_id=story.new_id("b"), created_at=1)
    )
    again(story, line("Q", "a", "q2", checkpoints=(ImportedCheckpoint(name="new", message_id="m1"),)))
    chat = story.chat()
    marks = {mark.name: chat.message(mark.message_id) for mark in chat.checkpoints}

    assert ["Q", "a", "q2"] == texts(story, "main")
    assert ["q", "a", "q2"] == texts(story, "mine")
    assert [True, False] == [mark is not None and mark.id == "m1" for mark in (marks["cp"], marks["new"])]


def test_a_changed_message_goes_back_to_what_it_was() -> None:
    """Then its first version counts again; nothing new is written but the move."""
    story = Story()
    for said in ("a", "b"):
        again(story, line("q", said))
    bodies = again(story, line("q", "a"))

    assert ["q", "a"] == texts(story, "main")
    assert [HeadMoved] == [type(body) for body in bodies]


def test_a_branch_that_went_on_here_does_not_move_to_a_new_version() -> None:
    """What was said here is not taken from sight."""
    story = Story()
    again(story, line("q", ""))
    story.append(user("mine", "m"))
    again(story, line("q", "a"))

    assert ["q", "", "m"] == texts(story, "main")


def test_a_changed_message_is_skipped_or_refused() -> None:
    """Skipped, it stays as it is stored, and later turns come in after it."""
    story = Story()
    again(story, line("q", ""))
    again(story, line("q", "a", "q2"), "skip")

    assert ["q", "", "q2"] == texts(story, "main")
    with pytest.raises(MessageConflictError):
        again(story, line("q", "a"), "refuse")
    with pytest.raises(InvalidValueError, match="on_change must be one of version, skip, refuse"):
        again(story, line("q", "a"), "other")  # type: ignore[arg-type]  # what a caller without types may give


def test_a_skipped_message_does_not_take_a_branch_back() -> None:
    """Neither the stored message nor the new one is shown in place of the version that is."""
    story = Story()
    for said in ("a", "b"):
        again(story, line("q", said))
    again(story, line("q", "c"), "skip")
    assert ["q", "b"] == texts(story, "main")
    again(story, line("q", "a"), "skip")
    assert ["q", "a"] == texts(story, "main")


class Source:
    """A conversation that its source changes in place."""

    def __init__(self) -> None:
        self.messages: dict[str, ImportedMessage] = {}
        self.head: str | None = None

    def change(self, kind: str, at: int, value: int) -> None:
        """Add a message to the head; or edit one, remove one, make it the head, or hang the newest one on it."""
        ids = list(self.messages)
        if kind == "add" or not ids:
            new_id = f"m{max((int(one[1:]) for one in ids), default=-1) + 1}"
            self.messages[new_id] = message(new_id, self.head, {"id": new_id, "n": value})
            self.head = new_id
            return
        chosen = ids[at % len(ids)]
        if kind == "edit":
            self._put(chosen, data={"id": chosen, "n": value})
        elif kind == "head":
            self.head = chosen
        elif kind == "move":
            self._put(ids[-1], parent_id=None if len(ids) < 2 else ids[at % (len(ids) - 1)])
        else:
            above = self.messages.pop(chosen).parent_id
            for child in [one.id for one in self.messages.values() if one.parent_id == chosen]:
                self._put(child, parent_id=above)
            self.head = above if self.head == chosen else self.head

    def _put(self, message_id: str, **changes: Any) -> None:
        self.messages[message_id] = msgspec.structs.replace(self.messages[message_id], **changes)

    @property
    def chat(self) -> ImportedChat:
        """As it is now."""
        main = ImportedBranch(name="main", head_message_id=self.head, is_active=True)
        return conversation(messages=tuple(self.messages.values()), branches=(main,), checkpoints=())

    @property
    def said(self) -> list[int]:
        """The values from the root to the head."""
        found: list[int] = []
        at = self.head
        while at is not None:
            found.append(self.messages[at].data["n"])
            at = self.messages[at].parent_id
        return found[::-1]


def changes(*kinds: str) -> st.SearchStrategy[list[tuple[str, int, int]]]:
    """Changes of a source: the kind, which message, and what it says."""
    return st.lists(st.tuples(st.sampled_from(kinds), st.integers(0, 9), st.integers(0, 3)), max_size=12)


@given(changes("add", "add", "edit", "move"))
def test_a_source_in_use_can_be_imported_after_every_change(steps: list[tuple[str, int, int]]) -> None:
    """However messages are added, changed in place, and hung elsewhere: the branch says what the source says, at once and again."""
    story, source = Story(), Source()
    for step in steps:
        source.change(*step)
        again(story, source.chat)

        assert source.said == [data["n"] for data in texts(story, "main")]
        assert [] == again(story, source.chat)


@settings(max_examples=examples(100))
@given(changes("add", "add", "edit", "move", "head", "drop"), st.data())
def test_any_change_of_a_source_can_be_imported(steps: list[tuple[str, int, int]], data: st.DataObject) -> None:
    """Also what removes messages, and in both ways: nothing fails, and the same again changes nothing."""
    story, source = Story(), Source()
    for step in steps:
        source.change(*step)
        on_change: OnChange = data.draw(st.sampled_from(["version", "skip"]))
        again(story, source.chat, on_change)
        assert [] == again(story, source.chat, on_change)


# An import in parts


def test_a_rest_is_decided_without_the_messages() -> None:
    """The events of all parts are those of one: no message is compared again, and no new id is used twice."""
    many = conversation(
        branches=(
            ImportedBranch(name="main", head_message_id="m3"),
            *(ImportedBranch(name=f"side {number}", head_message_id="a") for number in range(9)),
            ImportedBranch(name="idea", head_message_id="a", is_active=True),
        ),
        checkpoints=tuple(ImportedCheckpoint(name=f"cp {number}", message_id="m2") for number in range(5)),
        runs=tuple(msgspec.structs.replace(RUN, id="", run_id=f"r{number}") for number in range(5)),
    )
    whole = Story()
    whole.write(decide(whole.chat(), many))
    story, rest = Story(), many
    ids = iter(f"id{number}" for number in range(1_000))
    parts = 0
    while True:
        new_ids = [next(ids) for _ in range(30)]
        before = len(many.branches) - len(rest.branches) if parts else None
        bodies = decide_import(story.chat(), rest, ids=new_ids, now=1_000, limit=4, branches_before=before)
        if not bodies:
            break
        story.write(bodies)
        rest, parts = rest_of(rest, bodies), parts + 1

    assert parts == 6
    assert [b.name for b in story.chat().branches] == [b.name for b in whole.chat().branches]
    assert [b.created_at for b in story.chat().branches] == [b.created_at for b in whole.chat().branches]
    assert [c.name for c in story.chat().checkpoints] == [c.name for c in whole.chat().checkpoints]
    assert [f"r{number}" for number in range(5)] == [run.run_id for run in story.chat().runs()]
    made = [branch.id for branch in story.chat().branches]
    assert len(set(made)) == len(made)
    assert ((), (), ()) == (rest.branches, rest.checkpoints, rest.runs)


def test_what_is_left_after_some_events() -> None:
    """Branches up to the last one that was made or moved, the active one first; checkpoints and runs by their names."""
    main, side, idea = everything().branches
    mark, own = everything().checkpoints
    made, moved = BranchCreated(1, "b", "idea", "a", 1), HeadMoved(0, "main", "m1", "m3")
    for written, branches in (([], (idea, main, side)), ([made], (main, side)), ([made, moved], (side,))):
        rest = rest_of(everything(), [*written, CheckpointSet("c", "cp", "m2", 7), RunRecorded(SECOND_RUN.recorded)])

        assert (branches, (own,), (RUN,)) == (rest.branches, rest.checkpoints, rest.runs)
    assert (mark, own) == rest_of(everything(), [made]).checkpoints


def test_a_rest_of_a_chat_that_is_gone() -> None:
    """It was deleted, or begun anew by somebody else, between two parts: nothing of it is written."""
    with pytest.raises(ChatNotFoundError):
        decide_import(Story().chat(), conversation(), ids=["x"] * 9, now=1, branches_before=0)

    story = Story()
    story.write(decide(story.chat(), conversation(messages=(message("z", None),), branches=(), checkpoints=())))
    for pointer, message_id in (
        ({"branches": (ImportedBranch(name="main", head_message_id="m3"),)}, "m3"),
        ({"branches": (ImportedBranch(name="side", head_message_id="m2"),)}, "m2"),
        ({"checkpoints": (ImportedCheckpoint(name="cp", message_id="m1"),)}, "m1"),
    ):
        rest = conversation(**{"branches": (), "checkpoints": (), **pointer})
        with pytest.raises(MessageNotFoundError) as caught:
            decide_import(story.chat(), rest, ids=["x"] * 9, now=1, branches_before=0)
        assert (message_id, CHAT) == (caught.value.message_id, caught.value.chat_id)
