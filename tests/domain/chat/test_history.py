"""Decisions on conversations as frameworks make them: nothing is lost, repeated, or kept between two calls."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.stories import CHAT, Story, commands, neighboured, tell, user

from chatledger.domain.chat.commit import Commit, decide
from chatledger.domain.chat.events import (
    Body,
    BranchCreated,
    ChatCreated,
    HeadMoved,
    MessagesAnnotated,
    MessagesAppended,
)
from chatledger.domain.chat.history import History, for_model, read_history
from chatledger.domain.chat.replay import ReplayedChat
from chatledger.domain.errors import (
    BranchExistsError,
    BranchNotFoundError,
    ChatledgerError,
    ChatNotFoundError,
    InvalidValueError,
    MessageConflictError,
    MessageNotFoundError,
)
from chatledger.domain.values import NewMessage

NOW = 1_800_000_000_000
Change = Callable[[Commit], Any]


def decided(chat: ReplayedChat, change: Change, **options: Any) -> tuple[list[Body], Any]:
    return decide(chat, change, now=NOW, unique_id="u", owner="ada", **options)


def carried_out(story: Story, change: Change, **options: Any) -> Any:
    """Decide, write what was decided, and say what the decision returned."""
    bodies, outcome = decide(story.chat(), change, now=story.time, unique_id=story.new_id("u"), owner="ada", **options)
    story.write(bodies)
    return outcome


def adding(drafts: list[NewMessage]) -> Change:
    return lambda commit: commit.add(drafts, reused_ids=True)


def shown(story: Story, branch: str | None = None) -> list[str]:
    """The ids that a model gets of a branch."""
    history = read_history(story.chat(), branch)
    return [] if history is None else [message.id for message in history.newest()]


def active(story: Story) -> str:
    record = story.chat().record
    assert record is not None
    return record.active_branch


def test_what_is_told_in_a_form_names_what_it_is_told_of() -> None:
    """As it came where it came so; an answer that came in parts is told as one, and windows begin with a whole turn."""
    call = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    said = [
        ("user", {"role": "user", "content": "Where?"}),
        ("assistant", {"role": "assistant", "tool_calls": [call]}),
        ("tool", {"role": "tool", "tool_call_id": "c1", "content": "There"}),
        ("assistant", {"role": "assistant", "content": "There."}),
        ("user", {"role": "user", "content": "Thanks"}),
    ]
    drafts = [NewMessage(name, data, form="openai", id=f"m{place}") for place, (name, data) in enumerate(said, 1)]

    def tell_all(commit: Commit) -> None:
        commit.begin()
        commit.add(drafts, reused_ids=True)

    story = Story()
    carried_out(story, tell_all)
    history = read_history(story.chat(), None)
    assert history is not None

    def told(form: str, limit: int | None = None) -> list[tuple[Any, list[str]]]:
        return [(value, [one.base.id for one in origin]) for value, origin in history.told(form, limit)]

    assert [(message.data, [message.id]) for message in history.chain()] == told("openai")
    assert told("openai")[-3:] == told("openai", 3)
    whole = told("anthropic")
    assert [["m1"], ["m2"], ["m3"], ["m4"], ["m5"]] == [origin for _, origin in whole]
    for limit in range(1, 7):
        assert whole[-limit:] == told("anthropic", limit)
        for form in ("anthropic", "openai"):
            assert [value for value, _ in told(form, limit)] == history.values(form, limit)
    assert history.values("openai", 0) == history.values("anthropic", 0) == []


def test_the_first_messages_make_the_chat() -> None:
    bodies, added = decided(Story().chat(), lambda commit: commit.add([user("m1"), user("m2")]))

    assert [ChatCreated, MessagesAppended] == [type(body) for body in bodies]
    assert [("m1", None), ("m2", "m1")] == [(message.id, message.parent_id) for message in added]
    assert isinstance(bodies[0], ChatCreated)
    assert bodies[0].user_id == "ada"


def test_what_is_there_is_not_added_again() -> None:
    """By its id and content, wherever on the branch: a call that is repeated changes nothing."""
    story = Story().chain("m1", "m2")

    assert ([], []) == decided(story.chat(), lambda commit: commit.add([user("m1"), user("m2")]))
    assert ["m3"] == [message.id for message in carried_out(story, lambda commit: commit.add([user("m1"), user("m3")]))]
    assert ["m1", "m2", "m3"] == shown(story)


def test_an_id_that_something_else_has_is_not_used_again() -> None:
    """Neither of another content, nor on another branch, nor in another chat, nor twice in a call: nothing is lost."""
    story = neighboured("theirs").chain("m1", "m2")
    carried_out(story, lambda commit: commit.clear())
    drafts = [
        user("m1", "other"),
        user("m2"),
        user("theirs"),
        user("new"),
        user("new", "other"),
        NewMessage("user", "no id"),
    ]
    added = carried_out(story, lambda commit: commit.add(drafts))

    assert ["other", "hello", "hello", "hello", "other", "no id"] == [message.data for message in added]
    assert len({message.id for message in story.chat().messages}) == 8
    assert all(message.id.startswith(f"{own}:u") for message, own in zip(added, ["m1", "m2", "theirs"], strict=False))
    assert added[3].id == "new"


def test_the_data_of_a_renamed_message_stay_as_they_came() -> None:
    story = Story().chain("m1")
    added = carried_out(story, lambda commit: commit.add([user("m1", {"id": "m1", "role": "user", "parts": []})]))
    assert added[0].id != "m1"
    assert added[0].data["id"] == "m1"


def test_models_that_reuse_an_id_lose_nothing() -> None:
    """Only what the branch ends with is a repetition; the same words under the same id, said again later, are not."""
    story = Story().chain("q1")
    for drafts, count in (
        ([user("fake", "Yes.")], 1),
        ([user("fake", "Yes.")], 0),  # the call is repeated
        ([user("fake", "Yes."), user("q2"), user("fake", "Yes.")], 2),  # and goes on
        ([user("q2"), user("fake", "Yes.")], 0),
        ([user("fake", "No.")], 1),
        ([user("fake", "Yes.")], 1),
    ):
        assert count == len(carried_out(story, adding(drafts)))
    assert ["hello", "Yes.", "hello", "Yes.", "No.", "Yes."] == [message.data for message in story.chat().messages]


def test_adding_to_a_branch() -> None:
    story = Story().chain("m1")
    carried_out(story, lambda commit: commit.create_branch("m1", name="other", activate=False))
    carried_out(story, lambda commit: commit.add([user("m2")]), branch="other")

    assert (["m1"], ["m1", "m2"], "main") == (shown(story, "main"), shown(story, "other"), active(story))
    with pytest.raises(BranchNotFoundError):
        decided(story.chat(), lambda commit: commit.add([user("m3")]), branch="none")
    with pytest.raises(BranchNotFoundError):
        decided(Story().chat(), lambda commit: commit.add([user("m3")]), branch="none")


def test_replacing_begins_a_branch_where_something_differs() -> None:
    story = Story().chain("m1", "m2", "m3")
    name = carried_out(story, lambda commit: commit.replace("m1", [user("m2", "other"), user("m4")]))

    assert ("main-v2", "main-v2") == (name, active(story))
    assert ["m1", "m2", "m3"] == shown(story, "main")
    assert [("m1", "hello"), ("m4", "hello")] == [
        (message.id, message.data) for message in story.chat().chain(shown(story)[-1]) if message.id in {"m1", "m4"}
    ]


def test_replacing_nothing_goes_on_with_the_branch() -> None:
    story = Story().chain("m1")

    assert carried_out(story, lambda commit: commit.replace("m1", [user("m2")])) == "main"
    assert ["m1", "m2"] == shown(story)
    assert carried_out(story, lambda commit: commit.replace(None, [user("m3")], activate=False)) == "main-v2"
    assert (["m1", "m2"], ["m3"]) == (shown(story), shown(story, "main-v2"))


def test_popping_moves_the_head_back() -> None:
    """Past what does not count; hidden messages are never popped."""
    story = Story().chain("m1", "m2", "m3")
    carried_out(story, lambda commit: commit.annotate(["m3"], hidden=True))

    assert ["m2", "m1", None, None] == [
        None if message is None else message.id
        for message in (carried_out(story, lambda commit: commit.pop()) for _ in range(4))
    ]
    assert 3 == len(story.chat().messages)
    assert decided(Story().chat(), lambda commit: commit.pop()) == ([], None)


def test_popping_a_part_keeps_the_rest() -> None:
    story = Story().chain("m1")
    story.append(user("m2", "two parts"), user("m3", "skipped"))
    rests: dict[Any, list[NewMessage] | None] = {"two parts": [user("m2", "one part")], "skipped": None}
    popped = carried_out(story, lambda commit: commit.pop(lambda message: rests[message.data]))

    assert popped.id == "m2"
    assert ["hello", "one part"] == [message.data for message in story.chat().chain(shown(story)[-1])]
    assert "m2" not in shown(story)


def test_clearing_keeps_what_was_said_on_its_branch() -> None:
    story = Story().chain("m1")

    assert carried_out(story, lambda commit: commit.clear()) == "main-v2"
    assert ([], ["m1"]) == (shown(story), shown(story, "main"))
    assert decided(story.chat(), lambda commit: commit.clear()) == ([], None)
    assert decided(Story().chat(), lambda commit: commit.clear()) == ([], None)
    carried_out(story, lambda commit: commit.clear(activate=False), branch="main")
    assert ("main-v2", []) == (active(story), shown(story, "main-v3"))


@pytest.mark.parametrize(
    ("gone", "kind", "left"), [("m3", HeadMoved, ["m1", "m2"]), ("m2", MessagesAnnotated, ["m1", "m3"])]
)
def test_removing(gone: str, kind: type[Body], left: list[str]) -> None:
    """The newest one leaves the branch, others are hidden where they stand."""
    story = Story().chain("m1", "m2", "m3")

    def remove(commit: Commit) -> None:
        history = commit.history()
        assert history is not None
        standing = history.standing_at(gone)
        assert standing is not None
        commit.remove(standing)

    bodies, _ = decided(story.chat(), remove)
    story.write(bodies)

    assert [kind] == [type(body) for body in bodies]
    assert left == shown(story)
    assert {"m1", "m2", "m3"} == {message.id for message in story.chat().messages}


def test_putting_another_version_in_a_place() -> None:
    story = Story().chain("m1", "m2")

    def put(data: str) -> Change:
        def change(commit: Commit) -> None:
            history = commit.history()
            assert history is not None
            base = history.find("m1")
            assert base is not None
            commit.put(base, user("m1", data))

        return change

    for data in ("second", "second", "third"):
        carried_out(story, put(data))

    assert ["m1:3", "m2"] == shown(story)
    assert ["hello", "hello", "second", "third"] == [message.data for message in story.chat().messages]


def test_annotations_merge_metadata() -> None:
    story = Story().chain("m1")
    carried_out(story, lambda commit: commit.annotate(["m1"], metadata={"a": 1}))
    carried_out(story, lambda commit: commit.annotate(["m1"], metadata={"b": 2}, stale=True))
    added = carried_out(story, lambda commit: commit.annotate([m.id for m in commit.add([user("m2")])], hidden=True))

    said = {message.id: message.annotation for message in story.chat().messages}
    assert said["m1"] is not None
    assert ({"a": 1, "b": 2}, True) == (said["m1"].metadata, said["m1"].stale)
    assert said["m2"] is not None
    assert said["m2"].hidden
    assert added is None
    assert decided(story.chat(), lambda commit: commit.annotate(["m1"], metadata={"a": 1})) == ([], None)


def test_verbs_see_what_was_done_before_them() -> None:
    """A branch that was just made, a message that was just added, a chat that was just begun."""

    def change(commit: Commit) -> list[Any]:
        commit.begin(title="Trip")
        commit.append([user("m1"), user("m2")])
        name = commit.create_branch("m1")
        commit.append([user("m3", reply_to="m2")])
        commit.append([user("m4")])
        other = commit.create_branch(None, after="main")
        commit.activate("main")
        return [name, other, commit.head("main"), commit.head(name), commit.branch_ending_at("m4"), commit.branch]

    bodies, outcome = decided(Story().chat(), change)
    story = Story()
    story.write(bodies)

    assert ["main-v2", "main-v3", "m2", "m4", "main-v2", "main"] == outcome
    assert [
        "chat_created",
        "message_appended",
        "branch_created",
        "message_appended",
        "branch_created",
        "branch_activated",
    ] == [body.TOPIC.removeprefix("chatledger.").partition("/")[0] for body in bodies]
    assert (["m1", "m2"], ["m1", "m3", "m4"], []) == (shown(story), shown(story, "main-v2"), shown(story, "main-v3"))


def test_messages_with_parents_and_a_head_are_one_event() -> None:
    story = Story().chain("m1")

    def change(commit: Commit) -> None:
        commit.insert([user("m2", parent_id="m1"), user("m3", parent_id="m2")])
        commit.move_head("m3")

    bodies, _ = decided(story.chat(), change)
    story.write(bodies)

    assert [MessagesAppended] == [type(body) for body in bodies]
    assert ["m1", "m2", "m3"] == shown(story)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda commit: commit.append([user("m1")]), MessageConflictError),
        (lambda commit: commit.append([user("theirs")]), MessageConflictError),
        (lambda commit: commit.append([user("a"), user("a")]), MessageConflictError),
        (lambda commit: commit.append([user("a", parent_id="m1")]), InvalidValueError),
        (lambda commit: commit.append([user("a", reply_to="none")]), MessageNotFoundError),
        (lambda commit: commit.append([user("a")], branch="none"), BranchNotFoundError),
        (lambda commit: commit.create_branch("none"), MessageNotFoundError),
        (lambda commit: commit.create_branch("m1", name="main"), BranchExistsError),
        (lambda commit: commit.move_head("none"), MessageNotFoundError),
        (lambda commit: commit.activate("none"), BranchNotFoundError),
        (lambda commit: commit.delete_branch("none"), BranchNotFoundError),
    ],
)
def test_what_cannot_be_is_refused(change: Change, error: type[ChatledgerError]) -> None:
    with pytest.raises(error):
        decided(neighboured("theirs").chain("m1", "m2").chat(), change)


def test_a_chat_that_is_not_there_has_no_branches() -> None:
    for change in (
        lambda commit: commit.append([user("m1")]),
        lambda commit: commit.create_branch(None),
        lambda commit: commit.head(),
    ):
        with pytest.raises(ChatNotFoundError):
            decided(Story().chat(), change)


def remove_at(number: int) -> Change:
    def change(commit: Commit) -> str | None:
        history = commit.history()
        standing = [] if history is None else history.standing(history.chain())
        if not standing:
            return None
        commit.remove(standing[number % len(standing)])
        return standing[number % len(standing)].message.id

    return change


def replace_at(number: int, drafts: list[NewMessage]) -> Change:
    def change(commit: Commit) -> str | None:
        history = commit.history()
        if history is None:
            return None
        ids = [None, *(message.id for message in history.chain())]
        return commit.replace(ids[number % len(ids)], drafts)

    return change


def branch_at(number: int) -> Change:
    def change(commit: Commit) -> str | None:
        history = commit.history()
        chain = [] if history is None else history.chain()
        return commit.create_branch(chain[number % len(chain)].id) if chain else None

    return change


def annotate_some(number: int) -> Change:
    def change(commit: Commit) -> None:
        history = commit.history()
        ids = [] if history is None else [message.id for message in history.chain()]
        commit.annotate(ids[number:], metadata={"n": number})
        commit.annotate(ids[:number], hidden=bool(number % 2))

    return change


def put_at(number: int) -> Change:
    def change(commit: Commit) -> None:
        history = commit.history()
        chain = [] if history is None else history.chain()
        if chain:
            commit.put(chain[number % len(chain)], user("any", f"version {number}"))

    return change


small = st.integers(0, 7)
drafts = st.lists(st.builds(lambda number, data: user(f"m{number}", data), small, st.sampled_from("ab")), max_size=4)
changes = st.one_of(
    st.builds(lambda given, reused: lambda commit: commit.add(given, reused_ids=reused), drafts, st.booleans()),
    st.builds(replace_at, small, drafts),
    st.builds(lambda rest: lambda commit: commit.pop(lambda _message: rest), st.one_of(st.just([]), drafts)),
    st.just(lambda commit: commit.clear()),
    st.builds(remove_at, small),
    st.builds(branch_at, small),
    st.builds(annotate_some, small),
    st.builds(put_at, small),
)


@given(commands, commands, changes)
def test_a_decision_keeps_nothing(before: Any, after: Any, change: Change) -> None:
    """Deciding twice, on different states, gives what the second state alone gives."""
    other, state = tell(before).chat(), tell(after).chat()
    expected = decided(state, change)

    decided(other, change)
    assert expected == decided(state, change)
    assert expected == decided(state, change)


@given(commands, st.lists(changes, max_size=8))
def test_decisions_fit_the_chat_and_lose_nothing(script: Any, given_changes: list[Change]) -> None:
    """The fold takes their events, whatever the chat; no message is lost, and none is changed."""
    story = tell(script)
    for change in given_changes:
        before = {message.id: message.data for message in story.chat().messages}
        carried_out(story, change)
        after = {message.id: message.data for message in story.chat().messages}

        assert before.items() <= after.items()


@given(commands, st.lists(changes, max_size=4), st.integers(1, 5))
def test_parts_of_a_history_are_parts_of_the_whole(script: Any, given_changes: list[Change], limit: int) -> None:
    """The newest few, growing parts, pages in both directions, and single messages: the same as all, cut."""
    story = tell(script)
    for change in given_changes:
        carried_out(story, change)
    history = read_history(story.chat(), None)
    if history is None:
        return
    chain = history.chain()
    whole = history.standing(chain)

    assert for_model(story.chat(), chain) == [one.message for one in whole] == history.newest()
    assert history.newest()[-limit:] == history.newest(limit)
    grown = list(history.growing(limit))
    assert chain == grown[-1]
    assert all(part == chain[len(chain) - len(part) :] for part in grown)
    assert chain == [history.at(depth) for depth in range(len(chain))]
    assert history.at(len(chain)) is None
    for is_ascending in (True, False):
        assert (whole if is_ascending else whole[::-1]) == paged(history, limit, ascending=is_ascending)
    for depth, message in enumerate(chain):
        assert message == history.find("none", message.id)
        assert chain[: depth + 1] == history.up_to(depth).chain()


def paged(history: History, limit: int, *, ascending: bool) -> list[Any]:
    found: list[Any] = []
    while page := history.page(found[-1].base.id if found else None, limit, ascending=ascending):
        found += page
    return found


def test_branches_of_a_new_chat_have_ids_of_their_own() -> None:
    def change(commit: Commit) -> None:
        commit.add([user("m1")])
        commit.create_branch("m1")
        commit.create_branch("m1", activate=False)

    bodies, _ = decided(Story().chat(CHAT), change)
    ids = [body.branch_id for body in bodies if isinstance(body, BranchCreated | ChatCreated)]

    assert len(set(ids)) == len(ids) == 3
