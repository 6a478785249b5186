"""
The contract of a ledger, wherever its log is: the operations of the requirements (PS-1), history and feed included.

A subclass gives the fixture `world`. All implementations have to pass all of it; nothing is optional.
"""

import threading
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

import pytest
from tests.infra.test_ledger_world import check_chat, check_lists, ids, length, snapshot, text

import chatledger
from chatledger import (
    ANY,
    BranchExistsError,
    BranchNotFoundError,
    ChatExistsError,
    ChatNotFoundError,
    HeadConflictError,
    InvalidValueError,
    Ledger,
    MessageConflictError,
    MessageNotFoundError,
    NewMessage,
    ParentNotFoundError,
    PayloadTooLargeError,
    Recorded,
    SelfParentError,
    WrongChatError,
)

T = TypeVar("T")

ODD_IDS = [
    "a/b.c@d#e$f*g>h:i",
    ".",
    "..",
    "*",
    ">",
    " ",
    "a b\tc\nd",
    "🦜 жук 貓",
    "A",
    "a",
    "é",
    "e\N{COMBINING ACUTE ACCENT}",
    "x" * 2048,
    "ж" * 1024,
    "%2E",
    "_",
    "-",
]


class World:
    """Where the ledgers of one contract are."""

    def __init__(self, location: str, **options: Any) -> None:
        self.location, self.options = location, options
        self.is_durable = location != "memory:"
        self.ledger = self.open()

    def open(self) -> Ledger:
        return chatledger.open(self.location, **self.options)

    def close(self) -> None:
        self.ledger.close()


class StoreContract:
    """Each test uses chats and users of its own, so that all share one ledger."""

    @pytest.fixture
    def world(self) -> World:
        raise NotImplementedError

    @pytest.fixture
    def ledger(self, world: World) -> Ledger:
        return world.ledger

    @pytest.fixture
    def name(self) -> str:
        return uuid.uuid4().hex

    @pytest.fixture
    def chat(self, ledger: Ledger, name: str) -> Iterator[str]:
        """A new chat; whatever a test does to it, all promises hold afterwards."""
        ledger.create_chat(name, f"user {name}")
        yield name
        check_chat(ledger, name)

    # Chats

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
        """An upsert creates a chat, or returns the existing one unchanged."""
        made = ledger.upsert_chat(name, "u", title="t", metadata={"a": 1})

        assert ledger.upsert_chat(name, "other", title="x") == made
        assert length(ledger, name) == 1

    def test_concurrent_upserts_create_one_chat(self, ledger: Ledger, name: str) -> None:
        """Of several upserts at once one creates the chat, and all return it."""
        answers = together(4, lambda number: ledger.upsert_chat(name, f"user {number}"))

        assert len({answer.user_id for answer in answers}) == 1
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
        for call in calls(
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
            lambda: ledger.delete_checkpoint(name, "c"),
        ):
            with pytest.raises(ChatNotFoundError, match=name):
                call()
        assert length(ledger, name) == 0

    def test_update_chat(self, ledger: Ledger, chat: str) -> None:
        """What is given replaces, None clears, what is absent stays, and an empty text is a title."""
        assert ledger.update_chat(chat, title="t", metadata={"a": 1, "b": 2}).title == "t"
        assert ledger.update_chat(chat, metadata={"c": 3}).metadata == {"c": 3}
        assert ledger.update_chat(chat, title="").title == ""
        cleared = ledger.update_chat(chat, title=None)

        assert (cleared.title, cleared.metadata) == (None, {"c": 3})
        assert ledger.update_chat(chat, metadata=None).metadata is None
        assert length(ledger, chat) == 6

    def test_update_that_changes_nothing(self, ledger: Ledger, chat: str) -> None:
        """An empty update, and one to the same values, write nothing and leave the time; `True` is another value than 1."""
        before = ledger.update_chat(chat, title="t", metadata={"a": 1, "b": True})
        events = length(ledger, chat)

        assert ledger.update_chat(chat) == before
        assert ledger.update_chat(chat, title="t", metadata={"a": 1, "b": True}) == before
        assert ledger.update_chat(chat, updater=lambda _: None) == before
        assert ledger.update_chat(chat, updater=lambda _: {}) == before
        assert length(ledger, chat) == events
        after = ledger.update_chat(chat, metadata={"a": True, "b": True})
        assert repr(after.metadata) == repr({"a": True, "b": True})
        assert length(ledger, chat) == events + 1

    def test_updater(self, ledger: Ledger, chat: str) -> None:
        """An updater sees the present chat; only title and metadata can change, and values exclude it."""
        ledger.update_chat(chat, title="a")
        after = ledger.update_chat(chat, updater=lambda chat: {"title": f"{chat.title}b"})

        assert after.title == "ab"
        for call in calls(
            lambda: ledger.update_chat(chat, title="x", updater=lambda _: None),
            lambda: ledger.update_chat(chat, updater=lambda _: {"user_id": "x"}),
        ):
            with pytest.raises(InvalidValueError):
                call()
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
        """Negative or odd bounds are refused."""
        for call in calls(
            lambda: ledger.list_chats(limit=-1),
            lambda: ledger.list_chats(offset=-1),
            lambda: ledger.list_chats(limit=True),
            lambda: ledger.list_chats(limit=anything(1.5)),
        ):
            with pytest.raises(InvalidValueError):
                call()
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

    # Messages

    def test_append(self, ledger: Ledger, chat: str) -> None:
        """Messages chain onto the head of the active branch, in one event; the chat's time follows."""
        first = ledger.append(chat, [text("a"), text("b")])
        second = ledger.append(chat, [text("c")])
        chain = ledger.get_messages(chat)

        assert chain == [*first, *second]
        assert [message.parent_id for message in chain] == [None, *ids(chain)[:-1]]
        assert [message.chat_id for message in chain] == [chat] * 3
        assert ledger.get_chain(chain[1].id) == chain[:2]
        assert [ledger.has_children(message.id) for message in chain] == [True, True, False]
        assert length(ledger, chat) == 3
        stored = ledger.get_chat(chat)
        assert stored is not None
        assert stored.message_count == 3
        assert stored.updated_at == max(event.occurred_at for event in ledger.history(chat))

    def test_append_to_another_branch(self, ledger: Ledger, chat: str) -> None:
        """A named branch moves, the active one stays."""
        (root,) = ledger.append(chat, [text("root")])
        ledger.create_branch(chat, "side", root.id)
        ledger.append(chat, [text("side")], branch="side")

        assert [m.text for m in ledger.get_messages(chat)] == ["root"]
        assert [m.text for m in ledger.get_messages(chat, branch="side")] == ["root", "side"]
        for call in calls(
            lambda: ledger.append(chat, [text("x")], branch="none"),
            lambda: ledger.get_messages(chat, branch="none"),
        ):
            with pytest.raises(BranchNotFoundError, match="none"):
                call()

    def test_append_with_expected_head(self, ledger: Ledger, chat: str) -> None:
        """A stale expectation writes nothing and tells where the branch is."""
        (root,) = ledger.append(chat, [text("root")], expected_head=None)
        ledger.append(chat, [text("next", id=f"{chat} next")], expected_head=root.id)
        for expected in (None, root.id, "unknown"):
            with pytest.raises(HeadConflictError) as caught:
                ledger.append(chat, [text("late")], expected_head=expected)
            assert (caught.value.expected, caught.value.actual) == (expected, f"{chat} next")
        assert length(ledger, chat) == 3

    def test_repeated_append(self, ledger: Ledger, chat: str) -> None:
        """Appending the same messages again returns them and writes nothing; other content is refused."""
        messages = [text("a", id=f"{chat} a"), text("b", id=f"{chat} b")]
        stored = ledger.append(chat, messages, expected_head=None)

        assert ledger.append(chat, messages, expected_head=None) == stored
        assert ledger.append(chat, messages[1:]) == stored[1:]
        for wrong in (
            [text("other", id=f"{chat} a")],
            [messages[1], messages[0]],
            [messages[0], text("c", id=f"{chat} c")],
        ):
            with pytest.raises(MessageConflictError):
                ledger.append(chat, wrong)
        assert ledger.append(chat, []) == []
        assert length(ledger, chat) == 2

    def test_add_messages(self, ledger: Ledger, chat: str) -> None:
        """Nodes with explicit parents move no head; a chat may have several roots."""
        added = ledger.add_messages(
            chat,
            [text("r", id=f"{chat} r"), text("x", id=f"{chat} x", parent_id=f"{chat} r"), text("s", id=f"{chat} s")],
        )

        assert [message.parent_id for message in added] == [None, f"{chat} r", None]
        assert ledger.get_messages(chat) == []
        assert ledger.siblings(f"{chat} r") == [added[2]]
        assert ledger.children(f"{chat} r") == [added[1]]
        assert ledger.add_messages(chat, []) == []
        assert length(ledger, chat) == 2

    def test_equal_content_is_a_no_op(self, ledger: Ledger, chat: str) -> None:
        """Data are compared as JSON: key order is ignored, 1 equals 1.0, True is not 1 (SM-6)."""
        stored = ledger.add_messages(chat, [NewMessage("user", {"a": 1, "b": True}, id=f"{chat} m", created_at=5)])
        again = NewMessage("user", {"b": True, "a": 1.0}, id=f"{chat} m", created_at=9)

        assert ledger.add_messages(chat, [again]) == stored
        for other in (
            NewMessage("user", {"a": 1, "b": 1}, id=f"{chat} m"),
            NewMessage("user", {"a": True, "b": True}, id=f"{chat} m"),
            NewMessage("assistant", {"a": 1, "b": True}, id=f"{chat} m"),
            NewMessage("user", {"a": 1, "b": True}, id=f"{chat} m", type=None),
            NewMessage("user", {"a": 1, "b": True}, id=f"{chat} m", sender_id="s"),
        ):
            with pytest.raises(MessageConflictError, match=f"{chat} m"):
                ledger.add_messages(chat, [other])
        assert ledger.get_message(f"{chat} m") == stored[0]
        assert length(ledger, chat) == 2

    def test_messages_of_other_chats(self, ledger: Ledger, chat: str) -> None:
        """An id or a parent of another chat is refused, and that chat stays as it is (SM acceptance 5)."""
        other = ledger.create_chat(f"{chat} other", "u").id
        (foreign,) = ledger.append(other, [text("foreign", id=f"{chat} foreign")])
        for call in calls(
            lambda: ledger.append(chat, [text("foreign", id=foreign.id)]),
            lambda: ledger.add_messages(chat, [text("foreign", id=foreign.id)]),
        ):
            with pytest.raises(MessageConflictError) as conflict:
                call()
            assert conflict.value.other_chat
        with pytest.raises(ParentNotFoundError) as caught:
            ledger.add_messages(chat, [text("x", parent_id=foreign.id)])
        assert caught.value.parent_id == foreign.id
        for call in calls(
            lambda: ledger.create_branch(chat, "b", foreign.id),
            lambda: ledger.fork(chat, foreign.id),
            lambda: ledger.move_head(chat, "main", foreign.id, expected=None),
            lambda: ledger.set_checkpoint(chat, "c", foreign.id),
        ):
            with pytest.raises(WrongChatError, match="foreign"):
                call()
        assert length(ledger, chat) == 1
        assert ledger.get_message(foreign.id) == foreign
        check_chat(ledger, other)

    def test_batch_is_all_or_nothing(self, ledger: Ledger, chat: str) -> None:
        """One wrong message keeps all of its call out."""
        good = text("good", id=f"{chat} good")
        with pytest.raises(ParentNotFoundError):
            ledger.add_messages(chat, [good, text("x", parent_id="unknown")])
        with pytest.raises(ParentNotFoundError):
            ledger.add_messages(chat, [text("x", parent_id=f"{chat} good"), good])
        with pytest.raises(SelfParentError):
            ledger.add_messages(chat, [good, text("x", id=f"{chat} x", parent_id=f"{chat} x")])
        with pytest.raises(MessageConflictError):
            ledger.add_messages(chat, [good, text("other", id=f"{chat} good")])
        with pytest.raises(PayloadTooLargeError):
            ledger.append(chat, [good, text("x" * 2_000_000)])

        assert ledger.get_message(f"{chat} good") is None
        assert length(ledger, chat) == 1

    def test_unknown_message(self, ledger: Ledger, name: str) -> None:
        """Questions about an unknown message have the answers that are specified, or raise `MessageNotFoundError`."""
        assert ledger.get_message(name) is None
        assert ledger.get_chain(name) == []
        assert ledger.has_children(name) is False
        for call in calls(
            lambda: ledger.children(name),
            lambda: ledger.siblings(name),
            lambda: ledger.common_ancestor(name, name),
            lambda: ledger.diff(name, name),
        ):
            with pytest.raises(MessageNotFoundError, match=name):
                call()

    def test_pages_tile_the_chain(self, ledger: Ledger, chat: str) -> None:
        """`limit` and `before` walk a chain backwards without holes and overlaps."""
        chain = ledger.append(chat, [text(str(number)) for number in range(23)])
        pages: list[str] = []
        page = ledger.get_messages(chat, limit=5)
        while page:
            pages = ids(page) + pages
            page = ledger.get_messages(chat, limit=5, before=page[0].id)

        assert pages == ids(chain)
        assert ledger.get_messages(chat, limit=0) == []
        assert ledger.get_chain(chain[9].id, limit=3) == chain[7:10]
        with pytest.raises(InvalidValueError):
            ledger.get_messages(chat, limit=-1)
        with pytest.raises(MessageNotFoundError):
            ledger.get_messages(chat, before="unknown")
        with pytest.raises(InvalidValueError):
            ledger.get_chain(chain[3].id, before=chain[9].id)

    def test_common_ancestor_and_diff(self, ledger: Ledger, chat: str) -> None:
        """Where two chains part, and what each has after that."""
        chain = ledger.append(chat, [text(str(number)) for number in range(4)])
        ledger.fork(chat, chain[1].id)
        side = ledger.append(chat, [text("x"), text("y")])
        (root,) = ledger.add_messages(chat, [text("another root")])

        assert ledger.common_ancestor(chain[3].id, side[1].id) == chain[1]
        divergence = ledger.diff(chain[3].id, side[1].id)
        assert (divergence.common, divergence.only_a, divergence.only_b) == (chain[1], chain[2:], side)
        assert ledger.common_ancestor(chain[0].id, chain[2].id) == chain[0]
        assert ledger.common_ancestor(root.id, chain[2].id) is None

    @pytest.mark.parametrize(
        "data",
        [
            None,
            "",
            0,
            True,
            1.5,
            -(2**63),
            2**64 - 1,
            [],
            {},
            {"z": 1, "a": {"": None}},
            [[1, [2.0, "x"]]],
            "\0 🦜",
            5e-324,
        ],
        ids=repr,
    )
    def test_data_are_any_json_value(self, ledger: Ledger, chat: str, data: Any) -> None:
        """Values read back equal the values written, types and key order included."""
        (message,) = ledger.append(chat, [NewMessage("user", data)])

        assert repr(message.data) == repr(data)
        assert repr(ledger.graph(chat).nodes[0].content)

    @pytest.mark.parametrize(
        "data",
        [
            float("nan"),
            float("inf"),
            2**64,
            -(2**63) - 1,
            "\ud800",
            {"\ud800": 1},
            {1: 2},
            (1,),
            b"x",
            {1},
            len,
        ],
        ids=repr,
    )
    def test_what_is_no_json_is_refused(self, ledger: Ledger, chat: str, data: Any) -> None:
        """A value that could not be read back as it is, is refused before anything is written."""
        for call in calls(
            lambda: ledger.append(chat, [NewMessage("user", data)]),
            lambda: ledger.add_messages(chat, [NewMessage("user", [data])]),
            lambda: ledger.update_chat(chat, metadata={"x": data}),
            lambda: ledger.create_chat(f"{chat} new", "u", metadata={"x": data}),
        ):
            with pytest.raises(InvalidValueError):
                call()
        assert length(ledger, chat) == 1
        assert ledger.get_chat(f"{chat} new") is None

    def test_caller_keeps_no_hand_in_stored_data(self, ledger: Ledger, chat: str) -> None:
        """What is changed after the call, or in an answer, is not changed in the ledger."""
        data: dict[str, list[int]] = {"list": [1]}
        (message,) = ledger.append(chat, [NewMessage("user", data, id=f"{chat} m")])
        data["list"].append(2)
        message.data["list"].append(3)

        stored = ledger.get_message(message.id)
        assert stored is not None
        assert stored.data == {"list": [1]}

    def test_attribution_and_times(self, ledger: Ledger, chat: str) -> None:
        """A message keeps its type, time, sender and the message it replies to; a sender is a human or an agent."""
        (first,) = ledger.append(chat, [NewMessage("user", "a", type="fragment", created_at=5, sender_id="ada")])
        (second,) = ledger.append(chat, [NewMessage("agent", "b", type=None, agent_id="bot", reply_to=first.id)])

        assert (first.type, first.created_at, first.sender_id) == ("fragment", 5, "ada")
        assert (second.type, second.agent_id, second.reply_to) == (None, "bot", first.id)
        with pytest.raises(InvalidValueError):
            ledger.append(chat, [NewMessage("user", "x", sender_id="a", agent_id="b")])
        with pytest.raises(MessageNotFoundError):
            ledger.append(chat, [NewMessage("user", "x", reply_to="unknown")])

    @pytest.mark.timeout(40)
    @pytest.mark.parametrize("sizes", [[1_000_000], [600_000, 600_000], [300_000] * 10], ids=str)
    def test_large_messages(self, ledger: Ledger, chat: str, sizes: list[int]) -> None:
        """Messages up to the limit of an event, and commits of several events, are stored and read whole."""
        ledger.append(chat, [text(str(number) * size) for number, size in enumerate(sizes)])
        found = [message.text for message in ledger.get_messages(chat)]

        assert found == [str(number) * size for number, size in enumerate(sizes)]

    # Branches

    def test_create_branch(self, ledger: Ledger, chat: str) -> None:
        """A branch points at a message or at nothing, and becomes active if asked, in one event."""
        chain = ledger.append(chat, [text("a"), text("b")])
        made = ledger.create_branch(chat, "b", chain[0].id, created_at=7)
        active = ledger.create_branch(chat, "c", None, activate=True)

        assert made == ledger.get_branch(chat, "b")
        assert (made.head_message_id, made.is_active, made.message_count, made.created_at) == (chain[0].id, False, 1, 7)
        assert active == ledger.get_active_branch(chat)
        assert ledger.get_messages(chat) == []
        assert ledger.list_branches(chat)[0].name == "b"
        assert length(ledger, chat) == 4
        with pytest.raises(BranchExistsError, match="'b'"):
            ledger.create_branch(chat, "b", None)
        with pytest.raises(MessageNotFoundError, match="unknown"):
            ledger.create_branch(chat, "d", "unknown")
        assert ledger.create_branch(chat, "B", None).name == "B"

    def test_fork_names(self, ledger: Ledger, chat: str) -> None:
        """Automatic names count the branches named after the active one, and step over those that are taken."""
        (root,) = ledger.append(chat, [text("root")])
        names = [ledger.fork(chat, root.id, activate=False).name for _ in range(2)]
        ledger.create_branch(chat, "main-v5", None)

        assert names == ["main-v2", "main-v3"]
        assert ledger.fork(chat, root.id).name == "main-v6"
        assert ledger.fork(chat, root.id).name == "main-v6-v2"
        with pytest.raises(MessageNotFoundError):
            ledger.fork(chat, "unknown")

    def test_set_active_branch(self, ledger: Ledger, chat: str) -> None:
        """Exactly one branch is active; an unknown one changes nothing; the active one again writes nothing."""
        ledger.create_branch(chat, "b", None)

        assert ledger.set_active_branch(chat, "b").is_active
        assert ledger.set_active_branch(chat, "b").name == "b"
        with pytest.raises(BranchNotFoundError, match="unknown"):
            ledger.set_active_branch(chat, "unknown")
        assert [branch.name for branch in ledger.list_branches(chat) if branch.is_active] == ["b"]
        assert length(ledger, chat) == 3

    def test_move_head(self, ledger: Ledger, chat: str) -> None:
        """A head moves by compare-and-swap, or unconditionally when asked."""
        a, b = ids(ledger.append(chat, [text("a"), text("b")]))

        assert ledger.move_head(chat, "main", a, expected=b) is True
        assert ledger.move_head(chat, "main", b, expected=b, on_conflict="return") is False
        with pytest.raises(HeadConflictError) as caught:
            ledger.move_head(chat, "main", b, expected=None)
        assert (caught.value.expected, caught.value.actual) == (None, a)
        assert ledger.move_head(chat, "main", None, expected=ANY) is True
        assert ledger.move_head(chat, "main", None, expected=None) is True
        assert ledger.get_messages(chat) == []
        assert ledger.move_head(chat, "main", b, expected=None) is True
        with pytest.raises(MessageNotFoundError):
            ledger.move_head(chat, "main", "unknown", expected=ANY)
        with pytest.raises(BranchNotFoundError):
            ledger.move_head(chat, "none", a, expected=ANY)
        with pytest.raises(InvalidValueError):
            ledger.move_head(chat, "main", a, expected=ANY, on_conflict=anything("x"))
        assert length(ledger, chat) == 5

    # Checkpoints

    def test_checkpoints(self, ledger: Ledger, chat: str) -> None:
        """Setting again keeps the id; deleting leaves the messages; the history has each setting (SM acceptance 11)."""
        a, b = ids(ledger.append(chat, [text("a"), text("b")]))
        first = ledger.set_checkpoint(chat, "c", a, created_at=1)
        second = ledger.set_checkpoint(chat, "c", b, created_at=2)
        ledger.set_checkpoint(chat, "b", a, created_at=2)

        assert first.id == second.id
        assert second == ledger.get_checkpoint(chat, "c")
        assert [checkpoint.name for checkpoint in ledger.list_checkpoints(chat)] == ["b", "c"]
        assert ledger.delete_checkpoint(chat, "c") is True
        assert ledger.delete_checkpoint(chat, "c") is False
        assert ledger.get_checkpoint(chat, "c") is None
        assert len(ledger.get_messages(chat)) == 2
        settings = [
            event.to_dict()["payload"]["message_id"]
            for event in ledger.history(chat)
            if event.type == "checkpoint_set" and event.to_dict()["payload"]["name"] == "c"
        ]
        assert settings == [a, b]
        with pytest.raises(MessageNotFoundError):
            ledger.set_checkpoint(chat, "d", "unknown")

    # Graph

    def test_graph(self, ledger: Ledger, chat: str) -> None:
        """All messages by time, with previews of at most 50 characters; branches and checkpoints."""
        ledger.append(chat, [NewMessage("user", "x" * 51, id=f"{chat} 1", created_at=9)])
        ledger.append(chat, [NewMessage("tool", None, id=f"{chat} 2", created_at=3)])
        ledger.set_checkpoint(chat, "c", f"{chat} 1")
        graph = ledger.graph(chat)

        assert [(node.id, node.parent_id, node.role, node.content) for node in graph.nodes] == [
            (f"{chat} 2", f"{chat} 1", "tool", "null"),
            (f"{chat} 1", None, "user", "x" * 50 + "..."),
        ]
        assert [(b.name, b.head_message_id, b.is_active) for b in graph.branches] == [("main", f"{chat} 2", True)]
        assert [(c.name, c.message_id) for c in graph.checkpoints] == [("c", f"{chat} 1")]

    # Identifiers

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
    def test_bad_ids_are_refused_everywhere(self, ledger: Ledger, chat: str, bad: Any) -> None:
        """What is no id is refused by name, before anything is written."""
        (message,) = ledger.append(chat, [text("x")])
        attempts: list[Callable[[], object]] = [
            lambda: ledger.create_chat(bad, "u"),
            lambda: ledger.upsert_chat(bad, "u"),
            lambda: ledger.get_chat(bad),
            lambda: ledger.update_chat(bad, title="t"),
            lambda: ledger.delete_chat(bad),
            lambda: ledger.append(bad, []),
            lambda: ledger.append(chat, [NewMessage(bad, "x")]),
            lambda: ledger.add_messages(bad, []),
            lambda: ledger.get_message(bad),
            lambda: ledger.get_messages(bad),
            lambda: ledger.get_chain(bad),
            lambda: ledger.has_children(bad),
            lambda: ledger.children(bad),
            lambda: ledger.create_branch(chat, bad, None),
            lambda: ledger.fork(chat, bad),
            lambda: ledger.get_branch(chat, bad),
            lambda: ledger.set_active_branch(chat, bad),
            lambda: ledger.move_head(chat, bad, None, expected=ANY),
            lambda: ledger.set_checkpoint(chat, bad, message.id),
            lambda: ledger.set_checkpoint(chat, "c", bad),
            lambda: ledger.get_checkpoint(chat, bad),
            lambda: ledger.delete_checkpoint(chat, bad),
            lambda: ledger.graph(bad),
        ]
        if bad is not None:
            attempts += [
                lambda: ledger.append(chat, [text("x", id=bad)]),
                lambda: ledger.add_messages(chat, [text("x", parent_id=bad)]),
                lambda: ledger.create_branch(chat, "b", bad),
                lambda: ledger.move_head(chat, "main", bad, expected=ANY),
                lambda: ledger.get_messages(chat, branch=bad),
                lambda: ledger.append(chat, [text("x")], branch=bad),
                lambda: list(ledger.history(bad)),
                lambda: ledger.feed(chat_id=bad, follow=False),
            ]
        if bad not in {"", None}:
            attempts.append(lambda: ledger.list_chats(user_id=bad))
        if bad != "":
            attempts.append(lambda: ledger.create_chat(f"{chat} new", anything(bad)))
        for call in attempts:
            with pytest.raises(InvalidValueError) as caught:
                call()
            assert "\ud800" not in str(caught.value)
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
        assert list(ledger.history(chat, until=events[2].position)) == events[:3]
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


def try_append(ledger: Ledger, chat: str, content: str, head: str | None) -> str | None:
    """The id of the new head, or None when another writer was faster."""
    try:
        return ledger.append(chat, [text(content)], expected_head=head)[0].id
    except HeadConflictError:
        return None


def count_up(chat: chatledger.Chat) -> dict[str, Any]:
    return {"metadata": {"n": (chat.metadata or {}).get("n", 0) + 1}}


def metadata_of(ledger: Ledger, chat_id: str) -> dict[str, Any] | None:
    chat = ledger.get_chat(chat_id)
    return None if chat is None else chat.metadata


def calls(*them: Callable[[], object]) -> tuple[Callable[[], object], ...]:
    """These calls, one after the other."""
    return them


def anything(value: Any) -> Any:
    """What the type checkers would not let pass, because it is what a test is about."""
    return value


def together(count: int, work: Callable[[int], T]) -> list[T]:
    """The answers of several threads that begin at the same moment; the first error is raised."""
    barrier = threading.Barrier(count)
    answers: dict[int, T] = {}
    errors: list[BaseException] = []

    def run(number: int) -> None:
        barrier.wait(60)
        try:
            answers[number] = work(number)
        except BaseException as error:  # noqa: BLE001 - raised below, in the thread of the test
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "the threads did not end"
    return [answers[number] for number in range(count)]


def play(ledger: Ledger, prefix: str) -> list[dict[str, Any]]:
    """Some of everything, and what the history says of it, without what differs from run to run."""
    chat = f"{prefix} chat"
    ledger.create_chat(chat, "u", title="t", metadata={"a": 1})
    with ledger.context(actor="ada", correlation_id="r"):
        ledger.append(chat, [text(str(number), id=f"{prefix} {number}") for number in range(3)])
    ledger.fork(chat, f"{prefix} 1")
    ledger.append(chat, [NewMessage("assistant", {"parts": []}, id=f"{prefix} 9", created_at=7)])
    ledger.add_messages(chat, [text("side", id=f"{prefix} 8", parent_id=f"{prefix} 0")])
    ledger.set_checkpoint(chat, "c", f"{prefix} 8")
    ledger.set_active_branch(chat, "main")
    ledger.move_head(chat, "main", f"{prefix} 0", expected=f"{prefix} 2")
    ledger.append(chat, [text("x" * 600_000, id=f"{prefix} 10"), text("y" * 600_000, id=f"{prefix} 11")])
    ledger.update_chat(chat, title=None)
    ledger.delete_checkpoint(chat, "c")
    ledger.create_chat(f"{prefix} gone", "u")
    ledger.delete_chat(f"{prefix} gone")
    events = [event for event in ledger.feed(0, follow=False) if event.chat_id.startswith(prefix)]
    return [_plain(event, prefix) for event in events]


def _plain(event: Recorded, prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = event.to_dict()
    for name in ("position", "event_id", "occurred_at", "hash", "previous_hash"):
        del found[name]
    payload = found["payload"]
    for name in ("branch_id", "checkpoint_id", "created_at", "first_position"):
        payload.pop(name, None)
    for message in payload.get("messages", ()):
        if message["created_at"] != 7:
            del message["created_at"]
    return cast("dict[str, Any]", _replaced({**found, "rest": event.event.rest}, prefix))


def _replaced(value: Any, prefix: str) -> Any:
    if isinstance(value, str):
        return value.replace(prefix, "")
    if isinstance(value, list | tuple):
        return [_replaced(item, prefix) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _replaced(item, prefix) for key, item in cast("dict[str, Any]", value).items()}
    return value
