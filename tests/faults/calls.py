"""Operations on a ledger as JSON values: drawing them, carrying them out, and finding what they should have left."""

import contextlib
import hashlib
from random import Random
from typing import Any, Final

from tests.support.agent_threads import put, tree_of

from chatledger import ANY, ContextEngine, Ledger, NewMessage, user
from chatledger.errors import ChatNotFoundError
from chatledger.infra.ledger.threads import Threads

Call = dict[str, Any]

WEIGHTS: Final[dict[str, int]] = {
    "append": 40,
    "append at head": 8,
    "append large": 2,
    "add": 4,
    "fork": 6,
    "activate": 4,
    "move": 5,
    "mark": 6,
    "unmark": 3,
    "update": 6,
    "save": 6,
    "put": 8,
    "write": 4,
    "delete": 2,
}
WRITTEN: Final = frozenset(WEIGHTS) - {"activate", "move", "mark"}
"""Calls that always write an event when they succeed, unless they say otherwise; the others write none when all is so already."""
BARE: Final = frozenset({"save"})
"""Calls that are not one command: they are known by their messages, and repeating them changes nothing."""
LARGE: Final = "x" * 600_000
"""Two of them are two events of one commit."""
OWNER: Final = "u"


def draw(rng: Random, ledger: Ledger, name: str, chats: list[str], weights: dict[str, int]) -> Call:
    """The next operation of a writer; ids begin with `name`, which no other operation has."""
    kind = rng.choices(list(weights), list(weights.values()))[0]
    chat = rng.choice(chats)
    if kind in {"put", "write"}:
        return {"kind": kind, "thread": chat, "name": name}
    known: list[str] = []
    branches: list[str] = []
    with contextlib.suppress(ChatNotFoundError):  # not made yet, or just deleted
        known = [message.id for message in ledger.get_messages(chat, limit=6)]
        branches = [branch.name for branch in ledger.list_branches(chat)] if kind == "activate" else []
    if kind == "append at head":
        head = rng.choice(known) if known and rng.random() < 0.3 else None if not known else known[-1]
        return {"kind": kind, "chat": chat, "ids": [name], "head": head}
    if kind == "append large":
        return {"kind": kind, "chat": chat, "ids": [f"{name}.0", f"{name}.1"]}
    if kind in {"append", "add", "save"} or not known:
        count = rng.choice([1, 1, 1, 2, 5])
        parent = rng.choice(known) if known else None
        plain = kind if kind in {"append", "add", "save"} else "append"
        return {"kind": plain, "chat": chat, "ids": [f"{name}.{number}" for number in range(count)], "parent": parent}
    if kind == "activate":
        return {"kind": kind, "chat": chat, "branch": rng.choice(branches or ["main"])}
    mark = f"mark {rng.randrange(3)}"
    return {"kind": kind, "chat": chat, "message": rng.choice(known), "mark": mark, "title": name}


def carry_out(ledger: Ledger, call: Call) -> Any:
    """Do it, and return what was returned, as far as the log can tell it later."""
    kind = call["kind"]
    if kind in {"put", "write"}:
        return _on_thread(Threads(ledger), call)
    if kind == "delete":
        return ledger.delete_chat(call["chat"])
    return _MESSAGES[kind](ledger, call) if "ids" in call else _POINTERS[kind](ledger, call)


def content(message_id: str) -> str:
    """The text of a message follows from its id: a wrong one is noticed wherever it turns up."""
    digest = hashlib.sha256(message_id.encode()).hexdigest()
    return f"{message_id} {digest * (1 + int(digest[:2], 16) // 16)}"


def _new(call: Call) -> list[NewMessage]:
    tail = LARGE if call["kind"] == "append large" else ""
    return [NewMessage("user", content(message_id) + tail, id=message_id) for message_id in call["ids"]]


def _append(ledger: Ledger, call: Call) -> list[str]:
    return [message.id for message in ledger.append(call["chat"], _new(call))]


def _append_at_head(ledger: Ledger, call: Call) -> list[str]:
    return [message.id for message in ledger.append(call["chat"], _new(call), expected_head=call["head"])]


def _add(ledger: Ledger, call: Call) -> list[str]:
    parents = [call["parent"], *call["ids"]]
    messages = [
        NewMessage("user", content(message_id), id=message_id, parent_id=parent)
        for parent, message_id in zip(parents, call["ids"], strict=False)
    ]
    return [message.id for message in ledger.add_messages(call["chat"], messages)]


def _save(ledger: Ledger, call: Call) -> list[str]:
    engine = ContextEngine(ledger, call["chat"], OWNER)
    engine.set(*(user(content(message_id), id=message_id) for message_id in call["ids"]))
    engine.save()
    return list(call["ids"])


def _fork(ledger: Ledger, call: Call) -> str:
    return ledger.fork(call["chat"], call["message"]).name


def _activate(ledger: Ledger, call: Call) -> str:
    return ledger.set_active_branch(call["chat"], call["branch"]).name


def _move(ledger: Ledger, call: Call) -> bool:
    return ledger.move_head(call["chat"], "main", call["message"], expected=ANY)


def _mark(ledger: Ledger, call: Call) -> str:
    return ledger.set_checkpoint(call["chat"], call["mark"], call["message"]).message_id


def _unmark(ledger: Ledger, call: Call) -> bool:
    return ledger.delete_checkpoint(call["chat"], call["mark"])


def _update(ledger: Ledger, call: Call) -> str:
    ledger.update_chat(call["chat"], title=call["title"])
    return str(call["title"])  # the answer is the chat as it is now, which another writer may have changed since


_MESSAGES: Final = {
    "append": _append,
    "append at head": _append_at_head,
    "append large": _append,
    "add": _add,
    "save": _save,
}
_POINTERS: Final = {
    "fork": _fork,
    "activate": _activate,
    "move": _move,
    "mark": _mark,
    "unmark": _unmark,
    "update": _update,
}


def _on_thread(threads: Threads, call: Call) -> str:
    thread, name = call["thread"], call["name"]
    if call["kind"] == "put":
        put(threads, thread, name, {"messages": [content(name), "shared"]})
    else:
        threads.put_writes(
            thread, "", name, task_id=name, task_path="", writes=[(0, "messages", tree_of(content(name)))]
        )
    return str(name)
