"""Annotations: what is said of messages later, and every read that shows it."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.ledger_world import check_chat, text
from tests.support.soak import examples

import chatledger
from chatledger import Annotation, InvalidValueError, Ledger, Message, NewMessage
from chatledger.errors import ChatNotFoundError, MessageNotFoundError, WrongChatError

Read = Callable[[Ledger], Message | None]
READS: dict[str, Read] = {
    "get_message": lambda ledger: ledger.get_message("m2"),
    "get_messages": lambda ledger: ledger.get_messages("c")[1],
    "get_messages, a page": lambda ledger: ledger.get_messages("c", limit=2)[0],
    "get_chain": lambda ledger: ledger.get_chain("m2")[1],
    "get_context": lambda ledger: ledger.get_context("c", "m2", 1)[0],
    "children": lambda ledger: ledger.children("m1")[0],
    "siblings": lambda ledger: ledger.siblings("other")[0],
    "common_ancestor": lambda ledger: ledger.common_ancestor("m2", "m3"),
    "diff": lambda ledger: ledger.diff("other", "m3").only_b[0],
    "search": lambda ledger: ledger.search("second")[0].message,
}


@pytest.fixture
def ledger() -> Any:
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ada")
        ledger.append("c", [text("first", id="m1"), text("second", id="m2"), text("third", id="m3")])
        ledger.add_messages("c", [text("other", id="other", parent_id="m1")])
        ledger.create_chat("elsewhere", "ada")
        ledger.append("elsewhere", [text("there", id="there")])
        yield ledger


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_every_read_shows_the_annotation(ledger: Ledger, read: Read) -> None:
    """NS-34: as it is now, and as of a time as it was then."""
    bare = read(ledger)
    before = ledger.position
    said = ledger.annotate("c", "m2", stale=True, metadata={"why": "edited"})
    between = ledger.position
    ledger.annotate("c", "m2", replaced_by="other")

    assert bare is not None
    assert bare.annotation is None
    assert msgspec.structs.replace(
        bare, annotation=Annotation(stale=True, metadata={"why": "edited"}, replaced_by="other")
    ) == read(ledger)
    with ledger.as_of(between) as then:
        assert msgspec.structs.replace(bare, annotation=said) == read(then)  # type: ignore[arg-type]  # it has the same methods
    with ledger.as_of(before) as then:
        assert bare == read(then)  # type: ignore[arg-type]  # as above


def test_what_is_left_out_stays(ledger: Ledger) -> None:
    ledger.annotate("c", "m1", hidden=True, metadata={"by": "ada"})
    ledger.annotate("c", "m1", stale=True, replaced_by="m3")
    assert Annotation(stale=True, replaced_by="m3", hidden=True, metadata={"by": "ada"}) == ledger.annotate("c", "m1")

    message = ledger.get_message("m1")
    assert message is not None
    assert (True, True) == (message.is_stale, message.is_hidden)
    ledger.annotate("c", "m1", stale=False, replaced_by=None, hidden=False)
    assert {"m1": Annotation(metadata={"by": "ada"})} == ledger.get_annotations("c")
    assert Annotation() == ledger.annotate("c", "m1", metadata=None)
    assert {} == ledger.get_annotations("c")
    message = ledger.get_message("m1")
    assert message is not None
    assert (None, False, False) == (message.annotation, message.is_stale, message.is_hidden)


def test_saying_it_again_writes_nothing(ledger: Ledger) -> None:
    ledger.annotate("c", "m1", stale=True, metadata={"a": 1, "b": 2})
    position = ledger.position
    ledger.annotate("c", "m1", stale=True, metadata={"b": 2, "a": 1})
    ledger.annotate("c", "m2", hidden=False, replaced_by=None)

    assert position == ledger.position


REFUSED: dict[str, tuple[Callable[[Any], Any], type[Exception]]] = {
    "no chat": (lambda ledger: ledger.annotate("none", "m1", stale=True), ChatNotFoundError),
    "no message": (lambda ledger: ledger.annotate("c", "none", stale=True), MessageNotFoundError),
    "another chat's": (lambda ledger: ledger.annotate("c", "there", stale=True), WrongChatError),
    "replaced by none": (lambda ledger: ledger.annotate("c", "m1", replaced_by="none"), MessageNotFoundError),
    "replaced by another chat's": (lambda ledger: ledger.annotate("c", "m1", replaced_by="there"), WrongChatError),
    "by itself": (lambda ledger: ledger.annotate("c", "m1", replaced_by="m1"), InvalidValueError),
    "by a number": (lambda ledger: ledger.annotate("c", "m1", replaced_by=3), InvalidValueError),
    "stale is a number": (lambda ledger: ledger.annotate("c", "m1", stale=1), InvalidValueError),
    "hidden is none": (lambda ledger: ledger.annotate("c", "m1", hidden=None), InvalidValueError),
    "metadata are a list": (lambda ledger: ledger.annotate("c", "m1", metadata=[1]), InvalidValueError),
    "not JSON": (lambda ledger: ledger.annotate("c", "m1", metadata={"a": float("nan")}), InvalidValueError),
}


@pytest.mark.parametrize(("call", "error"), REFUSED.values(), ids=REFUSED)
def test_what_can_not_be_said(ledger: Ledger, call: Callable[[Ledger], Any], error: type[Exception]) -> None:
    position = ledger.position
    with pytest.raises(error):
        call(ledger)

    assert position == ledger.position


def test_the_message_itself_never_changes(ledger: Ledger) -> None:
    """The events that hold messages do not know of annotations, and an equal message may still be appended again."""
    ledger.annotate("c", "m3", hidden=True)

    assert "m3" == ledger.append("c", [text("third", id="m3")])[0].id
    assert ["m1", "m2", "m3", "other"] == [message.id for message in ledger.export_chat("c").messages]
    appended = [recorded.to_dict()["payload"] for recorded in ledger.history("c", topics={"message_appended"})]
    assert "annotation" not in str(appended)


def test_they_go_with_the_chat(ledger: Ledger) -> None:
    ledger.annotate("c", "m1", stale=True)
    ledger.delete_chat("c")
    ledger.create_chat("c", "ada")
    ledger.append("c", [text("first", id="m1")])

    assert {} == ledger.get_annotations("c")
    message = ledger.get_message("m1")
    assert message is not None
    assert message.annotation is None


def test_context_leaves_hidden_messages_out(ledger: Ledger) -> None:
    """NS-30: the last N that may be seen, root first, with who they come from; the trigger always is the last one."""
    ledger.append(
        "c",
        [NewMessage("assistant", "fourth", id="m4", agent_id="bot"), NewMessage("user", "5", id="m5", sender_id="ada")],
    )
    ledger.annotate("c", "m3", hidden=True)
    ledger.annotate("c", "m5", hidden=True)

    def seen(last_n: int | None) -> list[str]:
        return [message.id for message in ledger.get_context("c", "m5", last_n)]

    assert [["m5"], ["m4", "m5"], ["m2", "m4", "m5"]] == [seen(number) for number in (1, 2, 3)]
    assert ["m1", "m2", "m4", "m5"] == seen(None) == seen(4) == seen(99)
    assert [] == seen(0)
    assert [(None, "bot"), ("ada", None)] == [(one.sender_id, one.agent_id) for one in ledger.get_context("c", "m5", 2)]
    for chat_id, message_id, error in (
        ("none", "m1", ChatNotFoundError),
        ("c", "none", MessageNotFoundError),
        ("c", "there", WrongChatError),
    ):
        with pytest.raises(error):
            ledger.get_context(chat_id, message_id, 1)
    with pytest.raises(InvalidValueError):
        ledger.get_context("c", "m1", -1)


# A tree with many branches and pages

trees = st.lists(st.integers(0, 200), min_size=1, max_size=120)
sayings = st.lists(st.tuples(st.integers(0, 200), st.booleans(), st.booleans()), max_size=12)


@settings(max_examples=examples(25))
@given(trees, sayings, st.integers(0, 200))
def test_chains_show_their_own_annotations(tree: list[int], said: list[tuple[int, bool, bool]], limit: int) -> None:
    """Whatever the shape of the DAG: each message of a chain has its own annotation, and a rebuilt index says the same."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ada")
        drafts = [
            NewMessage("user", n, id=f"m{n}", parent_id=None if n == 0 else f"m{parent % n if parent < 100 else n - 1}")
            for n, parent in enumerate(tree)
        ]
        ledger.add_messages("c", drafts)
        expected: dict[str, Annotation] = {}
        for target, stale, hidden in said:
            message_id = f"m{target % len(tree)}"
            annotation = ledger.annotate("c", message_id, stale=stale, hidden=hidden)
            expected[message_id] = annotation
        expected = {message_id: one for message_id, one in expected.items() if one != Annotation()}
        for _ in range(2):
            assert expected == ledger.get_annotations("c")
            for message in drafts:
                chain = ledger.get_chain(str(message.id))
                assert [expected.get(one.id) for one in chain] == [one.annotation for one in chain]
                assert chain[-limit:] == ledger.get_chain(str(message.id), limit=limit) or not limit
                assert chain[-1] == ledger.get_message(str(message.id))
            check_chat(ledger, "c")
            ledger.rebuild()
        ledger.verify()
