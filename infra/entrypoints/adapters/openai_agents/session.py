"""`LedgerSession`: the session of OpenAI's Agents SDK on a ledger. Its id is that of a chat."""

from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar, cast

from agents.items import TResponseInputItem
from agents.memory.session import (
    _CompactionSnapshot,  # pyright: ignore[reportPrivateUsage]  # the protocol of its compaction has no public name
)
from agents.memory.session_settings import SessionSettings, coerce_session_settings, resolve_session_limit

from chatledger.domain.errors import ConfigurationError, ConflictError
from chatledger.domain.forms.responses import NAME as RESPONSES
from chatledger.domain.limits import check_id
from chatledger.domain.moments import Moment
from chatledger.domain.values import Branch, Chat, SearchHits

from ....ledger.drafts import new_id
from ....ledger.history import Commit, History, MessageHistory, Told
from ....ledger.ledger import Ledger
from ..access import AdapterLedger, Closable, Source
from .branches import SessionBranches, copies_of, cut, draft_of

T = TypeVar("T")

_compacted: ContextVar[tuple["LedgerSession | None", Branch | None]] = ContextVar(
    "chatledger_compacted", default=(None, None)
)
"""
What is being compacted by hand, and its branch as it was read: the SDK keeps nothing from its read to its replacement.

Of the task, not of the session, which several wrappers may compact at once.
"""


class _Newest(NamedTuple):
    """The newest items of a branch, and the branch; `is_whole` when there are none before them; the depth of each message by its id."""

    branch: Branch
    told: list[Told]
    is_whole: bool
    depths: dict[str, int]


class LedgerSession(Closable, SessionBranches):
    """
    A conversation of the Agents SDK, which is a chat: `Runner.run(agent, "Hello", session=LedgerSession("trip", ledger))`.

    Each call is one commit, and safe for threads and tasks. Nothing is lost: popping moves the head of the branch back, and
    clearing or compacting goes on with another branch. `delete` erases.

    Args:
        session_id: The id of the chat. One that something else wrote is read and gone on with.
        source: A ledger, or the location of one, as `chatledger.open` takes it; `close` closes what was opened here.
        user_id: The user whose chat it is. None: the user of the ledger, or nobody.
        session_settings: With a `limit`, the number of items that a run gets to see.
        branch: The branch to read and to add to. None: the active branch of the chat, also when that changes.

    Raises:
        ConfigurationError: The source is neither a ledger nor a location.
        InvalidValueError: The id is no id of a chat.
    """

    session_settings: SessionSettings | None = None

    def __init__(
        self,
        session_id: str,
        source: Source,
        *,
        user_id: str | None = None,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        branch: str | None = None,
    ) -> None:
        self.session_id = check_id(session_id, "session_id")
        self.session_settings = (
            SessionSettings() if session_settings is None else coerce_session_settings(session_settings)
        )
        self._ledger = AdapterLedger(source, user_id=user_id, adapter="LedgerSession")
        self._branch = branch

    async def get_items(self, limit: int | None = None, branch_id: str | None = None) -> list[TResponseInputItem]:
        """
        Return the newest items of a branch, oldest first.

        Args:
            limit: At most so many; that of the settings when None, and all where these have none, or it is negative.
            branch_id: The branch; that of the session when None.

        Raises:
            BranchNotFoundError: There is no such branch.

        Source: the LMDB index. Costs O(result), however long the conversation is.
        """
        branch = self._branch if branch_id is None else branch_id
        wanted = self._limit(limit)
        items: list[Any] | None = await self._ledger.ask(
            self.session_id,
            lambda history: history.read(lambda read: read.values(RESPONSES, wanted)),
            branch=branch,
        )
        return items or []

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """
        Add items at the end of the branch: one commit, all or nothing. The chat is made if there is none.

        Items with ids of their own that are the newest ones already are not added again.

        Raises:
            BranchNotFoundError: The branch of the session is not there.
            PayloadTooLargeError: An item exceeds the size limit of an event.
            InvalidValueError: An item is not JSON.
        """
        if not items:
            return
        drafts = [draft_of(item, self.session_id) for item in items]
        await self._ask(lambda history: history.add(drafts, reused_ids=True))

    async def pop_item(self) -> TResponseInputItem | None:
        """
        Take the newest item off the branch and return it; None when there is none. Concurrent calls get different items.

        The head of the branch moves back; the item stays in the history.
        """

        def pop(commit: Commit) -> TResponseInputItem | None:
            history = commit.history()
            told = [] if history is None else history.told(RESPONSES, 1)
            if history is None or not told:
                return None
            forms = [standing.message.form for standing in told[0].origin]
            if forms != [RESPONSES]:  # it may share messages with those before it
                told = history.told(RESPONSES)
            base, rest = cut(told, len(told) - 1, commit.state.depth)
            commit.move_head(base)
            commit.append(commit.with_free_ids(copies_of(rest, f"{self.session_id}:{commit.unique_id}")))
            return cast("TResponseInputItem", told[-1].value)

        return await self._ask(lambda history: history.commit(pop))

    async def clear_session(self) -> None:
        """
        Go on with an empty branch, which becomes the active one unless the session is bound to a branch.

        What was said stays, on the branch that it is on; `delete` erases it.
        """
        is_active = self._branch is None
        name = await self._ask(lambda history: history.clear(activate=is_active))
        if name is not None:
            self._follow(name)

    async def delete(self) -> bool:
        """Erase the session, with all its branches and its history. Returns whether there was one."""
        return await self._ledger.run(lambda ledger: ledger.delete_chat(self.session_id))

    async def as_of(self, moment: Moment, *, limit: int | None = None) -> list[TResponseInputItem]:
        """
        Return the items as they were at a moment.

        Args:
            moment: A position of the log, or a time; see `Ledger.as_of`.
            limit: As in `get_items`.
        """
        branch, wanted = self._branch, self._limit(limit)

        def look_back(ledger: Ledger) -> list[Any] | None:
            with ledger.as_of(moment) as view:
                history = MessageHistory(view, self.session_id, branch=branch)
                return history.read(lambda read: read.values(RESPONSES, wanted))

        return await self._ledger.run(look_back) or []

    async def search(self, query: str, *, limit: int = 20) -> SearchHits:
        """Find messages of this session, on all its branches, by their words; see `Ledger.search`."""
        return await self._ledger.run(lambda ledger: ledger.search(query, chat_id=self.session_id, limit=limit))

    async def list_sessions(self, *, limit: int | None = None) -> list[Chat]:
        """Return the chats of the user, or of all when the session has no user; those changed last first."""
        return await self._ledger.run(lambda ledger: ledger.list_chats(limit=limit))

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[TResponseInputItem], bool] | None = None
    ) -> _CompactionSnapshot | None:
        """Return the newest items, and how to go on with others in their place. `OpenAIResponsesCompactionSession` calls it."""
        del prune_prefix  # nothing expires here
        newest = await self._newest(limit)

        async def replace_suffix(start: int, output: list[TResponseInputItem]) -> bool:
            if newest is None or start >= len(newest.told):  # there is nothing to put the output in place of
                return False
            base, rest = cut(newest.told, start, newest.depths.__getitem__)
            return await self._replace(newest.branch, base, [*rest, *output])

        replace: Callable[[int, list[TResponseInputItem]], Awaitable[bool]] = replace_suffix
        return _CompactionSnapshot(_items(newest), newest is None or newest.is_whole, replace)

    async def _read_compaction_items(self, limit: int | None) -> tuple[list[TResponseInputItem], bool]:
        """
        Return the items to compact by hand, and whether they are all. `OpenAIResponsesCompactionSession` calls it.

        Its own memory of them, which it has without this, lacks what other sessions wrote.
        """
        newest = await self._newest(self._limit(limit))
        _compacted.set((self, None if newest is None else newest.branch))
        return _items(newest), newest is None or newest.is_whole

    async def _atomic_replace_items(self, items: list[TResponseInputItem]) -> bool:
        """
        Go on with the items that were compacted by hand. `OpenAIResponsesCompactionSession` calls it.

        False would make it clear the session and add them, whoever wrote meanwhile.

        Raises:
            ConflictError: Somebody wrote since they were read.
            ConfigurationError: The items were read through another session, such as an `EncryptedSession` around the wrapper.
        """
        session, basis = _compacted.get()
        if session is not self:
            msg = (
                f"session {self.session_id!r} is compacted by hand by an OpenAIResponsesCompactionSession only that nothing "
                f"else wraps: what was read, and when, is not known; nothing was written. Runs compact it all the same"
            )
            raise ConfigurationError(msg)
        # What is empty stays so: what the API has of it was cleared or erased.
        if basis is not None and basis.head_message_id is not None and not await self._replace(basis, None, items):
            msg = f"session {self.session_id!r} was written to while it was compacted; nothing was written, compact it again"
            raise ConflictError(msg)
        return True

    async def _replace(self, basis: Branch, base: str | None, items: Sequence[Any]) -> bool:
        """Go on with items in place of those after the message `base`: a new branch, in one commit. False when others wrote."""
        branch = self._branch
        drafts = copies_of(items, f"{self.session_id}:{new_id()}")
        name = await self._ask(lambda history: history.replace(base, drafts, expected=basis, activate=branch is None))
        if name is not None and self._branch == branch:
            self._follow(name)
        return name is not None

    async def _ask(self, call: Callable[[MessageHistory], T]) -> T:
        return await self._ledger.ask(self.session_id, call, branch=self._branch)

    def _limit(self, limit: int | None) -> int | None:
        wanted = resolve_session_limit(limit, self.session_settings)
        return None if wanted is None or wanted < 0 else wanted

    async def _newest(self, limit: int | None) -> _Newest | None:
        def read(history: History) -> _Newest:
            told = history.told(RESPONSES, None if limit is None else limit + 1)  # one more tells whether these are all
            newest = told if limit is None else told[max(len(told) - limit, 0) :]
            depths = {
                standing.base.id: history.state.depth(standing.base.id) for item in newest for standing in item.origin
            }
            return _Newest(history.branch, newest, len(newest) == len(told), depths)

        return await self._ask(lambda history: history.read(read))


def _items(newest: _Newest | None) -> list[TResponseInputItem]:
    return [] if newest is None else [cast("TResponseInputItem", item.value) for item in newest.told]
