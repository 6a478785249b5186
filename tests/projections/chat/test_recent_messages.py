"""Messages that a search found are not looked for again by the next one on the same snapshot."""

import pytest
from tests.support.search_world import generation

import chatledger
from chatledger import Ledger, NewMessage
from chatledger.projections.chat.chains import Chains
from chatledger.projections.lmdb.cache import MAX_MESSAGES, Recent, RecentMessages


@pytest.fixture
def ledger() -> Ledger:
    ledger = chatledger.open("memory:")
    ledger.create_chat("c", "ada")
    ledger.append("c", [NewMessage("user", {"parts": [{"type": "text", "text": "a quasar"}]}, id="m0")])
    ledger.append("c", [NewMessage("assistant", "another quasar", id="m1")])
    return ledger


def found(ledger: Ledger) -> list[tuple[str, str | None, str]]:
    return [(hit.message.id, hit.message.parent_id, hit.message.text) for hit in ledger.search("quasar", chat_id="c")]


def test_the_same_search_looks_for_its_messages_once(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    with ledger:
        first = found(ledger)
        assert len(first) == 2

        def refuse(*_: object) -> None:
            pytest.fail("a page was read")

        with monkeypatch.context() as patch:
            patch.setattr(Chains, "_page", refuse)
            assert first == found(ledger)


def test_what_a_caller_changes_is_not_what_the_next_one_gets(ledger: Ledger) -> None:
    with ledger:
        for _ in range(2):
            hits = ledger.search("quasar", chat_id="c")
            data = next(hit.message.data for hit in hits if hit.message.id == "m0")
            assert data == {"parts": [{"type": "text", "text": "a quasar"}]}
            data["parts"].clear()


def test_each_write_is_seen(ledger: Ledger) -> None:
    """Other messages, annotations, a chat that is deleted and made anew with other content at the same places."""
    with ledger:
        assert len(found(ledger)) == 2
        ledger.append("c", [NewMessage("user", "a third quasar", id="m2")])
        ledger.annotate("c", "m1", stale=True)
        hits = {hit.message.id: hit.message for hit in ledger.search("quasar", chat_id="c")}
        assert set(hits) == {"m0", "m1", "m2"}
        assert hits["m1"] == ledger.get_message("m1")
        assert hits["m1"].annotation is not None

        ledger.delete_chat("c")
        assert found(ledger) == []
        ledger.create_chat("c", "ada")
        ledger.append("c", [NewMessage("user", "quasar anew", id="n0")])
        assert found(ledger) == [("n0", None, "quasar anew")]


def test_another_chat_has_other_messages_at_the_same_places(ledger: Ledger) -> None:
    with ledger:
        ledger.create_chat("d", "ada")
        ledger.append("d", [NewMessage("user", "one more quasar", id="d0")])
        for _ in range(2):
            hits = ledger.search("quasar", user_id="ada")
            assert {(hit.message.chat_id, hit.message.id) for hit in hits} == {("c", "m0"), ("c", "m1"), ("d", "d0")}


def test_a_bounded_number_is_kept() -> None:
    """And no long ones; a full memory makes room for others."""
    recent = Recent()
    messages = recent.of(7)
    messages.keep((0, (0, 0)), (b"x" * 5_000, None))
    assert messages.get((0, (0, 0))) is None
    for offset in range(MAX_MESSAGES):
        assert recent.of(7) is messages
        messages.keep((0, (1, offset)), (b"x", None))
    messages.keep((0, (1, MAX_MESSAGES)), (b"x", None))
    assert messages.get((0, (1, MAX_MESSAGES - 1))) == (b"x", None)
    assert messages.get((0, (1, MAX_MESSAGES))) is None
    assert recent.of(7) is not messages


def test_each_snapshot_has_its_own() -> None:
    """Also for who still reads an older one."""
    recent = Recent()
    older = recent.of(7)
    older.keep((0, (0, 0)), (b"older", None))
    newer = recent.of(8)
    assert isinstance(newer, RecentMessages)
    assert newer.get((0, (0, 0))) is None
    assert older.get((0, (0, 0))) == (b"older", None)
    assert recent.of(7).get((0, (0, 0))) is None


def test_a_rebuild_begins_with_none(ledger: Ledger) -> None:
    with ledger:
        before = found(ledger)
        recent = generation(ledger).tables.caches.recent
        ledger.rebuild()
        assert generation(ledger).tables.caches.recent is not recent
        assert before == found(ledger)
