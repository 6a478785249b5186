"""Chats: create, read, update, list, delete."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Literal, NamedTuple, cast

import msgspec
from msgspec import UNSET, UnsetType

from chatledger.domain.chat.decide_chats import (
    decide_create_chat,
    decide_delete_chat,
    decide_update_chat,
    decide_upsert_chat,
)
from chatledger.domain.chat.events import Body, ChatCreated, ChatDeleted, ChatUpdated, Recorded
from chatledger.domain.chat.members import check_roles, members_of_new
from chatledger.domain.chat.state import StreamHead, stream_head
from chatledger.domain.errors import (
    ChatExistsError,
    ChatledgerError,
    ChatNotFoundError,
    InvalidValueError,
    OwnerMismatchError,
    UpdateConflictError,
)
from chatledger.domain.limits import check_choice, check_count, check_id, check_metadata, sought_id
from chatledger.domain.moments import Moment
from chatledger.domain.values import Chat, ErasureReceipt, MemberRole, Swept
from chatledger.projections.chat.lists import ChatCursor, ChatList
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.lmdb.keys import Entry
from chatledger.projections.log.kinds import CHATS, kind_of

from ..log.envelope import clock_ms
from ..store.commands import RETRY_S, ChatsToRead
from .drafts import new_id
from .expiry import Ending, ending_ms, moment_ms
from .live import sweep_live
from .port import LedgerPart

ChatUpdater = Callable[[Chat], "dict[str, Any] | None"]
"""The present chat to the values to change, `{"title": ..., "metadata": ..., "expires_at": ...}`; None to change nothing."""


MetadataFilter = Mapping[str, str | float] | tuple[str, str | float]
"""Entries that the metadata of a chat are to have: some, or one as `(key, value)`."""


class ChatMethods(LedgerPart):
    """The part of a ledger that is about chats as a whole."""

    def create_chat(
        self,
        chat_id: str | None = None,
        user_id: str | None = None,
        *,
        title: str | None = None,
        metadata: dict[str, Any] | None = None,
        expires_at: Moment | None = None,
        ttl_seconds: float | None = None,
        members: Mapping[str, MemberRole] | None = None,
    ) -> Chat:
        """
        Create a chat with its branch `main`, empty and active.

        Args:
            chat_id: Any text of 1 to 2,048 bytes without NUL; a new random one when None.
            user_id: The owner; may be empty. Of a ledger that `for_user` made, its user when None.
            title: Any text, also an empty one.
            metadata: A JSON object.
            expires_at: When it ends: the next `sweep` after that deletes it. In ms since the epoch, a `datetime`, or a text in ISO 8601.
            ttl_seconds: The same, as seconds from now on.
            members: The roles of users who may read it or write to it, as by `set_member`.

        Raises:
            ChatExistsError: There is a chat of that id.
            InvalidValueError: An id, the title, the metadata or the members break a rule.
        """
        new_chat = self._new_chat(user_id, title, metadata, Ending(expires_at, ttl_seconds))
        new_chat = new_chat._replace(members=check_roles(members, "members", "user_id"))
        chat_id = new_id() if chat_id is None else check_id(chat_id, "chat_id")
        recorded = self._store.execute(CHATS, chat_id, partial(new_chat.decided, decide_create_chat), kind=ChatCreated)
        return _as_created(recorded[0])

    def upsert_chat(
        self,
        chat_id: str,
        user_id: str | None = None,
        *,
        title: str | None = None,
        metadata: dict[str, Any] | None = None,
        expires_at: Moment | None = None,
        ttl_seconds: float | None = None,
    ) -> Chat:
        """
        Create a chat, or return the one that its owner has under that id unchanged, whatever its title, metadata and end are.

        The owner may be left out as in `create_chat`.

        Raises:
            OwnerMismatchError: The chat of that id belongs to another user.
            InvalidValueError: An id, the title or the metadata break a rule.
        """
        new_chat = self._new_chat(user_id, title, metadata, Ending(expires_at, ttl_seconds))
        check_id(chat_id, "chat_id")
        while True:
            try:
                recorded = self._store.execute(
                    CHATS, chat_id, partial(new_chat.decided, decide_upsert_chat), kind=ChatCreated
                )
            except ChatExistsError:  # a store of one user does not show the chats of others, and their ids are taken
                raise OwnerMismatchError(chat_id) from None
            chat = self._written(chat_id)
            if chat is not None:
                return chat
            if recorded:  # made here, and deleted by somebody else since; else the loop tries to make it again
                return _as_created(recorded[0])

    def _new_chat(
        self, user_id: str | None, title: str | None, metadata: dict[str, Any] | None, ending: Ending
    ) -> "_NewChat":
        """The values of a new chat, whose owner is by default the user of this ledger."""
        if user_id is None:
            with self._store.snapshot() as snapshot:
                user_id = snapshot.user_id
        if user_id is None:
            msg = "a chat needs an owner: give user_id, or act for a user"
            raise InvalidValueError(msg)
        return _NewChat(user_id, title, metadata, new_id(), ending)

    def get_chat(self, chat_id: str) -> Chat | None:
        """
        The chat with its counts, or None.

        Source: the LMDB index at `position`; the log is not read.
        """
        return self._of_chat(chat_id, lambda chat: chat.chat)

    def _written(self, chat_id: str) -> Chat | None:
        """The chat that a call has written to, wherever it is held."""
        with self._store.snapshot(ChatsToRead(chat_id, is_written=True)) as snapshot:
            return snapshot.chat(chat_id).chat

    def update_chat(
        self,
        chat_id: str,
        *,
        title: str | UnsetType | None = UNSET,
        metadata: dict[str, Any] | None = None,
        replace_metadata: dict[str, Any] | UnsetType | None = UNSET,
        expires_at: Moment | UnsetType | None = UNSET,
        ttl_seconds: float | None = None,
        updater: ChatUpdater | None = None,
        timeout_s: float = RETRY_S,
    ) -> Chat:
        """
        Change title, metadata or when it ends; what is left out stays. Concurrent calls lose nothing of each other's metadata.

        Args:
            chat_id: The chat.
            title: The new title; None clears it.
            metadata: The keys to set, merged over what is stored; others stay.
            replace_metadata: The new metadata as a whole; None clears them.
            expires_at: When it ends, in ms since the epoch, as a `datetime` or a text in ISO 8601; None for never.
            ttl_seconds: The same, as seconds from now on.
            updater: Instead of values: a function of the present chat that returns `{"title": ..., "metadata": ...,
                "expires_at": ...}` or a part of it, with the metadata as a whole; or None to change nothing. It
                runs again when another writer was faster.
            timeout_s: How long to keep trying while others write.

        Returns:
            The chat afterwards. An update that changes nothing writes nothing.

        Raises:
            ChatNotFoundError: There is no such chat.
            UpdateConflictError: Others were faster until the time was over.
        """
        check_id(chat_id, "chat_id")
        ending = Ending(expires_at, ttl_seconds)
        has_values = not (metadata is None and ttl_seconds is None and title is replace_metadata is expires_at is UNSET)
        if updater is not None and has_values:
            msg = "give either values or an updater, not both"
            raise InvalidValueError(msg)

        if updater is not None:
            if not callable(updater):
                msg = f"an updater is a function of the chat, not {type(updater).__name__}"
                raise InvalidValueError(msg)
            return self._update_by(chat_id, updater, timeout_s)
        seen: Chat | None = None

        def decide(state: IndexedChat, now: int) -> list[Body]:
            nonlocal seen
            seen = state.chat  # a decision is asked again when others were faster: what the last call leaves counts
            return decide_update_chat(
                state,
                title=title,
                metadata=replace_metadata,
                expires_at=ending.at(now),
                merged_metadata=metadata,
            )

        recorded = self._store.execute(CHATS, chat_id, decide, kind=ChatUpdated, timeout_s=timeout_s)
        return self._updated(chat_id, recorded, seen)

    def _update_by(self, chat_id: str, updater: ChatUpdater, timeout_s: float) -> Chat:
        """Write what an updater makes of the chat, unless the chat has changed since it was read; else ask it again."""

        def decide(basis: _Basis | None, changes: dict[str, Any], state: IndexedChat, _now: int) -> list[Body]:
            chat = state.chat
            if chat is None:
                raise ChatNotFoundError(state.chat_id)
            # By the last event: the store asks a decision again on a state that may look the same after another update, and changes
            # that were computed from an older one would undo it.
            if basis is None or stream_head(state) != basis.head:
                raise _ChatMovedError(_Basis(chat, stream_head(state)))
            return decide_update_chat(state, **changes)

        deadline = time.monotonic() + timeout_s
        basis: _Basis | None = None
        changes: dict[str, Any] = {}
        attempts = 0
        while True:
            attempts += 1
            decision = partial(decide, basis, changes)
            try:
                recorded = self._store.execute(CHATS, chat_id, decision, kind=ChatUpdated, timeout_s=timeout_s)
                return self._updated(chat_id, recorded, None if basis is None else basis.chat)
            except _ChatMovedError as moved:
                basis = moved.basis
            if attempts > 1 and time.monotonic() > deadline:
                raise UpdateConflictError(chat_id, attempts=attempts)
            # The updater is the caller's code: it runs here, where no transaction is open.
            changes = _check_changes(updater(basis.chat))

    def list_chats(
        self,
        *,
        user_id: str | None = None,
        metadata: MetadataFilter | None = None,
        order: Literal["updated", "created"] = "updated",
        ascending: bool = False,
        limit: int | None = None,
        offset: int = 0,
        after: Chat | str | None = None,
    ) -> list[Chat]:
        """
        Chats by `updated_at`, newest first, ties by id. Filters combine.

        Args:
            user_id: Only this owner's; None for all, an empty text is an owner like any other.
            metadata: Only those whose metadata have all of these top-level entries, `{key: value}` or one `(key, value)`,
                equal by type: `True` is not `1`. With several it costs at most what the shortest of their lists has.
            order: `created` for `created_at`. The index has that list of all chats and of each owner, but of no metadata.
            ascending: The same list from its other end, oldest first.
            limit: At most this many; all when None.
            offset: Leave out so many first; costs their number.
            after: The last chat of the page before, or its id; costs the same on every page.

        Raises:
            ChatNotFoundError: `after` is the id of no chat.
            InvalidValueError: A value breaks a rule, or there is no list by creation, as `metadata` are given.

        Source: the LMDB index at `position`; the log is not read.
        """
        if limit is not None:
            check_count(limit, "limit")
        check_count(offset, "offset")
        chats = _chat_list(user_id, metadata, order=order, ascending=ascending)
        after_id = sought_id(after, "after") if isinstance(after, str) else None
        if after is not None and not isinstance(after, Chat | str):  # pyright: ignore[reportUnnecessaryIsInstance]  # users'
            msg = f"after must be a Chat or its id, not {type(after).__name__}"
            raise InvalidValueError(msg)
        with self._store.snapshot(ChatsToRead(after_id, are_all=True, user_id=chats.user_id)) as snapshot:
            if isinstance(after, str):
                chat = snapshot.chat(sought_id(after, "after")).chat
                if chat is None:
                    raise ChatNotFoundError(after)
                after = chat
            cursor = None if after is None else ChatCursor(chats.time_of(after), after.id)
            return snapshot.list_chats(chats, limit=limit, offset=offset, after=cursor)

    def count_chats(self, *, user_id: str | None = None, metadata: MetadataFilter | None = None) -> int:
        """
        Return the number of chats that `list_chats` with these filters gives.

        Source: the LMDB index at `position`. Costs a row of the list for each; no chat is read.
        """
        chats = _chat_list(user_id, metadata)
        with self._store.snapshot(ChatsToRead(are_all=True, user_id=chats.user_id)) as snapshot:
            return snapshot.count_chats(chats)

    def delete_chat(self, chat_id: str, *, user_id: str | None = None) -> bool:
        """
        Delete a chat with everything in it: a tombstone stays in the history, the content is erased from log and index.

        Args:
            chat_id: The chat. Its id can be used again afterwards.
            user_id: Only if this is the owner.

        Returns:
            Whether this call deleted it: False when there is no such chat, or `user_id` is not its owner. When it returns nobody
            is shown anything of it; its bytes are gone when the receipt says so, see `erasures`, or `open(erase="wait")`.
        """
        check_id(chat_id, "chat_id")
        # The thread of its id goes too, and would begin anew with writes that are stored after the tombstone.
        self._store.task_writes.settle(chat_id)
        recorded = self._store.execute(
            CHATS, chat_id, lambda state, now: decide_delete_chat(state, user_id=user_id), kind=ChatDeleted
        )
        if recorded:
            self._store.erase_deleted()
        return bool(recorded)

    def erasures(self, *, is_pending: bool | None = None) -> list[ErasureReceipt]:
        """
        Receipts of deletions, of chats, agents' threads, states and items, in their order: what was erased when, or is to be.

        Args:
            is_pending: Only those whose bytes are still to be erased, or only those whose bytes are gone.

        A ledger limited to a user gives those of chats and threads that this user owned. Receipts are kept
        in the index for 30 days after the erasure. A rebuilt index begins with the erasures that are still due; the tombstones stay, and
        `verify` says what is left.

        Source: the LMDB index. Costs O(receipts) of what is asked for.
        """
        with self._store.snapshot() as snapshot:
            erasures = snapshot.receipts(is_pending=is_pending)
        return [
            ErasureReceipt(
                kind="redaction" if erasure.targets else kind.name,
                id=erasure.stream_id.removeprefix(kind.prefix),
                position=erasure.tombstone_position,
                event_count=erasure.event_count,
                deleted_at=erasure.deleted_at,
                erased_at=erasure.erased_at,
            )
            for erasure, kind in ((erasure, kind_of(erasure.stream_id)) for erasure in erasures)
        ]

    def wait_erased(self) -> None:
        """
        Erase now what deletions left, whoever deleted it, and return when the bytes are gone from the log and the index.

        What a reader that began before the deletion still sees of the index is overwritten when that reader has ended.

        Raises:
            LogUnavailableError: The log does not answer, or does not erase. It is tried again later.
            AccessDeniedError: The login may not erase.
        """
        self._store.finish_erasures()

    def sweep(self, *, now: Moment | None = None, limit: int | None = None, dry_run: bool = False) -> Swept:
        """
        Delete the chats that have ended, as `delete_chat` does; until then they are there like any other. The threads, states of graphs
        and items that have expired, and are absent since, are erased. So is what a retention rule keeps no longer.

        Also erases large data that were stored by a process which died before its message was written, and of live streams
        finishes what dead writers were about to commit and drops those that were interrupted too long ago.

        The deletions are by the actor of the `context`, or else `chatledger:sweeper`.

        Args:
            now: The moment, in ms since the epoch, as a `datetime` or a text such as `yesterday`; the present one when None.
            limit: At most this many, those first that ended first; threads, states and items as far as the chats leave room.
            dry_run: Only say what would be deleted.

        Returns:
            What this call deleted, or would.

        Costs what it deletes, and a look at what is older than a retention rule allows and kept by a more specific one, or held.
        """
        until = clock_ms() if now is None else moment_ms(now, "now")
        if limit is not None:
            check_count(limit, "limit")
        from .sweeper import sweep

        swept = sweep(self._store, until=until, limit=limit, dry_run=dry_run)
        if not dry_run:
            sweep_live(self._store)
        return swept

    def due_chats(self, *, now: Moment | None = None, limit: int | None = None) -> list[str]:
        """
        The ids of the chats that `sweep` would delete: those that ended, the longest due first, and those that a rule keeps no longer.

        Source: the LMDB index at `position`; the log is not read.
        """
        until = clock_ms() if now is None else moment_ms(now, "now")
        if limit is not None:
            check_count(limit, "limit")
        from .sweeper import list_due

        with self._store.snapshot() as snapshot:
            return [*islice((key for kind, key in list_due(snapshot, until) if kind == CHATS.name), limit)]

    def _updated(self, chat_id: str, recorded: Sequence[Recorded], seen: Chat | None) -> Chat:
        """The chat after an update: as it is now or, when somebody deleted it since, as the update that saw it left it."""
        chat = self._written(chat_id) or seen
        if chat is None:
            raise ChatNotFoundError(chat_id)
        if chat is not seen:
            return chat
        for event in recorded:
            if isinstance(event.body, ChatUpdated):
                chat = msgspec.structs.replace(chat, **event.body.changes, updated_at=event.occurred_at)
        return chat


class _NewChat(NamedTuple):
    """The initial values of a chat."""

    user_id: str
    title: str | None
    metadata: dict[str, Any] | None
    branch_id: str
    ending: Ending
    members: Mapping[str, MemberRole] = {}

    def decided(self, decide: Callable[..., list[Body]], state: IndexedChat, now: int) -> list[Body]:
        created = decide(
            state,
            user_id=self.user_id,
            title=self.title,
            metadata=self.metadata,
            branch_id=self.branch_id,
            expires_at=self.ending.of_new(now),
        )
        return [*created, *members_of_new(state.chat_id, self.user_id, self.members)]


class _Basis(NamedTuple):
    """A chat that changes are computed from, and its last event: a chat may look the same again after another one."""

    chat: Chat
    head: StreamHead


class _ChatMovedError(ChatledgerError):
    """The chat is not the one that changes were computed from; nothing was written. Compute them from `basis`."""

    def __init__(self, basis: _Basis) -> None:
        super().__init__(f"chat {basis.chat.id!r} was changed meanwhile; nothing was written")
        self.basis = basis


def _as_created(recorded: Recorded) -> Chat:
    body, time = recorded.body, recorded.occurred_at
    assert isinstance(body, ChatCreated), "a chat begins with its creation"
    return Chat(
        id=recorded.chat_id,
        user_id=body.user_id or "",  # of an event that lost its words since
        title=body.title,
        metadata=body.metadata,
        created_at=time,
        updated_at=time,
        expires_at=body.expires_at,
    )


def _check_changes(changes: Any) -> dict[str, Any]:
    if changes is None:
        return {}
    if not isinstance(changes, dict):
        msg = f"an updater returns an object with title or metadata, or None, not {type(changes).__name__}"
        raise InvalidValueError(msg)
    values = cast("dict[str, Any]", changes)
    unknown = values.keys() - {"title", "metadata", "expires_at"}
    if unknown:
        msg = f"only title, metadata and expires_at of a chat can change, not {', '.join(sorted(map(str, unknown)))}"
        raise InvalidValueError(msg)
    if values.get("expires_at") is not None:
        return {**values, "expires_at": ending_ms(values["expires_at"])}
    return values


def _chat_list(
    user_id: str | None, metadata: MetadataFilter | None, *, order: str = "updated", ascending: bool = False
) -> ChatList:
    check_choice(order, ("updated", "created"), "order")
    entries: tuple[Entry, ...] = ()
    if isinstance(metadata, Mapping):
        entries = tuple(map(_check_entry, metadata.items()))
    elif metadata is not None:
        entries = (_check_entry(metadata),)
    if entries and order == "created":
        msg = "the index has no list by creation of chats with some metadata; leave out metadata, or sort what it gives"
        raise InvalidValueError(msg)
    return ChatList(
        user_id=None if user_id is None else sought_id(user_id, "user_id", empty=True),
        entries=entries,
        is_by_creation=order == "created",
        is_ascending=bool(ascending),
    )


def _check_entry(entry: Any) -> Entry:
    match entry:
        case (str() as key, str() | bool() | int() | float() as value):
            check_metadata({key: value})
            return key, value
        case _:
            msg = f"metadata must be {{key: value}}, of texts and texts, numbers or booleans, or one (key, value), not {entry!r}"
            raise InvalidValueError(msg)
