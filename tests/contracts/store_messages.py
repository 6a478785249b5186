"""The contract: messages."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
from tests.contracts.store_world import Contract, World, each_raises
from tests.support.cases import case
from tests.support.ledger_world import check_chat, ids, length, text

from chatledger import HeadConflictError, InvalidValueError, Ledger, NewMessage
from chatledger.domain.log.large_data import MAX_MESSAGE_BYTES
from chatledger.errors import (
    BranchNotFoundError,
    MessageConflictError,
    MessageNotFoundError,
    ParentNotFoundError,
    PayloadTooLargeError,
    SelfParentError,
    WrongChatError,
)


class MessageContract(Contract):
    """The contract: messages."""

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
        each_raises(
            BranchNotFoundError,
            lambda: ledger.append(chat, [text("x")], branch="none"),
            lambda: ledger.get_messages(chat, branch="none"),
            match="none",
        )

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
        conflicts = each_raises(
            MessageConflictError,
            lambda: ledger.append(chat, [text("foreign", id=foreign.id)]),
            lambda: ledger.add_messages(chat, [text("foreign", id=foreign.id)]),
        )
        assert all(conflict.other_chat for conflict in conflicts)
        with pytest.raises(ParentNotFoundError) as caught:
            ledger.add_messages(chat, [text("x", parent_id=foreign.id)])
        assert caught.value.parent_id == foreign.id
        each_raises(
            WrongChatError,
            lambda: ledger.create_branch(chat, "b", foreign.id),
            lambda: ledger.fork(chat, foreign.id),
            lambda: ledger.move_head(chat, "main", foreign.id, expected=None),
            lambda: ledger.set_checkpoint(chat, "c", foreign.id),
            match="foreign",
        )
        assert length(ledger, chat) == 1
        assert ledger.get_message(foreign.id) == foreign
        check_chat(ledger, other)

    def test_batch_is_all_or_nothing(self, world: World, ledger: Ledger, chat: str) -> None:
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
        if not world.is_durable:  # it is refused before any log is asked, and takes long
            with pytest.raises(PayloadTooLargeError):
                ledger.append(chat, [good, text("x" * MAX_MESSAGE_BYTES)])

        assert ledger.get_message(f"{chat} good") is None
        assert length(ledger, chat) == 1

    def test_unknown_message(self, ledger: Ledger, name: str) -> None:
        """Questions about an unknown message have the answers that are specified, or raise `MessageNotFoundError`."""
        assert ledger.get_message(name) is None
        assert ledger.get_chain(name) == []
        assert ledger.has_children(name) is False
        assert ledger.children(name) == ledger.siblings(name) == []
        each_raises(
            MessageNotFoundError,
            lambda: ledger.common_ancestor(name, name),
            lambda: ledger.diff(name, name),
            match=name,
        )

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

    def test_data_are_any_json_value(self, ledger: Ledger, chat: str) -> None:
        """Values read back equal the values written, types and key order included."""
        values: list[Any] = [
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
        ]
        for data in values:
            (message,) = ledger.append(chat, [NewMessage("user", data)])
            with case(data):
                assert repr(message.data) == repr(data)
        assert [repr(message.data) for message in ledger.get_messages(chat)] == list(map(repr, values))
        assert all(repr(node.content) for node in ledger.graph(chat).nodes)

    def test_what_is_no_json_is_refused(self, ledger: Ledger, chat: str) -> None:
        """A value that could not be read back as it is, is refused before anything is written."""
        values: list[Any] = [{1: 2}, (1,), b"x", {1}, len, 10**4300]
        for data in values:
            attempts: list[Callable[[], object]] = [
                functools.partial(ledger.append, chat, [NewMessage("user", data)]),
                functools.partial(ledger.add_messages, chat, [NewMessage("user", [data])]),
                functools.partial(ledger.update_chat, chat, metadata={"x": data}),
                functools.partial(ledger.create_chat, f"{chat} new", "u", metadata={"x": data}),
            ]
            with case(data):
                each_raises(InvalidValueError, *attempts)
                assert length(ledger, chat) == 1
                assert ledger.get_chat(f"{chat} new") is None

    def test_what_only_python_reads_as_json_is_kept(self, ledger: Ledger, chat: str) -> None:
        """Half an emoji, integers beyond 64 bits and NaN in messages; metadata are JSON that everybody reads."""
        values: list[Any] = [
            *(float("nan"), float("-inf"), 2**64, -(2**63) - 1, 10**4299),
            *("cut \ud83d", {"\ude00": ["\ud83d"]}, ["x" * 5000, 2**70]),
        ]
        drafts = [NewMessage("user", data, id=f"{chat} {number}") for number, data in enumerate(values)]
        kept = ledger.append(chat, drafts)
        with case(chat):
            assert list(map(ascii, values)) == [ascii(message.data) for message in kept]
            assert kept == ledger.append(chat, drafts) == ledger.get_messages(chat, limit=len(values))
        for data in values:
            each_raises(InvalidValueError, functools.partial(ledger.update_chat, chat, metadata={"x": data}))

    def test_much_of_what_only_python_reads_is_kept(self, ledger: Ledger, name: str) -> None:
        """More than fits into an event, in a chat that nothing else is read of."""
        data = [2**70, "\ud83d" * 400_000]
        ledger.create_chat(name, "u")
        (message,) = ledger.append(name, [NewMessage("user", data)])
        assert [data] == [message.data] == [one.data for one in ledger.get_messages(name)]

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
