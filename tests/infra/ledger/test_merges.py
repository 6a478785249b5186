"""Merges: a message with two parents, whose chain follows the first."""

from collections.abc import Iterator
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.ledger_world import check_chat, ids, stored, text, texts
from tests.support.soak import examples

import chatledger
from chatledger import (
    ChatledgerError,
    HeadConflictError,
    InvalidValueError,
    Ledger,
    Message,
    NewMessage,
    assistant,
)
from chatledger.domain.chat.replay import ReplayedChat
from chatledger.errors import (
    BranchNotFoundError,
    ChatNotFoundError,
    MessageConflictError,
    MessageNotFoundError,
    SelfParentError,
)
from chatledger.infra.ledger.merges import preview_merge


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    """A chat whose branches `main` (q, a, m) and `idea` (q, a, i, j) part behind `a`."""
    with chatledger.open("memory:") as opened:
        opened.create_chat("c", "ada")
        opened.append("c", [text(each, id=each) for each in ("q", "a")])
        opened.create_branch("c", "idea", "a")
        opened.append("c", [text(each, id=each) for each in ("i", "j")], branch="idea")
        opened.append("c", text("m", id="m"))
        yield opened


def test_a_summary_has_two_parents(ledger: Ledger) -> None:
    summed_up: list[str] = []

    def sum_up(messages: list[Message]) -> str:
        summed_up.extend(ids(messages))
        return "The coast it is."

    merge = ledger.merge("c", "idea", summary=sum_up)

    (summary,) = merge.messages
    assert summed_up == ["i", "j"]
    assert (merge.outcome, merge.into, merge.source_head, merge.base) == ("merged", "main", "j", "a")
    assert (summary.parent_id, summary.merged_from) == ("m", ("j",))
    assert summary.text == "Summary of branch idea:\n\nThe coast it is."
    assert summary.metadata["synthetic"]
    assert ids(ledger.get_messages("c")) == ["q", "a", "m", summary.id]
    assert ids(ledger.get_messages("c", branch="idea")) == ["q", "a", "i", "j"]
    assert ledger.children("j") == []
    assert [recorded.type for recorded in ledger.history("c")][-1] == "message_appended"
    check_chat(ledger, "c")
    ledger.rebuild()
    check_chat(ledger, "c")
    assert stored(ledger, summary.id) == summary


def test_a_message_of_ones_own_sums_up(ledger: Ledger) -> None:
    merge = ledger.merge("c", "idea", summary=assistant("We stay.", id="s"))

    assert [(message.id, message.name, message.merged_from) for message in merge.messages] == [
        ("s", "assistant", ("j",))
    ]


def test_what_a_merge_would_bring(ledger: Ledger) -> None:
    """Each side after what both have, also where a part was merged already, and of an empty branch nothing."""
    before = preview_merge(ledger, "c", "idea", "main", limit=1)
    ledger.merge("c", "idea", summary="one")
    ledger.append("c", [text("k", id="k")], branch="idea")
    ledger.annotate("c", "k", hidden=True)
    again = preview_merge(ledger, "c", "idea", "main", limit=9)
    back = preview_merge(ledger, "c", "main", "idea", limit=9)
    ledger.create_branch("c", "empty", None)
    into_empty = preview_merge(ledger, "c", "idea", "empty", limit=0)

    assert before.base is not None
    assert (before.base.id, before.theirs, before.ours, ids([*before.messages])) == ("a", 2, 1, ["j"])
    assert again.base is not None
    assert (again.base.id, again.theirs, again.ours, ids([*again.messages])) == ("j", 1, 2, [])
    assert back.base is not None
    assert (back.base.id, back.theirs, back.ours, back.is_fast_forward) == ("a", 2, 1, False)
    assert (into_empty.base, into_empty.theirs, into_empty.is_fast_forward) == (None, 5, True)
    assert preview_merge(ledger, "c", "empty", "main", limit=9).source_head is None
    with pytest.raises(BranchNotFoundError):
        preview_merge(ledger, "c", "none", "main", limit=9)


def test_a_summary_may_merge_more(ledger: Ledger) -> None:
    """What it names by itself stays, behind the branch that is merged."""
    ledger.create_branch("c", "aside", "q")
    ledger.append("c", text("x", id="x"), branch="aside")
    merge = ledger.merge("c", "idea", summary=NewMessage("user", "both", merged_from=("x", "j")))

    assert merge.messages[0].merged_from == ("j", "x")
    assert ledger.merge("c", "aside", summary="again").outcome == "already_merged"


def test_merging_again_takes_what_came_since(ledger: Ledger) -> None:
    first = ledger.merge("c", "idea", summary="one")
    again = ledger.merge("c", "idea", summary="one")
    ledger.append("c", text("k", id="k"), branch="idea")
    later: list[str] = []
    third = ledger.merge("c", "idea", summary=lambda tail: later.extend(ids(tail)) or "two")  # type: ignore[func-returns-value]

    assert (again.outcome, again.messages, again.base) == ("already_merged", [], "j")
    assert later == ["k"]
    assert third.base == "j"
    assert third.messages[0].parent_id == first.messages[0].id


def test_chosen_messages_are_copied_in_the_order_asked_for(ledger: Ledger) -> None:
    ledger.append("c", NewMessage("assistant", "reply", id="r", reply_to="i", created_at=7), branch="idea")
    merge = ledger.merge("c", "idea", how="pick", pick=["i", "r"])

    first, last = merge.messages
    assert [(message.copied_from, message.data) for message in merge.messages] == [("i", "i"), ("r", "reply")]
    assert (first.merged_from, last.merged_from) == ((), ("r",))
    assert (last.reply_to, last.created_at) == (first.id, 7)
    assert texts(ledger, "c") == ["q", "a", "m", "i", "reply"]


def test_a_rebase_copies_all_that_is_shown(ledger: Ledger) -> None:
    ledger.annotate("c", "i", hidden=True)
    ledger.append("c", text("k"), branch="idea")
    merge = ledger.merge("c", "idea", how="rebase")

    assert [message.copied_from is not None for message in merge.messages] == [True, True]
    assert texts(ledger, "c") == ["q", "a", "m", "j", "k"]
    assert merge.messages[-1].merged_from == (merge.source_head,)


def test_a_rebase_of_what_only_goes_on_moves_the_head(ledger: Ledger) -> None:
    ledger.create_branch("c", "later", "a")
    merge = ledger.merge("c", "idea", "later", how="rebase")

    assert (merge.outcome, merge.messages) == ("fast_forward", [])
    assert ids(ledger.get_messages("c", branch="later")) == ["q", "a", "i", "j"]
    assert ledger.merge("c", "idea", "later", how="rebase").outcome == "already_merged"


def test_a_rebase_does_not_copy_its_own_words_back(ledger: Ledger) -> None:
    ledger.merge("c", "idea", how="rebase")
    back = ledger.merge("c", "main", "idea", how="rebase")
    again = ledger.merge("c", "idea", how="rebase")

    assert [message.data for message in back.messages] == ["m"]
    assert again.outcome == "already_merged"


def test_an_empty_branch_takes_all(ledger: Ledger) -> None:
    ledger.create_branch("c", "bare", None)
    merge = ledger.merge("c", "idea", "bare", summary=lambda tail: f"{len(tail)} messages")

    assert merge.base is None
    assert merge.messages[0].text.endswith("4 messages")
    assert merge.messages[0].parent_id is None
    assert ledger.merge_base("j", merge.messages[0].id) == stored(ledger, "j")


def test_a_base_is_found_by_way_of_merges(ledger: Ledger) -> None:
    """After a merge the branches share what was merged, which their chains do not."""
    merged = ledger.merge("c", "idea", summary="one").messages[0].id
    ledger.append("c", text("k", id="k"), branch="idea")

    assert ids([base for base in (ledger.merge_base("k", merged), ledger.merge_base(merged, "k")) if base]) == [
        "j",
        "j",
    ]
    assert ids([base for base in (ledger.common_ancestor("k", merged), ledger.merge_base("m", "k")) if base]) == [
        "a",
        "a",
    ]
    assert ledger.merge_base("k", "k") == stored(ledger, "k")
    ledger.create_branch("c", "apart", None)
    ledger.append("c", text("x", id="x"), branch="apart")
    assert ledger.merge_base("x", merged) is None


def test_a_view_of_before_knows_no_later_merge(ledger: Ledger) -> None:
    before = ledger.position
    merge = ledger.merge("c", "idea", summary="one").messages[0].id
    with ledger.as_of(before) as view:
        assert view.merge_base("j", "m") == stored(ledger, "a")
    with ledger.as_of(ledger.position) as view:
        assert view.merge_base("j", merge) == stored(ledger, "j")


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({}, InvalidValueError, "needs the summary"),
        ({"summary": "x", "how": "rebase"}, InvalidValueError, "takes neither"),
        ({"summary": "x", "how": "pick"}, InvalidValueError, "needs the ids"),
        ({"summary": " "}, InvalidValueError, "blank"),
        ({"summary": 3}, InvalidValueError, "expected a message"),
        ({"how": "squash"}, InvalidValueError, "summary, pick, rebase"),
        ({"how": "pick", "pick": "i"}, InvalidValueError, "pick"),
        ({"how": "pick", "pick": []}, InvalidValueError, "needs the ids"),
        ({"how": "pick", "pick": ["m"]}, InvalidValueError, "not among the 2"),
        ({"summary": "x", "into": "idea"}, InvalidValueError, "into itself"),
        ({"summary": "x", "into": "nowhere"}, BranchNotFoundError, "nowhere"),
        ({"summary": "x", "source": "nowhere"}, BranchNotFoundError, "nowhere"),
        ({"summary": "x", "source": "bare"}, InvalidValueError, "empty"),
        ({"summary": "x", "chat_id": "none"}, ChatNotFoundError, "none"),
        ({"summary": text("x", id="m")}, MessageConflictError, "'m'"),
    ],
)
def test_what_cannot_be_merged_changes_nothing(
    ledger: Ledger, options: dict[str, object], error: type[ChatledgerError], words: str
) -> None:
    ledger.create_branch("c", "bare", None)
    position = ledger.position
    call = {"chat_id": "c", "source": "idea", **options}

    with pytest.raises(error, match=words):
        ledger.merge(**call)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    assert ledger.position == position


def test_what_was_merged_while_it_was_summed_up_is_not_merged_twice(ledger: Ledger) -> None:
    def sum_up(_tail: list[Message]) -> str:
        ledger.create_branch("c", "half", "i")
        ledger.merge("c", "half", summary="the half")
        return "all"

    with pytest.raises(HeadConflictError, match="merge again"):
        ledger.merge("c", "idea", summary=sum_up)


def test_a_branch_that_goes_on_meanwhile_is_merged_as_it_was_read(ledger: Ledger) -> None:
    def sum_up(_tail: list[Message]) -> str:
        ledger.append("c", text("k", id="k"), branch="idea")
        ledger.append("c", text("n", id="n"))
        return "all"

    (summary,) = ledger.merge("c", "idea", summary=sum_up).messages

    assert (summary.parent_id, summary.merged_from) == ("n", ("j",))


def test_a_command_that_is_repeated_merges_once(ledger: Ledger) -> None:
    with ledger.context(command_id="merge-1"):
        first = ledger.merge("c", "idea", summary="one")
    ledger.append("c", text("k"), branch="idea")
    with ledger.context(command_id="merge-1"):
        second = ledger.merge("c", "idea", summary="one")

    assert (second.outcome, ids(second.messages)) == ("merged", ids(first.messages))


@pytest.mark.parametrize("add", ["append", "add_messages"])
def test_further_parents_are_messages_of_the_chat(ledger: Ledger, add: str) -> None:
    ledger.create_chat("other", "ada")
    ledger.append("other", text("x", id="x"))

    def write(*merged: str, message_id: str = "new") -> Message:
        draft = NewMessage("user", "y", id=message_id, parent_id="m", merged_from=merged)
        (message,) = ledger.append("c", [draft]) if add == "append" else ledger.add_messages("c", [draft])
        return message

    for unknown in ("nowhere", "x"):
        with pytest.raises(MessageNotFoundError, match=unknown):
            write(unknown)
    with pytest.raises(SelfParentError):
        write("new")
    with pytest.raises(InvalidValueError, match="twice"):
        write("i", "i")
    with pytest.raises(InvalidValueError, match="tuple"):
        ledger.append("c", NewMessage("user", "y", merged_from="i"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    write("i")
    assert stored(ledger, "new").merged_from == ("i",)
    with pytest.raises(MessageConflictError):
        write("j")
    check_chat(ledger, "c")


def test_merges_travel_with_exports_and_forks(ledger: Ledger) -> None:
    summary = ledger.merge("c", "idea", summary=assistant("we stay", id="s")).messages[0]
    chat = ledger.export_chat("c")
    with chatledger.open("memory:") as other:
        other.import_chat(chat)
        assert other.import_chat(chat).messages_added == 0
        assert stored(other, "s").merged_from == ("j",)
        assert other.merge_base("j", "s") == stored(other, "j")
        check_chat(other, "c")
    fork = ledger.fork_chat("c", summary.id)
    copy = ledger.get_messages(fork.id)[-1]
    assert (copy.text, copy.merged_from) == ("we stay", ())  # what was merged is not on the chain that was copied


def test_a_copy_is_redacted_with_its_original(ledger: Ledger) -> None:
    (copy,) = ledger.merge("c", "idea", how="pick", pick=["i"]).messages
    ledger.redact("i")

    assert stored(ledger, "i").redacted is not None
    assert stored(ledger, copy.id).redacted is not None


def test_a_deleted_chat_leaves_no_merges(ledger: Ledger) -> None:
    ledger.merge("c", "idea", summary="one")
    ledger.delete_chat("c")
    ledger.create_chat("c", "ada")
    ledger.append("c", [text("q"), text("a", id="z")])

    assert ledger.merge_base("z", "z") == stored(ledger, "z")
    check_chat(ledger, "c")


Node = tuple[int, tuple[int, ...]]
"""How far back the parent is, 0 for none, and how far back the messages are that it merges."""
shapes = st.lists(
    st.tuples(st.integers(0, 4), st.lists(st.integers(1, 8), max_size=2, unique=True).map(tuple)),
    min_size=2,
    max_size=24,
)


@given(shapes)
@settings(deadline=None, max_examples=examples(200))
def test_any_order_of_merges_is_acyclic_and_finds_its_bases(shape: list[Node]) -> None:
    """The index finds what a walk over all edges finds, also built anew, and no message comes before itself."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ada")
        drafts = [
            NewMessage(
                "user",
                number,
                id=f"m{number}",
                parent_id=f"m{number - back}" if 0 < back <= number else None,
                merged_from=tuple(f"m{number - far}" for far in merged if far <= number),
            )
            for number, (back, merged) in enumerate(shape)
        ]
        half = len(drafts) // 2
        ledger.add_messages("c", drafts[:half] or drafts)
        ledger.add_messages("c", drafts)
        replayed = check_chat(ledger, "c")
        edges = {m.id: [*m.merged_from, *([m.parent_id] if m.parent_id else [])] for m in replayed.messages}
        before = _closure(edges)
        assert not any(message_id in above for message_id, above in before.items())
        for _ in range(2):
            _compare(ledger, replayed, before)
            ledger.rebuild()


def _closure(edges: dict[str, list[str]]) -> dict[str, set[str]]:
    """All that each message comes after; parents come first in the order of the keys."""
    before: dict[str, set[str]] = {}
    for message_id, parents in edges.items():
        before[message_id] = set(parents).union(*(before[parent] for parent in parents))
    return before


def _compare(ledger: Ledger, replayed: ReplayedChat, before: dict[str, set[str]]) -> None:
    order = list(before)
    for a, b in permutations(order[-6:], 2):
        shared = (before[a] | {a}) & (before[b] | {b})
        expected = max(shared, key=order.index) if shared else None
        base = ledger.merge_base(a, b)
        assert (None if base is None else base.id) == expected == replayed.merge_base(a, b)
        on_chain = {message.id for message in replayed.get_chain(a)} & (before[b] | {b})
        assert replayed.merge_base(a, b, is_on_chain=True) == (max(on_chain, key=order.index) if on_chain else None)
