"""The contract: chats."""

from typing import Any

import pytest
from tests.contracts.store_world import Contract, anything, count_up, each_raises, metadata_of, together
from tests.support.ledger_world import check_chat, check_lists, length, text

from chatledger import ANY, InvalidValueError, Ledger
from chatledger.errors import ChatExistsError, ChatNotFoundError, OwnerMismatchError


class ChatContract(Contract):
    """The contract: chats."""

    def test_create_chat(self, ledger: Ledger, name: str) -> None:
        """A new chat has equal times and an empty, active branch `main`; it is one event."""
        made = ledger.create_chat(name, "u", title="", metadata={"b": 1, "a": [None]})

        assert made == ledger.get_chat(name)
        assert made.title == ""
        assert list(made.metadata or {}) == ["b", "a"]
        assert made.created_at == made.updated_at
        assert (made.message_count, made.branch_count) == (0, 1)
        assert [(b.name, b.head_message_id, b.is_active, b.message_count) for b in ledger.list_branches(name)] == [
            ("main", None, True, 0)
        ]
        assert length(ledger, name) == 1

    def test_create_existing_chat(self, ledger: Ledger, chat: str) -> None:
        """An id that is taken is refused, and nothing changes."""
        before = ledger.get_chat(chat)
        with pytest.raises(ChatExistsError, match=chat):
            ledger.create_chat(chat, "other", title="other")

        assert ledger.get_chat(chat) == before
        assert length(ledger, chat) == 1

    def test_upsert_chat(self, ledger: Ledger, name: str) -> None:
        """An upsert creates a chat, or returns the existing one unchanged, but to nobody else than its owner."""
        made = ledger.upsert_chat(name, "u", title="t", metadata={"a": 1})

        assert ledger.upsert_chat(name, "u", title="x") == made
        with pytest.raises(OwnerMismatchError, match=name):
            ledger.upsert_chat(name, "other")
        assert length(ledger, name) == 1

    def test_concurrent_upserts_create_one_chat(self, ledger: Ledger, name: str) -> None:
        """Of several upserts at once one creates the chat, and all return it."""
        answers = together(4, lambda number: ledger.upsert_chat(name, "u", title=f"{number}"))

        assert len({answer.title for answer in answers}) == 1
        assert length(ledger, name) == 1

    def test_unknown_chat(self, ledger: Ledger, name: str) -> None:
        """Questions about an unknown chat have the answers that are specified, or raise `ChatNotFoundError`."""
        assert ledger.get_chat(name) is None
        assert ledger.get_active_branch(name) is None
        assert ledger.get_branch(name, "main") is None
        assert ledger.list_branches(name) == []
        assert ledger.get_checkpoint(name, "c") is None
        assert ledger.list_checkpoints(name) == []
        assert list(ledger.history(name)) == []
        graph = ledger.graph(name)
        assert (graph.nodes, graph.branches, graph.checkpoints) == ([], [], [])
        assert ledger.delete_chat(name) is False
        assert ledger.delete_checkpoint(name, "c") is False
        each_raises(
            ChatNotFoundError,
            lambda: ledger.get_messages(name),
            lambda: ledger.update_chat(name, title="t"),
            lambda: ledger.append(name, [text("x")]),
            lambda: ledger.append(name, []),
            lambda: ledger.add_messages(name, [text("x")]),
            lambda: ledger.create_branch(name, "b", None),
            lambda: ledger.fork(name, "m"),
            lambda: ledger.set_active_branch(name, "main"),
            lambda: ledger.move_head(name, "main", None, expected=ANY),
            lambda: ledger.set_checkpoint(name, "c", "m"),
            match=name,
        )
        assert length(ledger, name) == 0

    def test_update_chat(self, ledger: Ledger, chat: str) -> None:
        """What is given replaces, None clears, what is absent stays, and an empty text is a title."""
        assert ledger.update_chat(chat, title="t", metadata={"a": 1, "b": 2}).title == "t"
        assert ledger.update_chat(chat, metadata={"c": 3}).metadata == {"a": 1, "b": 2, "c": 3}
        assert ledger.update_chat(chat, replace_metadata={"c": 3}).metadata == {"c": 3}
        assert ledger.update_chat(chat, title="").title == ""
        cleared = ledger.update_chat(chat, title=None)

        assert (cleared.title, cleared.metadata) == (None, {"c": 3})
        assert ledger.update_chat(chat, replace_metadata=None).metadata is None
        assert length(ledger, chat) == 7

    def test_metadata_are_merged_or_replaced(self, ledger: Ledger, chat: str) -> None:
        """None merges nothing, an empty object neither; both ways at once are a mistake."""
        ledger.update_chat(chat, metadata={"a": 1})
        assert ledger.update_chat(chat, metadata=None).metadata == {"a": 1}
        assert ledger.update_chat(chat, metadata={}).metadata == {"a": 1}
        assert ledger.update_chat(chat, replace_metadata={}).metadata == {}
        with pytest.raises(InvalidValueError, match="not both"):
            ledger.update_chat(chat, metadata={"a": 1}, replace_metadata={"b": 1})

    def test_update_that_changes_nothing(self, ledger: Ledger, chat: str) -> None:
        """An empty update, and one to the same values, write nothing and leave the time; `True` is another value than 1."""
        before = ledger.update_chat(chat, title="t", metadata={"a": 1, "b": True})
        events = length(ledger, chat)

        assert ledger.update_chat(chat) == before
        assert ledger.update_chat(chat, title="t", metadata={"a": 1, "b": True}) == before
        assert ledger.update_chat(chat, updater=lambda _: None) == before
        assert ledger.update_chat(chat, updater=lambda _: {}) == before
        assert length(ledger, chat) == events
        after = ledger.update_chat(chat, replace_metadata={"a": True, "b": True})
        assert repr(after.metadata) == repr({"a": True, "b": True})
        assert length(ledger, chat) == events + 1

    def test_updater(self, ledger: Ledger, chat: str) -> None:
        """An updater sees the present chat; only title and metadata can change, and values exclude it."""
        ledger.update_chat(chat, title="a")
        after = ledger.update_chat(chat, updater=lambda chat: {"title": f"{chat.title}b"})

        assert after.title == "ab"
        each_raises(
            InvalidValueError,
            lambda: ledger.update_chat(chat, title="x", updater=lambda _: None),
            lambda: ledger.update_chat(chat, updater=lambda _: {"user_id": "x"}),
        )
        assert ledger.get_chat(chat) == after

    def test_concurrent_updaters(self, ledger: Ledger, chat: str) -> None:
        """Updaters that run at once see each other's changes."""
        together(4, lambda _: [ledger.update_chat(chat, updater=count_up) for _ in range(5)])

        assert metadata_of(ledger, chat) == {"n": 20}

    def test_list_chats(self, ledger: Ledger, name: str) -> None:
        """Chats come newest first, ties by id; filters combine; pages tile the list."""
        for number in range(6):
            ledger.create_chat(f"{name} {number}", name, metadata={"odd": bool(number % 2)})
        ledger.append(f"{name} 2", [text("x")])
        ledger.add_messages(f"{name} 0", [text("x")])
        check_lists(ledger, name, {f"{name} {number}" for number in range(6)})
        chats = ledger.list_chats(user_id=name)
        odd = [chat for chat in chats if (chat.metadata or {})["odd"]]

        assert ledger.list_chats(user_id=name, metadata=("odd", True)) == odd
        assert ledger.list_chats(user_id=name, metadata=("odd", True), limit=2, offset=1) == odd[1:3]
        assert ledger.list_chats(user_id=name, metadata=("odd", True), after=odd[0]) == odd[1:]
        assert ledger.list_chats(user_id=name, limit=0) == []
        assert ledger.list_chats(user_id=name, offset=99) == []
        assert ledger.list_chats(user_id=name, after=chats[2].id) == chats[3:]
        assert ledger.list_chats(user_id=name.upper() + "x") == []
        assert [chat for chat in ledger.list_chats() if chat.user_id == name] == chats

    def test_list_chats_with_bad_bounds(self, ledger: Ledger, name: str) -> None:
        """Negative or odd bounds are refused, and what no list or no metadata can have."""
        each_raises(
            InvalidValueError,
            lambda: ledger.list_chats(limit=-1),
            lambda: ledger.list_chats(offset=-1),
            lambda: ledger.list_chats(limit=True),
            lambda: ledger.list_chats(limit=anything(1.5)),
            lambda: ledger.list_chats(order=anything([])),
            lambda: ledger.list_chats(order=anything("title")),
            lambda: ledger.list_chats(order="created", metadata={"k": 1}),
            lambda: ledger.list_chats(metadata=anything({"k": None})),
            lambda: ledger.list_chats(metadata={"k": 2**70}),
            lambda: ledger.list_chats(metadata={"k": float("nan")}),
            lambda: ledger.list_chats(metadata={"k": "\ud800"}),
            lambda: ledger.count_chats(metadata=("\ud800", "v")),
        )
        with pytest.raises(ChatNotFoundError):
            ledger.list_chats(after=name)

    def test_metadata_filter_compares_types_and_literal_keys(self, ledger: Ledger, name: str) -> None:
        """`True` is not `1` and not "1"; a dot in a key means nothing; an empty key is a key (PS acceptance 7)."""
        entries: list[dict[str, Any] | None] = [
            {"b": True},
            {"b": 1},
            {"a.b": "x"},
            {"b": "1"},
            {"": 0},
            {"a": {"b": "x"}},
            None,
        ]
        for number, metadata in enumerate(entries):
            ledger.create_chat(f"{name} {number}", name, metadata=metadata)

        def found(key: str, value: str | float) -> list[int]:
            chats = ledger.list_chats(user_id=name, metadata=(key, value))
            return sorted(int(chat.id.removeprefix(name)) for chat in chats)

        assert found("b", value=True) == [0]
        assert found("b", 1) == [1]
        assert found("b", 1.0) == [1]
        assert found("a.b", "x") == [2]
        assert found("b", "1") == [3]
        assert found("", 0) == [4]
        assert found("", value=False) == []
        assert found("a", "x") == []

    def test_owner_may_be_empty(self, ledger: Ledger, name: str) -> None:
        """An empty user id is a user like any other."""
        ledger.create_chat(name, "")

        assert name in [chat.id for chat in ledger.list_chats(user_id="")]
        assert {chat.user_id for chat in ledger.list_chats(user_id="")} == {""}
        assert ledger.delete_chat(name, user_id="x") is False
        assert ledger.delete_chat(name, user_id="") is True

    def test_delete_chat(self, ledger: Ledger, name: str) -> None:
        """Deletion returns True once; then nothing is left but a tombstone, and the id can be used anew."""
        other = ledger.create_chat(f"{name} other", name).id
        ledger.append(other, [text("stays", id=f"{name} kept")])
        ledger.create_chat(name, name, title="secret")
        (message,) = ledger.append(name, [text("secret", id=f"{name} m")])
        ledger.set_checkpoint(name, "c", message.id)
        ledger.create_branch(name, "b", message.id)

        assert ledger.delete_chat(name, user_id="other") is False
        assert ledger.delete_chat(name) is True
        assert ledger.delete_chat(name) is False
        assert ledger.get_chat(name) is None
        assert ledger.get_message(message.id) is None
        assert ledger.get_chain(message.id) == []
        assert ledger.has_children(message.id) is False
        assert [chat.id for chat in ledger.list_chats(user_id=name)] == [other]
        (tombstone,) = ledger.history(name)
        assert tombstone.type == "chat_deleted"
        assert (tombstone.version, tombstone.to_dict()["payload"]["message_count"]) == (5, 1)
        check_chat(ledger, other)

        ledger.create_chat(name, "next", title="anew")
        ledger.append(name, [text("anew", id=message.id)])
        assert [m.text for m in ledger.get_messages(name)] == ["anew"]
        assert [event.type for event in ledger.history(name)] == ["chat_deleted", "chat_created", "message_appended"]
        check_chat(ledger, name)

    def test_concurrent_deletions(self, ledger: Ledger, chat: str) -> None:
        """Of several deletions at once exactly one returns True (PS acceptance 5)."""
        ledger.append(chat, [text(str(number)) for number in range(50)])
        answers = together(5, lambda _: ledger.delete_chat(chat))

        assert sorted(answers) == [False, False, False, False, True]
        assert length(ledger, chat) == 1
