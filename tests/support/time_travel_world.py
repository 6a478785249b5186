"""The world of tests of time travel: every question there is, and random operations with the answers after each of them."""

import itertools
from collections.abc import Callable
from typing import Any, Final

from hypothesis import strategies as st

import chatledger
from chatledger import Ledger, LedgerView, NewMessage, Recorded
from chatledger.domain.chat.replay import ReplayedChat

CHATS: Final = ("riga", "oslo", "rome")
OWNERS: Final = {"riga": "ada", "oslo": "ada", "rome": "bob"}
WORDS: Final = ("plan", "train", "boat", "plan train", "boat boat plan")
QUERIES: Final = ("plan", "boat NOT train", '"plan train"', "tr*")
Reader = Ledger | LedgerView

# Everything that can be asked


def answers(reader: Reader, message_ids: list[str]) -> dict[str, Any]:
    """The answers of a ledger or a view to every question there is, ranks of searches included."""
    said: dict[str, Any] = {
        "list_chats": reader.list_chats(),
        "created": reader.list_chats(order="created"),
        "count_chats": reader.count_chats(),
        "of ada": reader.list_chats(user_id="ada"),
        "of a mood": reader.list_chats(metadata=("mood", 1)),
        "of a mood of bob": reader.list_chats(user_id="bob", metadata=("mood", True)),
        "paged": [reader.list_chats(limit=1, offset=number) for number in range(3)],
        "after": [reader.list_chats(after=chat) for chat in reader.list_chats()],
        "search": [found(reader, query) for query in QUERIES],
        "search of ada": [found(reader, query, user_id="ada") for query in QUERIES],
        "search a page": found(reader, "plan OR boat", limit=2, offset=1),
        "search a role": found(reader, "plan OR boat", roles=["assistant"]),
    }
    for chat_id in CHATS:
        said[chat_id] = answers_of_chat(reader, chat_id)
    for message_id in message_ids:
        said[message_id] = answers_of_message(reader, message_id)
    pairs = itertools.pairwise(message_ids)
    said["pairs"] = [
        [outcome(lambda a=a, b=b: reader.common_ancestor(a, b)), outcome(lambda a=a, b=b: reader.diff(a, b))]  # type: ignore[misc]  # defaults of a lambda
        for a, b in pairs
    ]
    return said


def answers_of_chat(reader: Reader, chat_id: str) -> dict[str, Any]:
    branches = reader.list_branches(chat_id)
    return {
        "get_chat": reader.get_chat(chat_id),
        "owner_of": reader.owner_of(chat_id),
        "list_branches": branches,
        "get_branch": [reader.get_branch(chat_id, name) for name in ("main", "main-v2", "main-v3")],
        "get_active_branch": reader.get_active_branch(chat_id),
        "list_checkpoints": reader.list_checkpoints(chat_id),
        "get_checkpoint": reader.get_checkpoint(chat_id, "mark"),
        "graph": reader.graph(chat_id),
        "export_chat": outcome(lambda: reader.export_chat(chat_id)),
        "get_messages": outcome(lambda: reader.get_messages(chat_id)),
        "get_page": outcome(lambda: reader.get_page(chat_id)),
        "chains": [reader.get_messages(chat_id, branch=branch.name, limit=2) for branch in branches],
        "search": [found(reader, query, chat_id=chat_id) for query in QUERIES],
        "search a branch": outcome(lambda: found(reader, "plan OR boat", chat_id=chat_id, branch="main-v2")),
        "search of bob": found(reader, "plan", chat_id=chat_id, user_id="bob"),
    }


def answers_of_message(reader: Reader, message_id: str) -> list[Any]:
    return [
        reader.get_message(message_id),
        reader.get_chain(message_id),
        reader.has_children(message_id),
        outcome(lambda: reader.children(message_id)),
        outcome(lambda: reader.siblings(message_id)),
        reader.versions(message_id),
        reader.branches_of(message_id),
    ]


def found(reader: Reader, query: str, **options: Any) -> list[Any]:
    hits = reader.search(query, **options)
    assert not hits.is_degraded
    return [(hit.message, round(hit.rank, 9), hit.snippet) for hit in hits]


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except chatledger.ChatledgerError as error:
        return type(error), str(error)


def check_fold(view: LedgerView, events: list[Recorded]) -> None:
    """The view is the fold of the first events of the log."""
    for chat_id in CHATS:
        replayed = ReplayedChat(chat_id, [recorded for recorded in events if recorded.chat_id == chat_id])
        assert replayed.chat == view.get_chat(chat_id)
        assert replayed.branches == view.list_branches(chat_id)
        assert replayed.checkpoints == view.list_checkpoints(chat_id)
        assert {message.id for message in replayed.messages} == {node.id for node in view.graph(chat_id).nodes}
        for branch in replayed.branches:
            head = branch.head_message_id
            chain = [] if head is None else replayed.get_chain(head)
            assert chain == view.get_messages(chat_id, branch=branch.name)
    assert events == list(view.history())


# Random operations

Step = tuple[str, str, int]
STEPS: Final = st.lists(
    st.tuples(
        st.sampled_from(
            ["append", "append", "append", "reply", "fork", "activate", "checkpoint", "forget", "rename", "move", "two"]
        ),
        st.sampled_from(CHATS),
        st.integers(0, 7),
    ),
    min_size=1,
    max_size=14,
)
WITH_DELETIONS: Final = st.lists(
    st.tuples(
        st.sampled_from(["append", "reply", "fork", "rename", "delete"]), st.sampled_from(CHATS), st.integers(0, 7)
    ),
    min_size=4,
    max_size=14,
)


class Walk:
    """Random operations on three chats, and what the ledger said after each of them."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.message_ids: list[str] = []
        self.deleted_at: dict[str, int] = {}

    def take(self, step: Step) -> None:
        """Do something with a chat, which is made if it is not there."""
        kind, chat_id, number = step
        ledger = self.ledger
        if ledger.get_chat(chat_id) is None:
            ledger.create_chat(chat_id, OWNERS[chat_id], title=f"{number}", metadata={"mood": number % 2 == 0})
            return
        mine = [node.id for node in ledger.graph(chat_id).nodes]
        branches = ledger.list_branches(chat_id)
        one = mine[number % len(mine)] if mine else None
        branch = branches[number % len(branches)].name
        if kind == "append" or one is None:
            self._append(chat_id, number)
        elif kind == "reply":
            ledger.add_messages(chat_id, [self._new(number, parent_id=one)])
        elif kind == "fork":
            ledger.fork(chat_id, one, activate=number % 2 == 0)
        elif kind == "activate":
            ledger.set_active_branch(chat_id, branch)
        elif kind == "checkpoint":
            ledger.set_checkpoint(chat_id, "mark", one)
        elif kind == "forget":
            ledger.delete_checkpoint(chat_id, "mark")
        elif kind == "move":
            ledger.move_head(chat_id, branch, one, expected=chatledger.ANY)
        elif kind == "rename":
            ledger.update_chat(chat_id, title=f"{number}", replace_metadata={"mood": [True, 1, 2][number % 3]})
        elif kind == "two":
            self._append(chat_id, number)
            self._append(chat_id, number + 1)
        else:
            assert kind == "delete"
            ledger.delete_chat(chat_id)
            self.deleted_at[chat_id] = ledger.position

    def _append(self, chat_id: str, number: int) -> None:
        self.ledger.append(chat_id, [self._new(number)])

    def _new(self, number: int, parent_id: str | None = None) -> NewMessage:
        message_id = f"m{len(self.message_ids)}"
        self.message_ids.append(message_id)
        name = "user" if number % 2 else "assistant"
        return NewMessage(name, WORDS[number % len(WORDS)], id=message_id, parent_id=parent_id)


def check_walk(ledger: Ledger, steps: list[Step]) -> None:
    """As of each position, the answers are those of that moment, and the fold of the first events."""
    walk = Walk(ledger)
    recorded: dict[int, Any] = {}
    views: dict[int, LedgerView] = {}
    for number, step in enumerate(steps):
        walk.take(step)
        recorded[ledger.position] = answers(ledger, walk.message_ids[:])
        if number % 3 == 0:
            views[ledger.position] = ledger.as_of(ledger.position)  # opened then, asked after everything
    events = list(ledger.history())
    for position, then in recorded.items():
        with views.get(position) or ledger.as_of(position) as view:
            known = [name for name in then if name in walk.message_ids]
            assert then == answers(view, known)
            assert position == view.position == view.get_position()
            unknown = [message_id for message_id in walk.message_ids if message_id not in known]
            assert all(view.get_message(message_id) is None for message_id in unknown)
            check_fold(view, [event for event in events if event.position <= position])
