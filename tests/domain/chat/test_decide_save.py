"""Which messages of a save are new, which are edits, and where they are chained (SM-36 to SM-48)."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from tests.support.cases import case
from tests.support.stories import CHAT, Story, neighboured, user

from chatledger.domain.chat.events import Body, BranchCreated, MessagesAppended
from chatledger.domain.chat.save import Save, SaveResult, decide_save, save_result
from chatledger.domain.errors import (
    AmbiguousEditError,
    BranchNotFoundError,
    ChatNotFoundError,
    HeadConflictError,
    InvalidValueError,
    MessageConflictError,
    MessageNotFoundError,
    WrongChatError,
)
from chatledger.domain.values import NewMessage

NOW = 1_700_000_000_999


def save_of(*drafts: NewMessage, **rest: Any) -> Save:
    """A save whose spare ids are the ids with a stroke: the one of m2 is m2'."""
    given: dict[str, Any] = {"branch": "main", "branch_id": "b9", **rest}
    return Save(drafts=drafts, spare_ids=tuple(f"{draft.id}'" for draft in drafts), **given)


def saved(story: Story, *drafts: NewMessage, **rest: Any) -> SaveResult:
    """Carry out a save, and say what it says."""
    save = save_of(*drafts, **{"branch_id": story.new_id("b"), **rest})
    bodies = decide_save(story.chat(), save, now=story.time)
    story.write(bodies)
    head = story.chat().branch(save.branch)
    assert head is not None
    return save_result(save, bodies, head_message_id=head.head_message_id)


def chain(story: Story, branch: str = "main") -> list[str]:
    """The ids on a branch, root first."""
    found = story.chat().branch(branch)
    assert found is not None
    parents = {message.id: message.parent_id for message in story.chat().messages}
    ids: list[str] = []
    at = found.head_message_id
    while at is not None:
        ids.append(at)
        at = parents[at]
    return ids[::-1]


def active(story: Story) -> str:
    record = story.chat().record
    assert record is not None
    return record.active_branch


def test_new_messages_are_chained_onto_the_head() -> None:
    """In queue order, one event, one time (SM-36, SM-38, SM-39)."""
    story = Story().chain("m1")
    bodies = decide_save(story.chat(), save_of(user("m2"), user("m3")), now=NOW)

    (body,) = bodies
    assert isinstance(body, MessagesAppended)
    assert [("m2", "m1", NOW), ("m3", "m2", NOW)] == [(m.id, m.parent_id, m.created_at) for m in body.messages]
    assert (body.branch, body.from_head, body.to_head) == (0, "m1", "m3")


def test_nothing_pending_is_nothing() -> None:
    """The result names the present head, or None for an empty branch (SM-37)."""
    assert saved(Story().chain()).head_message_id is None
    assert saved(Story().chain("m1", "m2")).head_message_id == "m2"


def test_an_edit_makes_a_branch_at_the_parent() -> None:
    """`main` unchanged, `main-v2: m1 <- m2'` active, with a new id (the example of SM-48)."""
    story = Story().chain("m1", "m2", "m3")
    result = saved(story, user("m2", "edited"))

    assert chain(story) == ["m1", "m2", "m3"]
    assert chain(story, "main-v2") == ["m1", "m2'"]
    assert active(story) == "main-v2"
    assert result == SaveResult(head_message_id="m2'", branch="main-v2", message_ids=["m2'"], id_map={"m2": "m2'"})


def test_edits_of_one_save_make_one_branch() -> None:
    """Edits of m2 and m4 on m1..m5 read [m1, m2', m4']; the originals are unchanged (SM-41, acceptance SM 3)."""
    story = Story().chain("m1", "m2", "m3", "m4", "m5")
    before = story.chat().messages
    saved(story, user("m4", "4"), user("m2", "2"), user("m6"))

    assert chain(story, "main-v2") == ["m1", "m4'", "m2'", "m6"]
    assert len(story.chat().branches) == 2
    assert before == story.chat().messages[:5]


def test_an_edited_root_becomes_another_root() -> None:
    """Nothing is overwritten in place; the rest stays on the old branch (SM-42, acceptance SM 2)."""
    story = Story().chain("m1", "m2", "m3")
    saved(story, user("m1", "edited"))

    assert chain(story) == ["m1", "m2", "m3"]
    assert chain(story, "main-v2") == ["m1'"]
    original, edited = story.chat().message("m1"), story.chat().message("m1'")
    assert original is not None
    assert edited is not None
    assert (original.data, edited.data, edited.parent_id) == ("hello", "edited", None)


def test_a_branch_of_an_edit_is_one_commit_with_its_messages() -> None:
    """New branch, messages, head move and activation, created before it is filled (SM-39)."""
    bodies = decide_save(Story().chain("m1").chat(), save_of(user("m1", "edited")), now=NOW)

    assert [BranchCreated, MessagesAppended] == [type(body) for body in bodies]
    created = bodies[0]
    assert isinstance(created, BranchCreated)
    assert created == BranchCreated(1, "b9", "main-v2", None, NOW, is_active=True)


def test_a_new_branch_has_a_name_of_its_own() -> None:
    """The next free number, also where somebody gave such a name."""
    story = Story().chain("m1")
    story.write([BranchCreated(1, "b-v3", "main-v3", "m1", story.time)])

    assert saved(story, user("m1", "edited")).branch == "main-v4"


@pytest.mark.parametrize(
    "change",
    [{"data": "other"}, {"name": "system"}, {"type": "note"}, {"sender_id": "bob"}, {"reply_to": "m1"}],
    ids=lambda change: next(iter(change)),
)
def test_other_content_is_an_edit(change: dict[str, Any]) -> None:
    """Name, type, data and attribution count (SM-41)."""
    story = Story().chain("m1", "m2")
    fields: dict[str, Any] = {"name": "user", "data": "hello", "id": "m2", **change}
    draft = NewMessage(**fields)

    assert saved(story, draft).id_map == {"m2": "m2'"}


def test_time_and_parent_are_no_content() -> None:
    """Another parent or time alone is no edit (SM-41)."""
    story = Story().chain("m1", "m2")

    assert decide_save(story.chat(), save_of(user("m2", parent_id="m2", created_at=5)), now=NOW) == []


def test_an_edit_elsewhere_forks_at_its_own_parent() -> None:
    """A message outside the current chain (SM-44)."""
    story = Story().chain("m1", "m2")
    story.add(user("x1", parent_id="m1"), user("x2", parent_id="x1"))
    saved(story, user("x2", "edited"))

    assert chain(story, "main-v2") == ["m1", "x1", "x2'"]


def test_edits_of_two_chains_are_refused() -> None:
    """Neither is the ancestor of the other: nobody can tell what is meant (SM-44)."""
    story = Story().chain("m1", "m2", "m3")
    story.add(user("x", parent_id="m1"))

    with pytest.raises(AmbiguousEditError, match="one by one"):
        decide_save(story.chat(), save_of(user("m1", "1"), user("m3", "3"), user("x", "x")), now=NOW)


@pytest.mark.parametrize("order", [("m2", "m3", "m4"), ("m4", "m2", "m3"), ("m3", "m4", "m2"), ("m4", "m3", "m2")])
def test_the_earliest_edit_is_the_fork_point(order: tuple[str, ...]) -> None:
    """Whatever the order in the queue."""
    story = Story().chain("m1", "m2", "m3", "m4")
    saved(story, *(user(message_id, "edited") for message_id in order))

    assert chain(story, "main-v2") == ["m1", *(f"{message_id}'" for message_id in order)]


def test_equal_messages_are_skipped() -> None:
    """What stands on the chain already stays where it is (SM-47)."""
    story = Story().chain("m1", "m2")
    result = saved(story, user("m1"), user("m2"), user("m3"))

    assert chain(story) == ["m1", "m2", "m3"]
    assert result.message_ids == ["m1", "m2", "m3"]
    assert result.id_map == {}


def test_a_repeated_save_writes_nothing() -> None:
    """Its chain contains the new head: the save is done (SM-48)."""
    story = Story().chain("m1")
    first = saved(story, user("m2"), user("m3"))
    events = len(story.events)

    assert saved(story, user("m2"), user("m3"), on_conflict="raise", read_head="m1") == first
    assert len(story.events) == events


def test_an_equal_message_elsewhere_gets_a_new_id() -> None:
    """It is appended to the chain; the stored one stays where it is (SM-47)."""
    story = Story().chain("m1")
    story.add(user("x"))
    result = saved(story, user("x"))

    assert chain(story) == ["m1", "x'"]
    assert result.id_map == {"x": "x'"}


def test_an_edit_is_stored_as_it_came() -> None:
    """Under its new id, which its data do not say: they are never rewritten, whatever they carry."""
    ui = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "x"}]}
    several: list[Any] = [{"id": "m1"}, ui, {**ui, "id": "other"}, {"id": 7}, {"parts": []}, ["id"], "an id", 5]
    for data in several:
        with case(data):
            story = Story().chain("m1")
            saved(story, user("m1", data))
            edited = story.chat().message("m1'")
            assert edited is not None
            assert edited.data == data


def test_a_message_that_is_told_under_its_new_id_is_the_same() -> None:
    """The id of a UIMessage is that of the message, so who sends back what was read changes nothing."""
    ui = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "x"}]}
    story = Story().chain("m1")
    saved(story, user("m1", ui))

    assert decide_save(story.chat(), save_of(user("m1'", {**ui, "id": "m1'"}), branch="main-v2"), now=NOW) == []
    assert saved(story, user("m1'", {**ui, "id": "m1'", "parts": []}), branch="main-v2").id_map == {"m1'": "m1''"}


def test_an_answer_to_an_edited_message_follows_it() -> None:
    """In the same save `reply_to` names the edited message; elsewhere it stays."""
    story = Story().chain("m1", "m2")
    saved(story, user("m2", "edited"), user("m3", reply_to="m2"), user("m4", reply_to="m1"))

    targets = {message.id: message.reply_to for message in story.chat().messages}
    assert (targets["m3"], targets["m4"]) == ("m2'", "m1")


IMPOSSIBLE: list[tuple[Save, type[Exception], str]] = [
    (save_of(user("m1"), branch="side"), BranchNotFoundError, "'side'"),
    (save_of(user("m3"), on_conflict="merge"), InvalidValueError, "^on_conflict must be one of rebase"),
    (save_of(user("m3"), user("m3")), InvalidValueError, "'m3' is given twice"),
    (save_of(user("m3", reply_to="m9")), MessageNotFoundError, "'m9'"),
    (save_of(user("m3"), on_conflict="fork", read_head="m9"), MessageNotFoundError, "'m9'"),
    (save_of(user("foreign")), WrongChatError, "'foreign'"),
    (Save(drafts=(user("m3"),), spare_ids=(), branch="main", branch_id="b"), InvalidValueError, "as many spare ids"),
    (Save(drafts=(user("m1", "x"),), spare_ids=("m2",), branch="main", branch_id="b"), MessageConflictError, "'m2'"),
    (Save(drafts=(user("m1", "x"),), spare_ids=("foreign",), branch="main", branch_id="b"), MessageConflictError, "'foreign'"),
    *(
        (msgspec.structs.replace(save_of(user("m1", "x")), **{field: wrong}), InvalidValueError, f"{words} must be")
        for field, words in {
            "drafts": "^(drafts|message id)", "spare_ids": "spare_ids", "branch": "^branch", "branch_id": "^branch_id",
            "read_head": "^read_head", "on_conflict": "^on_conflict", "after": "^message_id",
        }.items()
        for wrong in (5, [5], object())
    ),
]  # fmt: skip


def test_impossible_saves_are_refused() -> None:
    """Each with its own error, which says what is wrong, and where; nothing is decided."""
    for save, error, words in IMPOSSIBLE:
        with case(save), pytest.raises(error, match=words) as caught:
            decide_save(neighboured("foreign").chain("m1", "m2").chat(), save, now=NOW)
        assert CHAT == getattr(caught.value, "chat_id", CHAT)


def test_a_save_needs_a_chat() -> None:
    with pytest.raises(ChatNotFoundError):
        decide_save(Story().chat(), save_of(user("m1")), now=NOW)


def moved(**rest: Any) -> tuple[Story, list[Body]]:
    """Two messages were read up to m1 when another writer added m2."""
    story = Story().chain("m1", "m2")
    bodies = decide_save(story.chat(), save_of(user("m3"), read_head="m1", **rest), now=NOW)
    story.write(bodies)
    return story, bodies


def test_rebase_chains_onto_what_others_added() -> None:
    """Two writers on one branch give one chain with both turns (SM-48)."""
    story, _ = moved()

    assert chain(story) == ["m1", "m2", "m3"]


def test_fork_branches_where_it_was_read() -> None:
    story, _ = moved(on_conflict="fork")

    assert chain(story) == ["m1", "m2"]
    assert chain(story, "main-v2") == ["m1", "m3"]
    assert active(story) == "main-v2"


def test_fork_makes_no_branch_without_need() -> None:
    """The head is where it was read."""
    story = Story().chain("m1")
    saved(story, user("m2"), on_conflict="fork", read_head="m1")

    assert chain(story) == ["m1", "m2"]
    assert len(story.chat().branches) == 1


def test_raise_refuses() -> None:
    with pytest.raises(HeadConflictError) as caught:
        moved(on_conflict="raise")

    error = caught.value
    assert (error.chat_id, error.branch, error.expected, error.actual) == (CHAT, "main", "m1", "m2")


def test_any_head_will_do() -> None:
    """Without a head that was read there is nothing to compare."""
    story = Story().chain("m1", "m2")

    assert saved(story, user("m3"), on_conflict="raise", read_head=UNSET).head_message_id == "m3"


drafts = st.lists(
    st.tuples(st.integers(1, 9), st.sampled_from(["hello", "edited"])), max_size=6, unique_by=lambda d: d[0]
)


@given(drafts)
def test_no_save_changes_what_a_branch_shows(given_drafts: list[tuple[int, str]]) -> None:
    """
    Stored messages and other branches stay as they are, and the messages of the save stand in order on its branch.

    The chat has m1..m4 on `main`, and m5 and m6 beside it on `side`.
    """
    story = Story().chain("m1", "m2", "m3", "m4")
    story.add(user("m5", parent_id="m2"), user("m6", parent_id="m5"))
    story.write([BranchCreated(1, "b-side", "side", "m6", story.time)])
    before = {message.id: message for message in story.chat().messages}
    old = chain(story)
    try:
        result = saved(story, *(user(f"m{number}", data) for number, data in given_drafts))
    except AmbiguousEditError:
        edited = {number for number, data in given_drafts if data == "edited"}
        assert edited & {3, 4}
        assert edited & {5, 6}
        return

    after = {message.id: message for message in story.chat().messages}
    assert before == {message_id: after[message_id] for message_id in before}
    assert chain(story, "side") == ["m1", "m2", "m5", "m6"]
    if result.branch != "main":
        assert chain(story) == old
    new = [message_id for message_id in result.message_ids if message_id not in before]
    assert chain(story, result.branch)[len(chain(story, result.branch)) - len(new) :] == new
    assert all(after[message_id].data == dict_of(given_drafts)[message_id.strip("m'")] for message_id in new)


def dict_of(given_drafts: list[tuple[int, str]]) -> dict[str, str]:
    return {str(number): data for number, data in given_drafts}


def test_a_message_without_its_reminders_is_the_same() -> None:
    """Clients send what the user wrote; that it was stored with a reminder makes it no edit."""
    text = "Hi<system-reminder>Be brief</system-reminder>"
    record = {
        "id": "r1",
        "text": "Be brief",
        "target": "user",
        "part_index": 0,
        "start": 2,
        "end": 45,
        "mode": "inline",
    }
    told = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": text}], "metadata": {"reminders": [record]}}
    story = Story().chain()
    story.append(user("m1", told))
    wrote = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}

    assert decide_save(story.chat(), save_of(user("m1", wrote)), now=NOW) == []
    assert saved(story, user("m1", {**wrote, "parts": []})).id_map == {"m1": "m1'"}


def test_an_answer_without_the_record_of_its_prompt_is_the_same() -> None:
    """The record came with it when it was written, or comes now."""
    answer = {"id": "m1", "role": "assistant", "parts": []}
    notes: dict[str, Any] = {"page": 3}
    first, second = ({**notes, "chatledger": {"cache": {"system": system}}} for system in ("a", "b"))
    for stored, sent in [(first, notes), (notes, first), (first, second)]:
        with case(stored, sent):
            story = Story().chain()
            story.append(user("m1", answer, metadata=stored))
            assert decide_save(story.chat(), save_of(user("m1", answer, metadata=sent)), now=NOW) == []
            assert saved(story, user("m1", answer, metadata={**sent, "page": 4})).id_map == {"m1": "m1'"}


# Going on after a message before the head


@pytest.mark.parametrize(
    ("after", "drafts", "expected"),
    [
        ("m2", ["m9"], ["m1", "m2", "m9"]),
        (None, ["m9"], ["m9"]),
        ("m4", ["m9"], ["m1", "m2", "m3", "m4", "m9"]),
        ("n2", ["m9"], ["m1", "n2", "m9"]),
        ("m2", ["m1 same", "m2 same", "m9"], ["m1", "m2", "m9"]),
        ("n2", ["m1 same", "n2 same", "m9"], ["m1", "n2", "m9"]),
        ("m2", ["m3"], ["m1", "m2", "m3'"]),
        ("m2", ["m4"], ["m1", "m2", "m4'"]),
        ("m2", ["m2", "m9"], ["m1", "m2'", "m9"]),
        ("m3", ["m2", "m9"], ["m1", "m2'", "m9"]),
        ("m2", ["m1", "m9"], ["m1'", "m9"]),
        ("m3", ["m3", "m2", "m9"], ["m1", "m3'", "m2'", "m9"]),
        (None, ["m3", "m9"], ["m3'", "m9"]),
    ],
)
def test_a_save_after_a_message(after: str | None, drafts: list[str], expected: list[str]) -> None:
    """One new branch there, active, or where an earlier message is edited; what is stored up to there is skipped."""
    story = Story().chain("m1", "m2", "m3", "m4")
    story.add(user("n2", parent_id="m1"))
    given = [user(name.split()[0], "hello" if name.endswith("same") else "new") for name in drafts]
    result = saved(story, *given, after=after)

    assert expected == chain(story, "main-v2")
    assert ("main-v2", "main-v2", expected[-1]) == (active(story), result.branch, result.head_message_id)
    assert ["m1", "m2", "m3", "m4"] == chain(story)


def test_a_save_after_a_message_with_nothing_new() -> None:
    """Makes no branch: there is none before there is an answer."""
    story = Story().chain("m1", "m2")

    assert [] == decide_save(story.chat(), save_of(after="m1"), now=NOW)
    assert [] == decide_save(story.chat(), save_of(user("m1"), after="m1"), now=NOW)


@pytest.mark.parametrize(
    ("after", "drafts", "rest", "error"),
    [
        ("none", ["m9"], {}, MessageNotFoundError),
        ("theirs", ["m9"], {}, WrongChatError),
        ("none", [], {}, MessageNotFoundError),
        ("n2", ["m3"], {}, AmbiguousEditError),
        ("m1", ["m9"], {"on_conflict": "raise", "read_head": "m1"}, HeadConflictError),
    ],
)
def test_a_save_after_a_message_is_refused(
    after: str, drafts: list[str], rest: dict[str, Any], error: type[Exception]
) -> None:
    """Also when there is nothing to save: a message that is not there has no chain to show."""
    story = neighboured("theirs").chain("m1", "m2", "m3")
    story.add(user("n2", parent_id="m1"))

    with pytest.raises(error):
        decide_save(story.chat(), save_of(*(user(one, "new") for one in drafts), after=after, **rest), now=NOW)
