"""Users who share a ledger, and for each a ledger that they have to themselves: what the first answers must be what the second does."""

import contextlib
import functools
import itertools
import sys
import uuid
from collections.abc import Callable, Collection, Generator, Iterator
from types import ModuleType
from typing import Any, Final, TypeVar, cast

import pytest

import chatledger
from chatledger import ChatledgerError, Ledger, LedgerView, Recorded
from chatledger.errors import ChatExistsError, MessageConflictError, OwnerMismatchError

Call = Callable[[Ledger], Any]
Outcome = tuple[Any, ...]
L = TypeVar("L", Ledger, LedgerView)
WHOLE: Final = "the whole ledger"


def outcome(ledger: L, call: Callable[[L], Any]) -> Outcome:
    """The answer or the error of a call, without what depends on how much others have written."""
    try:
        return "ok", plain(call(ledger))
    except ChatledgerError as error:
        return type(error), str(error), vars(error)


def plain(value: Any) -> Any:
    if isinstance(value, Iterator):
        return [plain(item) for item in cast("Iterator[Any]", value)]
    if isinstance(value, Recorded):
        found = value.to_dict()
        for name in ("position", "version", "hash", "previous_hash"):
            del found[name]
        found["payload"].pop("first_position", None)
        return found
    return value


class Shared:
    """
    One ledger of several users, beside one ledger for each alone.

    Whatever a user does is done in both at the same moment, with the same new ids. Where an id is taken by somebody else, the
    call is refused in the first and not made in the second.
    """

    def __init__(self, users: Collection[str]) -> None:
        self._stack = contextlib.ExitStack()
        self.whole = self._open()
        self.views = {user: self.whole.for_user(user) for user in users}
        self.alone = {user: self._open() for user in users}
        self._moment = 0
        self.moments: list[dict[str, int]] = []

    def _open(self) -> Ledger:
        return self._stack.enter_context(chatledger.open("memory:"))

    def close(self) -> None:
        self._stack.close()

    def both(self, user: str, call: Call) -> Outcome:
        """The answer, which is the same in both ledgers."""
        self._moment += 1
        view, alone = self.views[user], self.alone[user]
        with at_moment(self._moment):
            seen = outcome(view, call)
        with at_moment(self._moment), alone.context(actor=user or None):  # whom `for_user` names
            expected = outcome(alone, call)

        assert expected == seen
        self.moments.append(
            {WHOLE: self.whole.last_position()} | {name: ledger.last_position() for name, ledger in self.alone.items()}
        )
        return seen

    def both_then(self, user: str, moment: int, call: Callable[[LedgerView], Any]) -> None:
        """Compare an earlier moment, which is the same in both ledgers."""
        at = self.moments[moment % len(self.moments)]
        with self.views[user].as_of(at[WHOLE]) as view:
            seen = outcome(view, call)
        with self.alone[user].as_of(at[user]) as view:
            assert outcome(view, call) == seen

    def refused(self, user: str, call: Call, *errors: type[ChatledgerError]) -> None:
        """A call that is only made in the shared ledger, where it is refused and changes nothing."""
        position = self.whole.last_position()
        seen = outcome(self.views[user], call)

        assert seen[0] in errors
        assert position == self.whole.last_position()

    def is_chat_of_others(self, user: str, chat_id: str) -> bool:
        return any(ledger.get_chat(chat_id) for other, ledger in self.alone.items() if other != user)

    def is_message_of_others(self, user: str, message_id: str) -> bool:
        return any(ledger.get_message(message_id) for other, ledger in self.alone.items() if other != user)

    def make(self, user: str, chat_id: str, call: Call) -> None:
        """A call that makes the chat unless the user has it."""
        if self.alone[user].get_chat(chat_id) is None and self.is_chat_of_others(user, chat_id):
            self.refused(user, call, ChatExistsError, OwnerMismatchError)
        else:
            self.both(user, call)

    def add(self, user: str, message_ids: Collection[str], call: Call) -> None:
        """A call that adds messages."""
        taken = {message_id for message_id in message_ids if self.is_message_of_others(user, message_id)}
        if not taken:
            self.both(user, call)
            return
        # What is wrong with the call anyway comes first, as if the others were not there.
        position = self.whole.last_position()
        seen = outcome(self.views[user], call)
        assert position == self.whole.last_position()
        if seen[0] is MessageConflictError and seen[2]["message_id"] in taken:
            message_id = seen[2]["message_id"]
            assert seen[2]["chat_id"] is not None
            assert (str(MessageConflictError(message_id, chat_id=seen[2]["chat_id"], other_chat=True))) == seen[1]
        else:
            assert seen[0] != "ok"
            self.both(user, call)


@functools.cache
def _modules_with_a_clock() -> list[ModuleType]:
    return [
        module
        for name, module in sys.modules.items()
        if name.startswith("chatledger.infra") and hasattr(module, "clock_ms")
    ]


@contextlib.contextmanager
def at_moment(moment: int) -> Generator[None]:
    """The clock stands, and new ids come in an order of their own."""
    made = itertools.count()

    def next_id() -> uuid.UUID:
        return uuid.UUID(int=(moment << 64) + next(made))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uuid, "uuid4", next_id)
        for module in _modules_with_a_clock():
            patch.setattr(module, "clock_ms", lambda: moment * 1000)
        yield
