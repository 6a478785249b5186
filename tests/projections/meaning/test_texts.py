"""Which messages of a chat lack vectors, in chats of any shape."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.soak import examples

import chatledger
from chatledger import NewMessage
from chatledger.domain.search.embedding import role_key
from chatledger.infra.ledger.port import store_of
from chatledger.projections.meaning.texts import EmbeddedText, text_at, texts_from


def texts(ledger: Any, first: int, limit: int = 1_000) -> list[EmbeddedText]:
    with store_of(ledger).snapshot() as snapshot:
        chat_no = snapshot.chat("c").chat_no
        assert chat_no is not None
        return texts_from(snapshot.txn, snapshot.tables, chat_no, first, limit, lambda text: [text])


@given(st.lists(st.tuples(st.integers(-1, 60), st.integers(1, 12)), min_size=1, max_size=12), st.integers(0, 70))
@settings(max_examples=examples(100), deadline=None)
def test_the_last_messages_of_a_chat(story: list[tuple[int, int]], first: int) -> None:
    """In the order of the log, whatever forks there are, with their places."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ada")
        written: list[str] = []
        for parent, count in story:
            if written and parent >= 0:
                ledger.fork("c", written[parent % len(written)])
            drafts = [NewMessage("user", f"said {len(written) + number}") for number in range(count)]
            written += [message.id for message in ledger.append("c", drafts)]
        found = texts(ledger, first)
        expected = [f"said {number}" for number in range(first, len(written))]

        assert [text.pieces for text in found] == [[one] for one in expected]
        assert [text.ordinal for text in found] == list(range(first, len(written)))
        assert texts(ledger, first, 3) == found[:3]
        with store_of(ledger).snapshot() as snapshot:
            for text in found:
                place = text.segment, text.offset
                again = text_at(snapshot.txn, snapshot.tables, text.chat_no, text.ordinal, place, lambda said: [said])
                assert again == text
                assert snapshot.chat("c").chains.id_at(place) == written[text.ordinal]


def test_a_chat_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deleted chat has none, and long messages come a few at a time."""
    monkeypatch.setattr("chatledger.projections.meaning.texts._MOST_CHARS", 1_000)
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ada")
        ledger.append("c", [NewMessage("user", "x" * 600) for _ in range(5)])
        found = texts(ledger, 0)

        assert len(found) == 2
        assert found[0].role == role_key("user")
        chat_no = found[0].chat_no
        ledger.delete_chat("c")
        with store_of(ledger).snapshot() as snapshot:
            assert texts_from(snapshot.txn, snapshot.tables, chat_no, 0, 9, lambda said: [said]) == []
            assert text_at(snapshot.txn, snapshot.tables, chat_no, 0, (0, 0), lambda said: [said]) is None
