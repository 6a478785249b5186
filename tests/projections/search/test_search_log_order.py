"""Reading a chat for the search index, against reading its messages."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.ledger_world import internals
from tests.support.search_world import generation, messages_in_log_order
from tests.support.soak import examples

import chatledger
from chatledger import ChainIntegrityError, Ledger, NewMessage
from chatledger.domain.search.fields import search_texts
from chatledger.projections.lmdb.environment import Transaction
from chatledger.projections.lmdb.keys import Tag, chat_key
from chatledger.projections.search.log_order import FieldTexts, LogOrder, Places

scalars = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4)
json = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "text", "x"]), inner, max_size=3)
    ),
    max_leaves=5,
)
kinds = st.sampled_from(["text", "reasoning", "tool-x", "dynamic-tool", "steering-message"])
part_fields = {
    "text": st.text(max_size=5) | json,
    "toolCallId": st.text(max_size=2) | json,
    "state": st.sampled_from(["output-available", "output-error", "output-denied", "input-streaming"]) | json,
    "parts": st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": st.text(max_size=3)}), max_size=2) | json,
    "approval": st.fixed_dictionaries({"reason": st.text(max_size=3)}) | json,
} | dict.fromkeys(["input", "rawInput", "output", "errorText"], json)
parts = st.fixed_dictionaries({}, optional={"type": kinds | json, **part_fields}) | json
ui_messages = st.fixed_dictionaries(
    {"parts": st.lists(parts, max_size=3) | json},
    optional={"id": scalars, "role": scalars | st.sampled_from(["user", "assistant", "tool"])},
)
others = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant", "model"]),
        "content": st.text(max_size=5)
        | st.lists(st.fixed_dictionaries({"type": kinds, "text": st.text(max_size=3)}), max_size=2),
        "parts": st.lists(st.fixed_dictionaries({"text": st.text(max_size=3)}), max_size=2),
    }
)
"""Data that are a message of OpenAI and of Gemini, as the form says."""

forms = st.sampled_from(["ui", "openai", "google", "acme", None])
data = st.tuples(st.text(max_size=6) | json, st.none()) | st.tuples(ui_messages | others, forms)


@settings(max_examples=examples(40))
@given(st.lists(st.tuples(data, st.integers(0, 40)), min_size=1, max_size=40), st.data())
def test_what_messages_say_comes_in_the_order_of_the_log(
    drafts: list[tuple[tuple[Any, str | None], int]], drawn: st.DataObject
) -> None:
    """Of strings, UIMessages, messages of other forms, and any other data; with forks, whose pages take turns; any of them, in any pieces."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ada")
        for number, ((one, form), parent) in enumerate(drafts):
            parent_id = f"m{min(parent, number - 1)}" if number else None
            draft = NewMessage(f"r{number % 3}", one, form, id=f"m{number}", parent_id=parent_id, created_at=number - 5)
            ledger.add_messages("c", [draft])
        messages = messages_in_log_order(ledger, "c")
        first = drawn.draw(st.integers(0, len(messages) - 1))
        count = drawn.draw(st.integers(1, len(messages) - first))
        places, cuts = _places(ledger, first, count), drawn.draw(st.sets(st.integers(1, count)))
        assert (first, first + count) == (places.first, places.end)
        at = 0
        for end in sorted({*cuts, count}):
            of = messages[first + at : first + end]
            found = _said(ledger, places, at, end)
            expected = [one.name for one in of], [one.created_at for one in of], [one.text for one in of]
            assert expected == found[:3]
            assert {
                (place, field): text
                for place, one in enumerate(of)
                for field, text in search_texts(one.form, one.data, one.name).items()
                if field != "text"
            } == {
                (place, field): text
                for field, (having, texts) in found.others.items()
                for place, text in zip(having, texts, strict=True)
            }
            at = end


def test_as_many_fit_as_their_bytes_allow() -> None:
    """But one always does."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ada")
        for size in (10, 100_000, 10, 10):
            ledger.append("c", [NewMessage("user", "x" * size)])
        places = _places(ledger, 0)
        assert [1, 2, 4, 4] == [places.fitting(start, 100, 50_000) for start in range(4)]
        assert [1, 2, 3, 4] == [places.fitting(start, 1, 1 << 30) for start in range(4)]
        assert 3 == places.fitting(0, 3, 1 << 30)


def test_messages_that_are_missing_are_noticed() -> None:
    """The index is damaged then; a search index of the rest would be taken for complete."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ada")
        for number in range(3):
            ledger.append("c", [NewMessage("user", "x", id=f"m{number}")])
        live = generation(ledger)
        chat_no = _chat_no(ledger)

        def lose(txn: Transaction) -> None:
            cursor = txn.cursor(live.tables.rows)
            assert cursor.set_range(chat_key(chat_no, Tag.PAGE))
            assert cursor.next()
            cursor.delete()

        live.update(lose)
        with pytest.raises(ChainIntegrityError, match="rebuild"):
            _places(ledger, 0)
        with pytest.raises(ChainIntegrityError, match="rebuild"):
            _places(ledger, 3)


def _chat_no(ledger: Ledger) -> int:
    with internals(ledger).snapshot() as snapshot:
        chat_no: int | None = snapshot.chat("c").chat_no
        assert chat_no is not None
        return chat_no


def _places(ledger: Ledger, first: int, count: int = 1_000) -> Places:
    live, chat_no = generation(ledger), _chat_no(ledger)
    with live.reading() as txn:
        order = LogOrder(txn, live.tables.rows, chat_no, "c")
        return order.places(order.pages(), first, count)


def _said(ledger: Ledger, places: Places, start: int, end: int) -> FieldTexts:
    live, chat_no = generation(ledger), _chat_no(ledger)
    with live.reading() as txn:
        return LogOrder(txn, live.tables.rows, chat_no, "c").texts_at(places, start, end)
