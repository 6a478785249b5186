"""The contract: identifiers and the log."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.contracts.store_world import ODD_IDS, Contract, World, anything, each_raises, together, try_append
from tests.support.ledger_world import check_chat, ids, length, snapshot, text

from chatledger import ANY, InvalidValueError, Ledger, NewMessage, Recorded


class LogContract(Contract):
    """The contract: identifiers and the log."""

    @pytest.mark.matrix
    @pytest.mark.parametrize("odd", ODD_IDS, ids=lambda odd: ascii(odd)[:24])
    def test_odd_ids_work_everywhere(self, ledger: Ledger, name: str, odd: str) -> None:
        """Any text of 1 to 2,048 bytes is an id of a chat, a message, a branch, a checkpoint and a user."""
        chat = odd if len(odd.encode()) > 1000 else f"{odd} {name}"
        message_id = chat[::-1]
        ledger.create_chat(chat, odd)
        ledger.append(chat, [text("x", id=message_id), text("y", parent_id=message_id)])
        if odd != "main":
            ledger.create_branch(chat, odd, message_id, activate=True)
        ledger.set_checkpoint(chat, odd, message_id)
        fork = ledger.fork(chat, message_id)
        check_chat(ledger, chat)

        assert [m.text for m in ledger.get_messages(chat, branch=odd)] == ["x"]
        assert fork.message_count == 1
        assert chat in [one.id for one in ledger.list_chats(user_id=odd)]
        assert {event.chat_id for event in ledger.feed(0, chat_id=chat, follow=False)} == {chat}
        assert ledger.delete_chat(chat, user_id=odd) is True

    @pytest.mark.parametrize(
        "bad", ["", "x" * 2049, "ж" * 1025, "a\0b", "\ud800", 5, None, b"x"], ids=lambda bad: ascii(bad)[:20]
    )
    def test_bad_ids_are_refused_by_writes(self, ledger: Ledger, chat: str, bad: Any) -> None:
        """What is no id is refused by name where it would be written; see `tests/infra/ledger/test_absent.py` for reads."""
        (message,) = ledger.append(chat, [text("x")])
        attempts: list[Callable[[], object]] = [
            lambda: ledger.upsert_chat(bad, "u"),
            lambda: ledger.update_chat(bad, title="t"),
            lambda: ledger.append(bad, []),
            lambda: ledger.append(chat, [NewMessage(bad, "x")]),
            lambda: ledger.add_messages(bad, []),
            lambda: ledger.create_branch(chat, bad, None),
            lambda: ledger.fork(chat, bad),
            lambda: ledger.set_active_branch(chat, bad),
            lambda: ledger.move_head(chat, bad, None, expected=ANY),
            lambda: ledger.set_checkpoint(chat, bad, message.id),
            lambda: ledger.set_checkpoint(chat, "c", bad),
        ]
        if bad is not None:
            attempts += [
                lambda: ledger.create_chat(bad, "u"),
                lambda: ledger.append(chat, [text("x", id=bad)]),
                lambda: ledger.add_messages(chat, [text("x", parent_id=bad)]),
                lambda: ledger.create_branch(chat, "b", bad),
                lambda: ledger.move_head(chat, "main", bad, expected=ANY),
                lambda: ledger.append(chat, [text("x")], branch=bad),
            ]
        if bad != "":
            attempts.append(lambda: ledger.create_chat(f"{chat} new", anything(bad)))
        errors = each_raises(InvalidValueError, *attempts)
        assert not any("\ud800" in str(error) for error in errors)
        assert length(ledger, chat) == 2
        assert ledger.get_chat(f"{chat} new") is None

    # The log

    def test_history(self, ledger: Ledger, chat: str) -> None:
        """Every operation is an event with a dense version, a position, a time and its author (PS-20, PS-27)."""
        with ledger.context(actor="ada", correlation_id="request 1", causation_id="cause 1"):
            a, b = ids(ledger.append(chat, [text("a"), text("b")]))
            ledger.create_branch(chat, "b", a)
        with ledger.context(actor="bob"):
            ledger.set_active_branch(chat, "b")
            ledger.move_head(chat, "b", b, expected=a)
        ledger.set_checkpoint(chat, "c", a)
        ledger.delete_checkpoint(chat, "c")
        ledger.update_chat(chat, title="t")
        events = list(ledger.history(chat))

        assert [(event.version, event.type) for event in events] == [
            (1, "chat_created"),
            (2, "message_appended"),
            (3, "branch_created"),
            (4, "branch_activated"),
            (5, "head_moved"),
            (6, "checkpoint_set"),
            (7, "checkpoint_deleted"),
            (8, "chat_updated"),
        ]
        assert [event.actor for event in events] == [None, "ada", "ada", "bob", "bob", None, None, None]
        assert [event.event.correlation_id for event in events][:4] == [None, "request 1", "request 1", None]
        assert events[1].event.causation_id == "cause 1"
        assert [event.occurred_at for event in events] == sorted(event.occurred_at for event in events)
        assert list(ledger.history(chat, after=events[2].position)) == events[3:]
        assert list(ledger.history(chat, up_to=events[2].position)) == events[:3]
        assert list(ledger.history(chat, until=datetime.fromtimestamp(0, UTC))) == []
        assert [event for event in ledger.history() if event.chat_id == chat] == events
        with pytest.raises(InvalidValueError):
            ledger.history(chat, until=datetime(2030, 1, 1))  # noqa: DTZ001 - what is under test

    def test_titles_of_the_past_are_in_the_history(self, ledger: Ledger, chat: str) -> None:
        """Each setting of a title can be read at its position (PS acceptance 11)."""
        for title in ("one", "two", "three"):
            ledger.update_chat(chat, title=title)
        changes = [
            event.to_dict()["payload"]["changes"] for event in ledger.history(chat) if event.type == "chat_updated"
        ]

        assert changes == [{"title": "one"}, {"title": "two"}, {"title": "three"}]

    def test_feed_resumes_from_any_position(self, ledger: Ledger, chat: str) -> None:
        """A feed from each position is the rest of the log."""
        start = ledger.position
        ledger.append(chat, [text(str(number)) for number in range(3)])
        for number in range(5):
            ledger.append(chat, [text(str(number))])
        events = list(ledger.feed(start, follow=False))

        assert len(events) == 6
        for number, event in enumerate(events):
            assert list(ledger.feed(event.position, follow=False)) == events[number + 1 :]
        assert list(ledger.feed(None, follow=False)) == []

    def test_feed_filters(self, ledger: Ledger, chat: str) -> None:
        """A feed of one chat, and of some types, has these only."""
        start = ledger.position
        other = ledger.create_chat(f"{chat} other", "u").id
        ledger.append(chat, [text("x")])
        ledger.append(other, [text("x")])
        ledger.create_branch(chat, "b", None)

        def feed(**filters: Any) -> list[tuple[str, str]]:
            return [(event.chat_id, event.type) for event in ledger.feed(start, follow=False, **filters)]

        assert feed(chat_id=chat) == [(chat, "message_appended"), (chat, "branch_created")]
        assert feed(topics={"message_appended"}) == [(chat, "message_appended"), (other, "message_appended")]
        assert feed(chat_id=other, topics={"chat_created", "branch_created"}) == [(other, "chat_created")]
        assert feed(topics=[]) == []
        with pytest.raises(InvalidValueError, match="no_such_topic"):
            ledger.feed(topics={"no_such_topic"})

    def test_feed_follows(self, ledger: Ledger, chat: str) -> None:
        """A waiting feed gets what others write, in order."""
        found: list[Recorded] = []
        feed = ledger.feed(None, chat_id=chat)
        reader = threading.Thread(target=lambda: found.extend(next(feed) for _ in range(10)))
        reader.start()
        for number in range(10):
            ledger.append(chat, [text(str(number))])
        reader.join(60)

        assert found == list(ledger.history(chat))[1:]

    def test_writes_are_read_at_once(self, ledger: Ledger, chat: str) -> None:
        """After a write returns, reads see it, and `position` is that of its event or beyond."""
        for number in range(20):
            (message,) = ledger.append(chat, [text(str(number))])
            assert ledger.get_messages(chat)[-1] == message
            assert ledger.position >= list(ledger.history(chat))[-1].position
        assert ledger.sync() == ledger.last_position()

    def test_rebuild_gives_the_same_answers(self, ledger: Ledger, chat: str) -> None:
        """An index built anew says what the old one said (PS acceptance 2)."""
        chain = ledger.append(chat, [text(str(number)) for number in range(10)])
        ledger.fork(chat, chain[4].id)
        ledger.append(chat, [text("x")])
        ledger.set_checkpoint(chat, "c", chain[0].id)
        progress: list[tuple[int, int]] = []
        chats = ledger.list_chats()
        before = snapshot(ledger, [one.id for one in chats])
        ledger.rebuild(progress=lambda done, total: progress.append((done, total)))

        assert ledger.list_chats() == chats
        assert snapshot(ledger, [one.id for one in chats]) == before
        assert progress[0][0] == 0
        assert progress[-1] == (ledger.position, ledger.position)

    def test_commands_happen_once(self, ledger: Ledger, chat: str) -> None:
        """A command repeated under its id is not carried out again, and has the answer it had (PS-22)."""
        with ledger.context(command_id=f"{chat} 1"):
            first = ledger.append(chat, [text("x", id=f"{chat} m")])
        ledger.append(chat, [text("y")])
        with ledger.context(command_id=f"{chat} 1"):
            again = ledger.append(chat, [text("x", id=f"{chat} m")])
        with ledger.context(command_id=f"{chat} 2"):
            branch = ledger.fork(chat, f"{chat} m")
        with ledger.context(command_id=f"{chat} 2"):
            assert ledger.fork(chat, f"{chat} m") == branch

        assert again == first
        assert length(ledger, chat) == 4

    def test_reopening_changes_nothing(self, world: World, ledger: Ledger, chat: str) -> None:
        """Another handle on the same place says the same; closing it leaves the first one open."""
        ledger.append(chat, [text("x")])
        if not world.is_durable:
            return
        with world.open() as second:
            assert second.get_messages(chat) == ledger.get_messages(chat)
            second.append(chat, [text("y")])
        assert [message.text for message in ledger.get_messages(chat)] == ["x", "y"]

    def test_threads_append_to_one_chat(self, ledger: Ledger, chat: str) -> None:
        """Messages of several threads form one chain, each once, and those of one thread in their order."""
        together(4, lambda number: [ledger.append(chat, [text(f"{number} {count}")]) for count in range(10)])
        found = [message.text for message in ledger.get_messages(chat)]

        assert sorted(found) == sorted(f"{number} {count}" for number in range(4) for count in range(10))
        for number in range(4):
            assert [one for one in found if one.startswith(f"{number} ")] == [
                f"{number} {count}" for count in range(10)
            ]

    def test_one_winner_per_head(self, ledger: Ledger, chat: str) -> None:
        """Of writers that expect the same head exactly one wins."""
        heads: list[str | None] = [None]

        def compete(number: int) -> str | None:
            return try_append(ledger, chat, f"{len(heads)} {number}", heads[-1])

        for _ in range(10):
            answers = together(3, compete)
            assert answers.count(None) == 2
            heads.append(next(answer for answer in answers if answer is not None))
        assert len(ledger.get_messages(chat)) == 10
