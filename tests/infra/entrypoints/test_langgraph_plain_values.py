"""Plain data of any shape in checkpoints: they come back, and a step costs what it changed."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.langgraph_world import open_calls
from tests.support.soak import examples

import chatledger
from chatledger.domain.versioned.content import Edited, Leaf
from chatledger.domain.versioned.events import VersionContentPut, VersionPut, VersionWritesPut
from chatledger.infra.ledger.threads import Threads
from chatledger.infra.testing.savers import Calls
from chatledger.langgraph import LedgerSaver

Change = tuple[str, int, int]

CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["edit", "insert", "remove", "append", "anew", "as before"]), st.integers(0), st.integers(0)
    ),
    min_size=1,
    max_size=6,
)


def changed(values: list[Any], change: Change, draw: random.Random) -> list[Any]:
    """Numbers, rows or texts after a change in one place."""
    what, at, kind = change
    new: Any = [draw.random(), {"row": draw.randrange(99), "of": [True, None]}, "word " * draw.randrange(40)][kind % 3]
    place = at % (len(values) + 1)
    if what == "anew":
        return [draw.random() for _ in range(4_000)]
    if what == "edit" and place < len(values):
        return [*values[:place], new, *values[place + 1 :]]
    if what == "insert":
        return [*values[:place], new, *values[place:]]
    if what == "remove":
        return [*values[:place], *values[place + 1 :]]
    return [*values, new] if what == "append" else list(values)


@given(changes=CHANGES, seed=st.integers(0, 99), is_written=st.booleans())
@settings(max_examples=examples(25), deadline=None)
def test_whatever_changes_comes_back(changes: list[Change], seed: int, is_written: bool) -> None:  # noqa: FBT001
    """From a rebuilt index, an import, a copy whose source is erased, and after earlier checkpoints were pruned."""
    draw = random.Random(seed)
    values: list[Any] = [draw.random() for _ in range(6_000)]
    with open_calls("unbound sync") as saver, chatledger.open("memory:") as other:
        ledger, states = saver.saver.ledger, dict[str, Any]()
        parent: str | None = None
        for change in changes:
            values = changed(values, change, draw)
            if is_written and parent is not None:
                saver.writes("t", parent, [("numbers", values)])
            parent = saver.put("t", {"numbers": values, "by key": dict(enumerate(values))}, parent=parent)
            states[parent] = values

        def check(calls: Calls, thread_id: str, expected: dict[str, Any]) -> None:
            for checkpoint_id, numbers in expected.items():
                found = calls.at(thread_id, checkpoint_id).checkpoint["channel_values"]
                assert found == {"numbers": numbers, "by key": dict(enumerate(numbers))}

        check(saver, "t", states)
        ledger.rebuild()
        check(saver, "t", states)
        other.import_value(ledger.export_thread("t"))
        check(Calls(LedgerSaver(other), is_async=False), "t", states)
        assert other.export_thread("t") == ledger.export_thread("t")
        saver("copy_thread", "t", "copy")
        saver.put("copy", {"numbers": values, "by key": dict(enumerate(values))}, parent=parent)
        saver("delete_thread", "t")
        ledger.rebuild()
        check(saver, "copy", states)
        saver("prune", ["copy"])
        assert saver.at("copy").checkpoint["channel_values"]["numbers"] == values
        ledger.verify()


@pytest.mark.parametrize(
    "value",
    [
        [{"row": number} for number in range(53_000)],
        {f"key {number}": number for number in range(40_000)},
        {"nested": {str(number): [number] * 3 for number in range(20_000)}},
        "x" * 2_000_000,
        [float("nan"), float("inf"), 2**64, -(2**63) - 1] * 3_000,
    ],
    ids=["rows", "keys", "nested", "text", "odd numbers"],
)
def test_no_shape_is_refused(value: Any) -> None:
    with open_calls("unbound sync") as saver:
        saver.put("t", {"value": value})

        assert repr(saver.at("t").checkpoint["channel_values"]["value"]) == repr(value)


def put_bytes(ledger: chatledger.Ledger, position: int) -> int:
    """Return the bytes of content that came with the events after a position."""
    bodies = [one.body for one in ledger.history(after=position)]
    pieces = [
        piece.content
        for body in bodies
        if isinstance(body, VersionPut | VersionContentPut | VersionWritesPut)
        for piece in body.pieces
    ]
    whole = sum(len(one.data) for one in pieces if isinstance(one, Leaf))
    return whole + sum(len(data) for one in pieces if isinstance(one, Edited) for _, _, data in one.edits)


@pytest.mark.parametrize("change", ["edit", "insert", "append"])
def test_a_step_stores_what_it_changed(change: str) -> None:
    """One number among 20,000, whichever process goes on: what stood before is read from the index."""
    draw = random.Random(1)
    values: list[Any] = [draw.random() for _ in range(20_000)]
    with chatledger.open("memory:") as ledger:
        parent: str | None = None
        for number in range(40):
            saver = Calls(LedgerSaver(ledger), is_async=False)
            values = changed(values, (change, 7_000 + 31 * number, 0), draw)
            position = ledger.last_position()
            parent = saver.put("t", {"numbers": values}, parent=parent)
            assert number == 0 or put_bytes(ledger, position) < 200

        assert saver.at("t").checkpoint["channel_values"]["numbers"] == values


@pytest.mark.parametrize("kind", [str, bytes])
def test_a_step_stores_what_it_changed_of_a_text(kind: type) -> None:
    """A channel may be a long text or bytes, in which a few characters change."""
    draw = random.Random(1)
    text = draw.randbytes(250_000).hex()
    with chatledger.open("memory:") as ledger:
        saver, parent = Calls(LedgerSaver(ledger), is_async=False), None
        for number in range(20):
            at = draw.randrange(len(text))
            text = f"{text[:at]}edited {number}{text[at + number :]}"
            value = text if kind is str else text.encode()
            position = ledger.last_position()
            parent = saver.put("t", {"text": value}, parent=parent)
            assert number == 0 or put_bytes(ledger, position) < 500
            assert saver.at("t").checkpoint["channel_values"]["text"] == value


def test_what_was_written_and_kept_is_stored_once() -> None:
    """A task's write becomes the value of its channel: the pieces are the same."""
    draw = random.Random(1)
    first = [draw.random() for _ in range(20_000)]
    second = [*first[:900], 0.5, *first[900:]]
    with open_calls("unbound sync") as saver:
        parent = saver.put("t", {"numbers": first})
        saver.writes("t", parent, [("numbers", second)])
        saver.at("t")  # what rides is stored before the thread is read
        position = saver.saver.ledger.last_position()
        saver.put("t", {"numbers": second}, parent=parent)

        assert put_bytes(saver.saver.ledger, position) == 0


def test_what_another_process_repeats_changes_nothing() -> None:
    """It cuts by the same parent, so the digests are the same."""
    draw = random.Random(1)
    first = [draw.random() for _ in range(20_000)]
    with chatledger.open("memory:") as ledger:
        parent = Calls(LedgerSaver(ledger), is_async=False).put("t", {"numbers": first})
        second = {"numbers": [0.5, *first]}
        checkpoint_id = Calls(LedgerSaver(ledger), is_async=False).put(
            "t", second, parent=parent, versions={"numbers": 2}
        )
        position = ledger.last_position()
        Calls(LedgerSaver(ledger), is_async=False).put(
            "t", second, parent=parent, id=checkpoint_id, versions={"numbers": 2}, metadata={"step": 1}
        )

        assert ledger.last_position() == position


def test_many_edits_of_one_value_are_read() -> None:
    """More than follow each other in the index, so that a leaf is stored whole in between."""
    draw = random.Random(1)
    values: list[Any] = [draw.random() for _ in range(3_000)]
    with open_calls("unbound sync") as saver:
        states: dict[str, Any] = {}
        parent: str | None = None
        for number in range(50):
            values = [*values[: 2 * number], draw.random(), *values[2 * number + 1 :]]
            parent = saver.put("t", {"numbers": values}, parent=parent)
            states[parent] = values
        for _ in range(2):
            for checkpoint_id, numbers in states.items():
                assert saver.at("t", checkpoint_id).checkpoint["channel_values"]["numbers"] == numbers
            saver.saver.ledger.rebuild()
        with Threads(saver.saver.ledger).reading("t") as thread:
            record = thread.newest("")
            assert record is not None
            assert thread.content(record.fields["numbers"].digest) is not None


@pytest.mark.parametrize("kind", ["messages", "rows among others"])
def test_messages_as_dicts_are_found_once(kind: str) -> None:
    """Each at the checkpoint that it came with, however many follow; also where a list does not look like one of messages."""
    others: list[Any] = [] if kind == "messages" else [0.5] * 3
    with open_calls("unbound sync") as saver:
        parent: str | None = None
        made: list[str] = []
        messages: list[Any] = []
        for number in range(5):
            messages = [*messages, {"role": "user", "content": f"okapi {number} " + "word " * 40, "id": str(number)}]
            parent = saver.put("t", {"messages": [*others, *messages, *others]}, parent=parent)
            made.append(parent)
        hits = saver.saver.ledger.search("okapi", thread_id="t")

        assert sorted((hit.place.version, hit.message.id) for hit in hits if hit.place) == [
            (checkpoint_id, str(number)) for number, checkpoint_id in enumerate(made)
        ]
