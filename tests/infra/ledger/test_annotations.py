"""Annotations: what is said of messages later, and every read that shows it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contracts.store_world import together
from tests.support.ledger_world import check_chat, text
from tests.support.search_world import drop_search
from tests.support.soak import examples

import chatledger
from chatledger import Annotation, ContextEngine, InvalidValueError, Ledger, Message, NewMessage
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
    "merge_base": lambda ledger: ledger.merge_base("m2", "m3"),
    "diff": lambda ledger: ledger.diff("other", "m3").only_b[0],
    "search": lambda ledger: ledger.search("second", include_hidden=True)[0].message,
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
    assert Annotation() == ledger.annotate("c", "m1", replace_metadata=None)
    assert {} == ledger.get_annotations("c")
    message = ledger.get_message("m1")
    assert message is not None
    assert (None, False, False) == (message.annotation, message.is_stale, message.is_hidden)


def test_metadata_are_merged_or_replaced(ledger: Ledger) -> None:
    """As those of a chat are: a key with None holds None."""
    assert ledger.annotate("c", "m1", metadata={"a": {"x": 1}, "b": 2}).metadata == {"a": {"x": 1}, "b": 2}
    assert ledger.annotate("c", "m1", metadata={"a": {"y": 1}, "c": None}).metadata == {
        "a": {"y": 1},
        "b": 2,
        "c": None,
    }
    position = ledger.position
    assert ledger.annotate("c", "m1", metadata=None) == ledger.annotate("c", "m1", metadata={})
    assert position == ledger.position
    assert ledger.annotate("c", "m1", replace_metadata={"d": 4}).metadata == {"d": 4}
    assert ledger.annotate("c", "m1", replace_metadata={}) == Annotation()


def test_nobody_loses_what_others_say(tmp_path: Path) -> None:
    """Writers at the same time, each with keys of its own."""
    with chatledger.open(tmp_path, durability="fast") as ledger:
        ledger.create_chat("c", "u")
        ledger.append("c", [text("first", id="m1")])

        def say(number: int) -> None:
            for turn in range(20):
                ledger.annotate("c", "m1", metadata={f"{number} {turn}": turn})

        together(4, say)
        assert len(ledger.get_annotations("c")["m1"].metadata) == 80


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
    "both kinds of metadata": (
        lambda ledger: ledger.annotate("c", "m1", metadata={"a": 1}, replace_metadata={}),
        InvalidValueError,
    ),
    "too many keys together": (
        lambda ledger: ledger.annotate("c", "m3", metadata={f"{number}": number for number in range(600, 1200)}),
        InvalidValueError,
    ),
    "not JSON": (lambda ledger: ledger.annotate("c", "m1", metadata={"a": float("nan")}), InvalidValueError),
}


@pytest.mark.parametrize(("call", "error"), REFUSED.values(), ids=REFUSED)
def test_what_can_not_be_said(ledger: Ledger, call: Callable[[Ledger], Any], error: type[Exception]) -> None:
    ledger.annotate("c", "m3", metadata={f"{number}": number for number in range(600)})
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


# What they change

ANNOTATED: dict[str, tuple[dict[str, dict[str, Any]], list[str]]] = {
    "nothing": ({}, ["m1", "m2", "m3"]),
    "stale": ({"m2": {"stale": True, "metadata": {"a": 1}}}, ["m1", "m2", "m3"]),
    "hidden": ({"m2": {"hidden": True}}, ["m1", "m3"]),
    "replaced by one elsewhere": ({"m2": {"replaced_by": "other"}}, ["m1", "other", "m3"]),
    "replaced by one on the chain": ({"m1": {"replaced_by": "m3"}}, ["m2", "m3"]),
    "two by one": ({"m1": {"replaced_by": "other"}, "m2": {"replaced_by": "other"}}, ["other", "m3"]),
    "one after the other": ({"m2": {"replaced_by": "other"}, "other": {"replaced_by": "third"}}, ["m1", "third", "m3"]),
    "by a hidden one": ({"m2": {"replaced_by": "other"}, "other": {"hidden": True}}, ["m1", "m3"]),
    "hidden and replaced": ({"m2": {"hidden": True, "replaced_by": "other"}}, ["m1", "other", "m3"]),
    "in a circle": ({"m2": {"replaced_by": "other"}, "other": {"replaced_by": "m2"}}, ["m1", "m2", "m3"]),
    "by two in a circle": (
        {"m2": {"replaced_by": "other"}, "other": {"replaced_by": "third"}, "third": {"replaced_by": "other"}},
        ["m1", "m2", "m3"],
    ),
    "the last one": ({"m3": {"replaced_by": "other"}}, ["m1", "m2", "other"]),
}


@pytest.mark.parametrize(("said", "expected"), ANNOTATED.values(), ids=ANNOTATED)
def test_what_a_model_gets(ledger: Ledger, said: dict[str, dict[str, Any]], expected: list[str]) -> None:
    """The same by a context engine and by `get_context`, but for its trigger; what is stored is listed as ever."""
    ledger.add_messages("c", [text("third", id="third", parent_id="m1")])
    for message_id, annotation in said.items():
        ledger.annotate("c", message_id, **annotation)
    engine = ContextEngine(ledger, "c", "ada")

    def words(ids: list[str]) -> list[str]:
        return [message.text for message_id in ids if (message := ledger.get_message(message_id)) is not None]

    for messages in (engine.resolve().messages, engine.get_messages()):
        assert words(expected) == [message["parts"][0]["text"] for message in messages]
    assert ["m1", "m2", "m3"] == [message.id for message in ledger.get_messages("c")]
    ledger.append("c", [text("trigger", id="m4")])
    ledger.annotate("c", "m4", hidden=True)
    assert [*expected, "m4"] == [message.id for message in ledger.get_context("c", "m4")]


def test_searches_leave_hidden_and_replaced_messages_out(ledger: Ledger) -> None:
    """Unless asked; as of a time before they are found, and found again when that is taken back."""
    before = ledger.position
    ledger.annotate("c", "m1", hidden=True)
    ledger.annotate("c", "m2", replaced_by="other")

    def found(view: Any = ledger, **options: Any) -> list[str]:
        hits = view.search("first OR second OR third OR other", **options)
        return sorted(hit.message.id for hit in hits)

    assert (
        ["m3", "other"]
        == found()
        == found(chat_id="c")
        == found(user_id="ada", limit=2)
        == found(ledger.for_user("ada"))
    )
    assert ["m1", "m2", "m3", "other"] == found(include_hidden=True) == found(chat_id="c", include_hidden=True)
    with ledger.as_of(before) as then:
        assert ["m1", "m2", "m3", "other"] == found(then)
    ledger.annotate("c", "m1", hidden=False)
    assert ["m1", "m3", "other"] == found()


def test_searches_without_their_index_leave_them_out_too(ledger: Ledger) -> None:
    ledger.annotate("c", "m1", hidden=True)
    drop_search(ledger)

    assert [] == ledger.search("first")
    assert ["m1"] == [hit.message.id for hit in ledger.search("first", include_hidden=True)]
    assert ["m2"] == [hit.message.id for hit in ledger.search("second")]


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


rest = st.lists(st.tuples(st.integers(0, 30), st.booleans(), st.none() | st.integers(0, 30)), max_size=12)


@settings(max_examples=examples(40))
@given(st.lists(st.integers(0, 40), min_size=1, max_size=24), rest, st.integers(0, 30))
def test_one_meaning_everywhere(tree: list[int], said: list[tuple[int, bool, int | None]], at: int) -> None:
    """Contexts, engines and searches leave out the same messages; pages of each are parts of the whole; the record stays."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ada")
        ids = [f"m{number}" for number in range(len(tree))]
        parents = [None, *(ids[parent % n if parent < 20 else n - 1] for n, parent in enumerate(tree) if n)]
        drafts = [NewMessage("user", f"fox {one}", id=one, parent_id=up) for one, up in zip(ids, parents, strict=True)]
        ledger.add_messages("c", drafts)
        for target, hidden, other in said:
            new_id = None if other is None or other % len(ids) == target % len(ids) else ids[other % len(ids)]
            ledger.annotate("c", ids[target % len(ids)], hidden=hidden, replaced_by=new_id)
        notes = ledger.get_annotations("c")
        head = ids[at % len(ids)]
        ledger.move_head("c", "main", head, expected=chatledger.ANY)

        def stands_for(message_id: str) -> str:
            """The message that is there in the end."""
            way = [message_id]
            while (new := notes.get(way[-1], Annotation()).replaced_by) is not None:
                if new in way:
                    return message_id
                way.append(new)
            return way[-1]

        chain = [message.id for message in ledger.get_chain(head)]
        expected: list[str] = []
        for message_id in chain[::-1]:
            new = stands_for(message_id)
            if not notes.get(new, Annotation()).hidden and (new == message_id or new not in [*chain, *expected]):
                expected.insert(0, new)
        messages = ContextEngine(ledger, "c", "ada").resolve().messages
        assert [f"fox {one}" for one in expected] == [message["parts"][0]["text"] for message in messages]
        context = ledger.get_context("c", head)
        assert head == context[-1].id
        for last_n in range(1, len(chain) + 1):
            assert context[-last_n:] == ledger.get_context("c", head, last_n)
        assert chain == [message.id for message in ledger.get_messages("c")]

        shown = {one for one in ids if stands_for(one) == one and not notes.get(one, Annotation()).hidden}
        every = ledger.search("fox", limit=None, include_hidden=True)
        assert set(ids) == {hit.message.id for hit in every}
        found = ledger.search("fox", limit=None)
        assert [hit for hit in every if hit.message.id in shown] == found
        for limit in range(1, 4):
            assert found[limit : 2 * limit] == ledger.search("fox", limit=limit, offset=limit)
