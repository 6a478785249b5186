"""Finding what an argument names, and saying what it might have meant."""

import contextlib
import os
from pathlib import Path
from typing import Final, NamedTuple

from chatledger.domain.errors import InvalidValueError, NotFoundError
from chatledger.domain.limits import sought_id
from chatledger.domain.values import Branch, Chat
from chatledger.domain.versioned.keys import item_id, parse_item_id

from ...ledger.graph.state_store import StateStore
from ...ledger.graph.values import StateInfo
from ...ledger.items.item_store import NOBODY, Item, ItemStore
from ...ledger.ledger import Ledger, UserLedger
from ...ledger.log import STATES, THREADS, kind_of
from ...ledger.thread_lists import ThreadInfo, thread_info
from ...ledger.threads import Threads
from ...ledger.view import LedgerView
from .output import count, format_time

LedgerOrView = Ledger | LedgerView
"""A ledger, or one as it stood at a moment."""

_CANDIDATES: Final = 10_000
_COMPLETED: Final = 1_000
_SUGGESTIONS: Final = 3


def require_chat(ledger: Ledger, chat_id: str) -> Chat:
    """The chat. Raises `NotFoundError`, which suggests ids that are near."""
    chat = ledger.get_chat(chat_id)
    if chat is None:
        raise unknown_chat(ledger, chat_id)
    return chat


def require_chat_then(ledger: Ledger, view: LedgerView, chat_id: str) -> Chat:
    """The chat as it was. Raises `NotFoundError`, which says when it was made if that was later."""
    chat = view.get_chat(chat_id)
    if chat is None:
        msg = f"chat {chat_id!r} was not there then; {describe_beginning(ledger, chat_id)}"
        raise NotFoundError(msg)
    return chat


def describe_beginning(ledger: Ledger, chat_id: str) -> str:
    """Since when a chat is there. Raises `NotFoundError` when it is not."""
    require_chat(ledger, chat_id)
    beginning = next(ledger.history(chat_id, topics={"chat_created"}))
    # Nobody ever saw a part of the commit that made it, so it is there since the last event of that.
    position = beginning.position + beginning.event.rest
    return f"it is since position {position}, {format_time(beginning.occurred_at)}"


def list_ids(ledger: Ledger, kind: str, *, chat_id: str | None) -> dict[str, str | None]:
    """
    Return the ids of chats with their titles, of threads, states, items or users, or the names of a chat's branches.

    Those changed last come first, and of many chats and threads only these: whoever pressed a key waits for no walk over a large
    ledger. Users, and whose items, are those of these chats.
    """
    if kind == "thread":
        return {thread.thread_id: None for thread in ledger.list_threads(limit=_COMPLETED).threads}
    if kind == "state":
        return {state.id: None for state in StateStore(ledger).list()}
    if kind == "branch":
        return {branch.name: None for branch in ledger.list_branches(chat_id or "")}
    chats = ledger.list_chats(limit=_COMPLETED)
    if kind == "chat":
        return {chat.id: chat.title for chat in chats}
    users = dict.fromkeys(chat.user_id for chat in chats)
    if kind == "user":
        return users | {member.user_id: None for member in (ledger.members(chat_id) if chat_id else [])}
    owners = (
        {ledger.user_id: ledger}
        if isinstance(ledger, UserLedger)
        else {NOBODY: ledger, **{user_id: ledger.for_user(user_id) for user_id in users}}
    )
    return {
        item_id(user_id, item.namespace, item.key): None
        for user_id, own in owners.items()
        for item in ItemStore(own).list(limit=_COMPLETED)
    }


class Others(NamedTuple):
    """Numbers of threads and states beside the chats of a ledger; false when there are none."""

    threads: int
    states: int

    def __bool__(self) -> bool:
        return bool(self.threads or self.states)

    def __str__(self) -> str:
        parts = [
            f"{count(self.threads, 'thread')} of agents ('chatledger threads')" if self.threads else "",
            count(self.states, "state of a graph", "states of graphs") if self.states else "",
        ]
        return " and ".join(filter(None, parts))


def others_of(ledger: Ledger) -> Others:
    """Count the threads of agents and the states of graphs."""
    return Others(len(Threads(ledger).thread_ids()), len(StateStore(ledger).list()))


def _near(name: str, names: list[str]) -> list[str]:
    from difflib import get_close_matches

    return get_close_matches(name, names, n=_SUGGESTIONS)


def unknown_chat(ledger: Ledger, chat_id: str) -> NotFoundError:
    """Return the error for an unknown chat: what the id is instead, or ids that are near, or what there is."""
    other = _other_kind(ledger, chat_id)
    if other is not None:
        return NotFoundError(f"{chat_id!r} is no chat: {other}")
    # Of those changed last: a hint is not worth a walk over all chats of a large ledger.
    ids = [chat.id for chat in ledger.list_chats(limit=_CANDIDATES)]
    completed = [other for other in ids if other.startswith(chat_id)]
    near = (completed or _near(chat_id, ids))[:_SUGGESTIONS]
    if near:
        hint = f"did you mean {' or '.join(map(repr, near))}?"
    elif ids:
        hint = "'chatledger chats' lists them"
    else:
        others = others_of(ledger)
        if others:
            hint = f"there are no chats here, but {others}"
        elif isinstance(ledger, UserLedger):
            hint = f"user {ledger.user_id!r} has none here"
        elif ledger.position:
            hint = "there are no chats here any more; 'chatledger log' prints the history"
        else:
            hint = "the ledger is empty, 'chatledger import FILE' fills it"
    return NotFoundError(f"no chat {chat_id!r}; {hint}")


def _other_kind(ledger: Ledger, stream_id: str) -> str | None:
    """Return a hint that an id is that of a thread or a state, of itself or of its stream; None when it is neither."""
    if sought_id(stream_id, "id") != stream_id:  # an impossible one
        return None
    kind = kind_of(stream_id)
    thread_id = stream_id.removeprefix(THREADS.prefix)
    if kind is STATES:
        return f"it is the state of a graph; 'chatledger log {stream_id}' prints its versions"
    with contextlib.suppress(InvalidValueError), Threads(ledger).reading(thread_id) as thread:
        if thread.record is not None:
            stream = THREADS.stream_of(thread_id)
            return f"it is a thread of agents; 'chatledger show --thread {thread_id}' shows it, 'chatledger log {stream}' its events"
    if kind is THREADS:
        return f"there is no thread of agents {thread_id!r}; 'chatledger threads' lists them"
    with contextlib.suppress(InvalidValueError):
        stream = STATES.stream_of(stream_id)
        if any(state.id == stream_id for state in StateStore(ledger).list()):
            return f"it is the state of a graph; 'chatledger log {stream}' prints its versions"
    return None


def require_thread(ledger: Ledger, thread_id: str) -> ThreadInfo:
    """The thread. Raises `NotFoundError`, which suggests ids that are near."""
    threads = Threads(ledger)
    with threads.reading(thread_id) as thread:
        if thread.record is not None:
            return thread_info(thread, thread.record)
    ids = threads.thread_ids()
    near = _near(thread_id, ids)
    hint = "there are none in this ledger"
    if near:
        hint = f"did you mean {' or '.join(map(repr, near))}?"
    elif ids:
        hint = "'chatledger threads' lists them"
    msg = f"no thread of agents {thread_id!r}; {hint}"
    raise NotFoundError(msg)


def require_state(ledger: Ledger, state_id: str) -> StateInfo:
    """The state of a graph. Raises `NotFoundError`, which suggests ids that are near."""
    states = StateStore(ledger).list()
    state = next((state for state in states if state.id == state_id), None)
    if state is not None:
        return state
    near = _near(state_id, [state.id for state in states])
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "'chatledger states' lists them"
    msg = f"no state of a graph {state_id!r}; {hint}"
    raise NotFoundError(msg)


def require_item(ledger: Ledger, some_id: str) -> tuple[ItemStore, Item]:
    """The item of an id, and the store that has it. Raises `NotFoundError`."""
    key = parse_item_id(some_id)
    if key is not None:
        store = ItemStore(ledger if key.user_id == NOBODY else ledger.for_user(key.user_id))
        item = store.get(key.namespace, key.key)
        if item is not None:
            return store, item
    msg = f"no item {some_id!r}; 'chatledger items --user ID' lists those of a user, with their ids"
    raise NotFoundError(msg)


def require_branch(ledger: LedgerOrView, chat_id: str, name: str) -> Branch:
    """The branch. Raises `NotFoundError`, which names those that there are."""
    branch = ledger.get_branch(chat_id, name)
    if branch is None:
        names = [branch.name for branch in ledger.list_branches(chat_id)]
        near = _near(name, names) or names[:_SUGGESTIONS]
        others = "" if len(names) <= len(near) else f" and {len(names) - len(near)} more"
        msg = f"chat {chat_id!r} has no branch {name!r}; it has {', '.join(map(repr, near))}{others}"
        raise NotFoundError(msg)
    return branch


def is_of_folder(chat: Chat) -> bool:
    """Whether a chat is a session of a coding agent in the folder where the command runs, or in one below it."""
    cwd, folder = str((chat.metadata or {}).get("cwd", "")), str(Path.cwd())
    return cwd == folder or cwd.startswith(folder.rstrip(os.sep) + os.sep)
