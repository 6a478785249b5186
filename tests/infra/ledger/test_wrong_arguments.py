"""Any value in any argument of a method on chats: an error of ours, or a ledger that can still be read."""

from typing import Any

import pytest

import chatledger
from chatledger import ChatledgerError, Ledger, NewMessage

WRONG: list[Any] = [
    None, 0, -1, 1, 1.5, True, b"x", "", [], {}, {1: 2}, object(), "\0", "x" * 3000, "\ud800", float("nan"), 2**70, ("a",),
    {"a"}, [None], [[]], print,
]  # fmt: skip

ARGUMENTS: dict[str, dict[str, Any]] = {
    "create_chat": {"chat_id": "n", "user_id": "ada", "title": "t", "metadata": {}, "expires_at": 5},
    "upsert_chat": {"chat_id": "n", "user_id": "ada", "title": "t", "metadata": {}, "ttl_seconds": 5},
    "update_chat": {"chat_id": "c", "title": "t", "metadata": {}, "expires_at": 5},
    "list_chats": {"user_id": None, "metadata": None, "order": "created", "limit": 1, "offset": 0, "after": None},
    "delete_chat": {"chat_id": "c", "user_id": "bob"},
    "append": {"chat_id": "c", "messages": [], "branch": None, "expected_head": "m2", "on_existing": "skip", "chat_metadata": {}},
    "add_messages": {"chat_id": "c", "messages": []},
    "get_messages": {"chat_id": "c", "branch": "main", "limit": 1, "before": "m2"},
    "create_branch": {"chat_id": "c", "name": "n", "head_message_id": "m1", "activate": True, "created_at": 1, "id": "i"},
    "fork": {"chat_id": "c", "message_id": "m1", "activate": True, "base": "main"},
    "set_active_branch": {"chat_id": "c", "name": "side"},
    "rename_branch": {"chat_id": "c", "name": "side", "new_name": "n"},
    "delete_branch": {"chat_id": "c", "name": "side"},
    "move_head": {"chat_id": "c", "branch": "side", "message_id": "m2", "expected": "m1", "on_conflict": "raise"},
    "get_page": {"chat_id": "c", "branch": "main", "limit": 1, "before": "m2", "along": "main", "first": 0},
    "show": {"message_id": "m1"},
    "versions": {"message_id": "m1"},
    "branches_of": {"message_id": "m1"},
    "set_checkpoint": {"chat_id": "c", "name": "n", "message_id": "m1", "created_at": 1, "id": "i"},
    "annotate": {"chat_id": "c", "message_id": "m1", "stale": True, "replaced_by": "m2", "hidden": True, "metadata": {}},
    "record_run": {
        "chat_id": "c", "run_id": "n", "thread_id": "t", "assistant_id": "bot", "trigger_message_id": "m1", "references": ["m1"],
        "runtime": "python", "status": "running", "message_id": None, "answer": None, "branch": None, "checkpoint_id": None,
        "metadata": {"a": 1},
    },
    "complete_run": {"chat_id": "c", "run_id": "open", "message_id": None, "answer": None, "branch": "main", "checkpoint_id": "k", "metadata": {"a": 1}},
    "fail_run": {"chat_id": "c", "run_id": "open", "checkpoint_id": "k", "metadata": {"a": 1}},
    "suspend_run": {"chat_id": "c", "run_id": "open", "checkpoint_id": "k", "metadata": {"a": 1}},
    "update_run": {"chat_id": "c", "run_id": "open", "metadata": {"a": 1}},
    "runs": {"chat_id": "c", "thread_id": "t", "message_id": "m2", "status": "completed"},
    "get_context": {"chat_id": "c", "message_id": "m1", "last_n": 1, "max_tokens": 100},
    "plan_regeneration": {"chat_id": "c", "message_id": "m1", "max_cascade": 1},
    "approve_regeneration": {"chat_id": "c", "regeneration_id": "g", "run_ids": ["run"]},
    "repeat_run": {"chat_id": "c", "regeneration_id": "g", "repeats": "run", "run_id": "n", "status": "running"},
    "fork_chat": {"chat_id": "c", "message_id": "m1", "new_chat_id": "n", "user_id": "bob", "title": "t", "metadata": {}},
}  # fmt: skip


def filled() -> Ledger:
    """A ledger with a chat of two messages, two branches, two runs and a regeneration."""
    ledger = chatledger.open("memory:")
    ledger.create_chat("c", "ada")
    ledger.append("c", [NewMessage("user", "q", id="m1"), NewMessage("assistant", "a", id="m2")])
    ledger.create_branch("c", "side", "m1")
    ledger.record_run("c", "run", thread_id="t", assistant_id="bot", trigger_message_id="m1", message_id="m2")
    ledger.record_run("c", "open", thread_id="t", assistant_id="bot", trigger_message_id="m2")
    ledger.add_messages("c", [NewMessage("user", "edited", id="new")])
    ledger.begin_regeneration(ledger.plan_regeneration("c", "m1", 0), new_message_id="new", regeneration_id="g")
    return ledger


@pytest.mark.soak
@pytest.mark.parametrize("name", ARGUMENTS)
def test_any_value_in_any_argument(name: str) -> None:
    """It is refused and nothing is written, or what is written can be read."""
    ledger = filled()
    for argument in ARGUMENTS[name]:
        for wrong in WRONG:
            position = ledger.position
            try:
                getattr(ledger, name)(**{**ARGUMENTS[name], argument: wrong})
            except ChatledgerError:
                assert position == ledger.position, f"{name} with {argument}={wrong!r} wrote something"
            if position != ledger.position:
                ledger.verify()
                ledger.close()
                ledger = filled()
    ledger.close()
