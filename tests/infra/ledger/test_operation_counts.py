"""
Operations of LMDB in a command: their number does not grow with the chat.

Operations are counted, not time: gets, puts, deletions and moves of cursors. Some work is done in common for many messages, such
as merging the rows at the end of a chain into a page; so a command is repeated for longer than such a period, and what all of
them took is compared.
"""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Final

import hypothesis.strategies as st
import pytest
from hypothesis import Phase, given, settings
from tests.support.agent_threads import tree_of
from tests.support.operation_counting import counting

import chatledger
from chatledger import ContextEngine, Ledger, NewMessage, user
from chatledger.domain.versioned.record import PutVersion
from chatledger.infra.ledger.threads import Threads

_REPEATS: Final = 130
"""Twice the messages of a page, and some."""
_FACTOR: Final = 8
_RARE: Final = "quasar"
_SEARCH_BOUND: Final = 120
_numbers = count()
_few = settings(max_examples=2, deadline=None, phases=[Phase.generate])  # a shrunk example would say no more


class Chat:
    """A chat, or a thread of agents, of a certain size."""

    def __init__(self, ledger: Ledger, size: int, per_commit: int) -> None:
        self.ledger, self.size, self.id = ledger, size, f"chat-{next(_numbers)}"
        ledger.create_chat(self.id, "ada")
        self.ids: list[str] = []
        for start in range(0, size, per_commit):
            texts = [self._text(number) for number in range(start, min(size, start + per_commit))]
            self.ids += [message.id for message in ledger.append(self.id, [user(text) for text in texts])]

    @staticmethod
    def _text(number: int) -> str:
        return f"{_RARE} in the morning" if number in {3, 7, 11} else f"{number % 50} in the morning"

    def middle(self, number: int) -> str:
        """A message somewhere in the middle, another one for each number."""
        return self.ids[self.size // 2 - _REPEATS // 2 + number]


Command = Callable[[Chat, int], object]
"""Carried out on a chat for the n-th time."""


COMMANDS: Final[dict[str, Command]] = {
    "append": lambda chat, number: chat.ledger.append(chat.id, [user(f"{number} more")]),
    "append of a known message": lambda chat, _: chat.ledger.append(chat.id, []),
    "fork": lambda chat, number: chat.ledger.fork(chat.id, chat.middle(number), activate=False),
    "move_head": lambda chat, number: chat.ledger.move_head(
        chat.id, "main", chat.middle(number), expected=chatledger.ANY
    ),
    "set_checkpoint": lambda chat, number: chat.ledger.set_checkpoint(chat.id, "mark", chat.middle(number)),
    "annotate": lambda chat, number: chat.ledger.annotate(chat.id, chat.middle(number), metadata={"n": number}),
    "get_chat": lambda chat, _: chat.ledger.get_chat(chat.id),
    "list_chats": lambda chat, _: chat.ledger.list_chats(limit=1),
    "list_branches": lambda chat, _: chat.ledger.list_branches(chat.id),
    "get_message": lambda chat, number: chat.ledger.get_message(chat.middle(number)),
    "resolve of the last messages": lambda chat, _: ContextEngine(chat.ledger, chat.id, "ada").resolve(last_n=20),
    "resolve of some tokens": lambda chat, _: ContextEngine(chat.ledger, chat.id, "ada").resolve(max_tokens=200),
    "tail": lambda chat, _: chat.ledger.get_messages(chat.id, limit=50),
    "common_ancestor": lambda chat, number: chat.ledger.common_ancestor(chat.middle(number), chat.ids[-1]),
    "merge_base": lambda chat, number: chat.ledger.merge_base(chat.middle(number), chat.ids[-1]),
}


@pytest.fixture(scope="module")
def ledger() -> Iterator[Ledger]:
    """A ledger that all chats of this module are in."""
    with chatledger.open("memory:") as ledger:
        yield ledger


def operations(command: Callable[[int], object]) -> int:
    """Count the operations that so many repetitions take."""
    with counting() as counts:
        for number in range(_REPEATS):
            command(number)
    return counts.total()


def assert_alike(small: int, large: int) -> None:
    """
    That both took about as much, but for three moves each time.

    A page of the chain or a commit may begin within what is read of the one, and not of the other, wherever they end: of a tail of 50
    messages it is two of ten moves. What grows with the chat grows by more: it has eight times as many pages.
    """
    assert large <= small * 1.1 + 3 * _REPEATS, (
        f"{small} operations in the small one, {large} in one {_FACTOR} times as large"
    )


@pytest.mark.soak
@pytest.mark.parametrize("name", COMMANDS)
@_few
@given(size=st.integers(140, 300), per_commit=st.integers(20, 300))
def test_a_command_costs_the_same_in_a_large_chat(ledger: Ledger, name: str, size: int, per_commit: int) -> None:
    """However long the chat, and however it was written."""
    command = COMMANDS[name]
    chats = [Chat(ledger, size * factor, per_commit) for factor in (1, _FACTOR)]
    small, large = [operations(lambda number, chat=chat: command(chat, number)) for chat in chats]  # type: ignore[misc]

    assert_alike(small, large)


@_few
@given(size=st.integers(100, 1000), per_commit=st.integers(20, 300))
def test_a_search_costs_the_same_in_a_large_chat(ledger: Ledger, size: int, per_commit: int) -> None:
    """What a page of a word with three hits takes has a bound: what the last messages left that is not merged yet."""
    for chat in (Chat(ledger, size, per_commit), Chat(ledger, size * _FACTOR, per_commit)):
        with counting() as counts:
            assert 3 == len(ledger.search(_RARE, chat_id=chat.id, limit=10))
        assert counts.total() <= _SEARCH_BOUND


def test_a_search_costs_the_same_among_many_chats() -> None:
    """Also where hits of several chats are equally good and as old: only the places of these chats are looked up."""
    found: list[int] = []
    for others in (10, 400):
        with chatledger.open("memory:") as ledger:
            for number in range(others):
                ledger.create_chat(f"other-{number}", "ada")
            for number in range(5):
                ledger.create_chat(f"tied-{number}", "ada")
                ledger.append(f"tied-{number}", [NewMessage("user", _RARE, created_at=50)])
            with counting() as counts:
                assert 5 == len(ledger.search(_RARE, limit=10))
            found.append(counts.total())

    assert found[1] <= found[0]


def test_a_list_costs_the_page_or_the_shortest_list_of_its_entries(ledger: Ledger) -> None:
    """Whatever else there is: many chats of the owner, and many that have one of the entries."""
    owner = f"user-{next(_numbers)}"
    for number in range(200):
        metadata = {"common": 1, "half": number % 2, "rare": number == 7}
        ledger.create_chat(f"{owner}-{number}", owner, metadata=metadata)

    for metadata, limit, found, bound in (
        ({}, 5, 5, 50),
        ({"common": 1, "half": 1}, 5, 5, 60),
        ({"common": 1, "rare": True}, None, 1, 20),
        ({"half": 0, "rare": True}, None, 0, 20),
    ):
        for ascending in (False, True):
            with counting() as counts:
                chats = ledger.list_chats(user_id=owner, metadata=metadata, limit=limit, ascending=ascending)
            assert found == len(chats)
            assert counts.total() <= bound, (metadata, ascending)


@pytest.mark.soak
@_few
@given(size=st.integers(140, 200))
def test_a_checkpoint_of_agents_costs_the_same_in_a_long_thread(ledger: Ledger, size: int) -> None:
    """However many checkpoints the thread has."""
    threads = Threads(ledger)

    def put(thread_id: str, number: int) -> None:
        tree = tree_of(f"value {number}")
        parent = f"{number - 1:06}" if number else None
        threads.put_checkpoint(
            thread_id,
            PutVersion(
                id=f"{number:06}",
                parent=parent,
                frames=(("json", b"{}"), ("json", b"{}")),
                values={"x": tree},
            ),
        )

    found: list[int] = []
    for length in (size, size * _FACTOR):
        thread_id = f"thread-{next(_numbers)}"
        for number in range(length):
            put(thread_id, number)
        found.append(operations(lambda number, name=thread_id, after=length: put(name, after + number)))  # type: ignore[misc]

    assert_alike(*found)


@pytest.mark.soak
def test_what_does_grow_is_noticed(ledger: Ledger) -> None:
    """Reading a whole chain takes as many more operations as it has pages: the count sees that."""
    chats = [Chat(ledger, 200 * factor, 100) for factor in (1, _FACTOR)]
    small, large = [operations(lambda _, chat=chat: chat.ledger.get_messages(chat.id)) for chat in chats]  # type: ignore[misc]

    assert large > 2 * small
    with pytest.raises(AssertionError, match="times as large"):
        assert_alike(small, large)
