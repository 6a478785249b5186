"""The contract: branches, checkpoints and the graph."""

import pytest
from tests.contracts.store_world import Contract, anything
from tests.support.ledger_world import ids, length, text

from chatledger import ANY, HeadConflictError, InvalidValueError, Ledger, NewMessage
from chatledger.errors import BranchExistsError, BranchNotFoundError, MessageNotFoundError


class PointerContract(Contract):
    """The contract: branches, checkpoints and the graph."""

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
