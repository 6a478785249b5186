"""`LedgerSession`: the session of OpenAI's Agents SDK on a ledger. Its id is that of a chat."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from contextvars import ContextVar
from datetime import datetime
from typing import Any, cast

from agents.items import TResponseInputItem
from agents.memory.session import (
    _CompactionSnapshot,  # pyright: ignore[reportPrivateUsage]  # the protocol of its compaction has no public name
)
from agents.memory.session_settings import SessionSettings, coerce_session_settings, resolve_session_limit

from chatledger.domain.chat.events import BranchCreated, ChatCreated, HeadMoved, MessagesAppended, Recorded
from chatledger.domain.errors import ConfigurationError, ConflictError
from chatledger.domain.limits import check_id
from chatledger.domain.values import Chat, SearchHits
from chatledger.projections.chat.reader import BranchRow
from chatledger.projections.log.kinds import CHATS

from ....ledger.drafts import new_id
from ....ledger.ledger import Ledger
from ....ledger.port import LedgerStore, store_of
from ....ledger.scopes.as_of import AsOfStore, find_point
from ..access import AdapterLedger, Source
from .branches import SessionBranches
from .deciding import Adding, Clearing, Popping, Replacing
from .items import ReadItems, draft_of_item, read_items

_compacted: ContextVar[tuple["LedgerSession | None", BranchRow | None]] = ContextVar(
    "chatledger_compacted", default=(None, None)
)
"""
What is being compacted by hand, and its branch as it was read: the SDK keeps nothing from its read to its replacement.

Of the task, not of the session, which several wrappers may compact at once.
"""


class LedgerSession(SessionBranches):
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
        return _items_of(await self._ledger.run(lambda ledger: self._newest(store_of(ledger), limit, branch)))

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
        branch = self._branch

        def add(ledger: Ledger) -> None:
            drafts = [draft_of_item(item, self.session_id) for item in items]
            adding = Adding(drafts, branch, self._ledger.user_id or "", new_id())
            store_of(ledger).execute(CHATS, self.session_id, adding.decided, kind=(ChatCreated, MessagesAppended))

        await self._ledger.run(add)

    async def pop_item(self) -> TResponseInputItem | None:
        """
        Take the newest item off the branch and return it; None when there is none. Concurrent calls get different items.

        The head of the branch moves back; the item stays in the history.
        """
        popping = Popping(self._branch, new_id())
        await self._ledger.run(
            lambda ledger: store_of(ledger).execute(CHATS, self.session_id, popping.decided, kind=HeadMoved)
        )
        return cast("TResponseInputItem | None", popping.item)

    async def clear_session(self) -> None:
        """
        Go on with an empty branch, which becomes the active one unless the session is bound to a branch.

        What was said stays, on the branch that it is on; `delete` erases it.
        """
        clearing = Clearing(self._branch, new_id(), is_active=self._branch is None)
        written = await self._ledger.run(
            lambda ledger: store_of(ledger).execute(CHATS, self.session_id, clearing.decided, kind=BranchCreated)
        )
        if written:
            self._follow(_made(written))

    async def delete(self) -> bool:
        """Erase the session, with all its branches and its history. Returns whether there was one."""
        return await self._ledger.run(lambda ledger: ledger.delete_chat(self.session_id))

    async def as_of(self, moment: int | datetime, *, limit: int | None = None) -> list[TResponseInputItem]:
        """
        Return the items as they were at a moment.

        Args:
            moment: A position of the log, or an aware datetime.
            limit: As in `get_items`.
        """
        branch = self._branch

        def look_back(ledger: Ledger) -> list[TResponseInputItem]:
            store = store_of(ledger)
            with closing(AsOfStore(lambda: store, find_point(store, moment))) as then:
                return _items_of(self._newest(then, limit, branch))

        return await self._ledger.run(look_back)

    async def search(self, query: str, *, limit: int = 20) -> SearchHits:
        """Find messages of this session, on all its branches, by their words; see `Ledger.search`."""
        return await self._ledger.run(lambda ledger: ledger.search(query, chat_id=self.session_id, limit=limit))

    async def list_sessions(self, *, limit: int | None = None) -> list[Chat]:
        """Return the chats of the user, or of all when the session has no user; those changed last first."""
        return await self._ledger.run(lambda ledger: ledger.list_chats(limit=limit))

    def close(self) -> None:
        """Close the ledger, if it was opened here. Calling it again does nothing."""
        self._ledger.close()

    async def aclose(self) -> None:
        """Close, in a worker thread."""
        await self._ledger.aclose()

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[TResponseInputItem], bool] | None = None
    ) -> _CompactionSnapshot | None:
        """Return the newest items, and how to go on with others in their place. `OpenAIResponsesCompactionSession` calls it."""
        del prune_prefix  # nothing expires here
        branch = self._branch
        found = await self._ledger.run(lambda ledger: read_items(store_of(ledger), self.session_id, branch, limit))
        items = _items_of(found)

        async def replace_suffix(start: int, output: list[TResponseInputItem]) -> bool:
            if found is None or start >= len(items):
                return False
            first = found.items[start].message
            before = [one.item for one in found.items[:start] if one.message.id == first.id]
            return await self._replace(found.branch, first.parent_id, [*before, *output])

        replace: Callable[[int, list[TResponseInputItem]], Awaitable[bool]] = replace_suffix
        return _CompactionSnapshot(items, found is None or found.is_whole, replace)

    async def _read_compaction_items(self, limit: int | None) -> tuple[list[TResponseInputItem], bool]:
        """
        Return the items to compact by hand, and whether they are all. `OpenAIResponsesCompactionSession` calls it.

        Its own memory of them, which it has without this, lacks what other sessions wrote.
        """
        branch = self._branch
        found = await self._ledger.run(lambda ledger: self._newest(store_of(ledger), limit, branch))
        _compacted.set((self, None if found is None else found.branch))
        return _items_of(found), found is None or found.is_whole

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

    async def _replace(self, basis: BranchRow, base: str | None, items: Sequence[Any]) -> bool:
        """Go on with items in place of those after the message `base`: a new branch, in one commit. False when others wrote."""
        branch = self._branch
        if branch not in {None, basis.name}:  # it was cleared by this session
            return False
        replacing = Replacing(basis, base, items, new_id(), is_active=branch is None)
        written = await self._ledger.run(
            lambda ledger: store_of(ledger).execute(CHATS, self.session_id, replacing.decided, kind=BranchCreated)
        )
        if written and self._branch == branch:
            self._follow(_made(written))
        return bool(written)

    def _newest(self, store: LedgerStore, limit: int | None, branch: str | None) -> ReadItems | None:
        wanted = resolve_session_limit(limit, self.session_settings)
        if wanted == 0:
            found = read_items(store, self.session_id, branch, 1)
            return None if found is None else found._replace(items=[], is_whole=False)
        return read_items(store, self.session_id, branch, None if wanted is None or wanted < 0 else wanted)


def _items_of(found: ReadItems | None) -> list[TResponseInputItem]:
    return [] if found is None else cast("list[TResponseInputItem]", [one.item for one in found.items])


def _made(written: Sequence[Recorded]) -> str:
    """The name of the branch that a commit begins with."""
    body = written[0].body
    assert isinstance(body, BranchCreated), "a branch begins with its creation"
    return body.name
