"""Many conversations taken in, several in a commit: what the log asks for each commit, it asks once for all of them."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from chatledger.domain.chat.import_check import validate_links
from chatledger.domain.chat.import_versions import OnChange, id_in_chat
from chatledger.domain.chat.interchange import ImportedChat, ImportResult
from chatledger.domain.errors import ChatledgerError

from ..ledger.interchange import begin_imports
from ..ledger.ledger import Ledger

_MOST_CHATS: Final = 64
_MOST_BYTES: Final = 1024 * 1024
_encode: Final = msgspec.msgpack.Encoder().encode


class ChatImport(msgspec.Struct, frozen=True):
    """
    The outcome of the import of one chat of many.

    Args:
        chat: The chat, as it was given.
        outcome: The changes that the import made, or the error that `import_chat` would have raised.
    """

    chat: ImportedChat
    outcome: ImportResult | ChatledgerError

    def get_result(self) -> ImportResult:
        """Return the changes that the import made. Raises the error, if it was refused."""
        if isinstance(self.outcome, ChatledgerError):
            raise self.outcome
        return self.outcome


def import_chats(
    ledger: Ledger, chats: Iterable[ImportedChat], *, on_change: OnChange = "version"
) -> Iterator[ChatImport]:
    """
    Take many conversations in, as `import_chat` does one after the other, but faster: small ones share a commit of the log.

    Yields the outcome of each, in order; nothing is imported before it is asked for. A chat that is refused does not hinder the
    others. When the process dies, each is there as a whole, but for large ones that `import_chat` writes in several commits, or
    not at all; doing it again adds what is missing. About two groups of up to 64 chats, or 1 MiB, are read ahead of what was
    yielded, and those under way are written also when nobody asks for more.

    Args:
        ledger: The ledger that they are imported into.
        chats: As `read_chats` yields them.
        on_change: The treatment of a message that is stored with other content; see `Ledger.import_chat`.

    Raises:
        Exception: What `chats` raises, when the outcomes of the chats before it were yielded.
    """
    groups = ChatGroups(chats)
    begun: list[tuple[ImportedChat, Callable[[], ImportResult] | ChatledgerError]] = []
    while True:
        group = groups.read()  # while the last one is being written
        outcomes: list[ChatImport] = []
        for chat, end in begun:
            try:
                outcomes.append(ChatImport(chat, end if isinstance(end, ChatledgerError) else end()))
            except ChatledgerError as error:
                outcomes.append(ChatImport(chat, error))
        ends = iter(begin_imports(ledger, [draft.chat for draft in group if draft.fault is None], on_change=on_change))
        begun = [(draft.chat, draft.fault or next(ends)) for draft in group]
        yield from outcomes
        if not group:
            break
    if groups.fault is not None:
        raise groups.fault


class _ChatRead(NamedTuple):
    """A chat that was read, what is wrong with it, and how large it is."""

    chat: ImportedChat
    fault: ChatledgerError | None
    size_bytes: int


class ChatGroups:
    """
    Divides chats into groups that can be decided on at the same time: none has an id of another, or of one of its messages.

    Attributes:
        fault: The error that reading the chats ended with.
    """

    def __init__(self, chats: Iterable[ImportedChat]) -> None:
        self._chats = iter(chats)
        self._next: _ChatRead | None = None
        self.fault: Exception | None = None

    def read(self) -> list[_ChatRead]:
        """Return the next group; empty when there are no more."""
        group: list[_ChatRead] = []
        ids: set[tuple[str, ...]] = set()
        size = 0
        while len(group) < _MOST_CHATS and (draft := self._next or self._read_chat()) is not None:
            self._next = draft
            own: set[tuple[str, ...]] = set()
            if draft.fault is None:
                messages = (("message", message.id) for message in draft.chat.messages)
                # An id that another chat has is stored as one made of it and the chat.
                others = (("message", id_in_chat(draft.chat.id, message.id)) for message in draft.chat.messages)
                own = {("chat", draft.chat.id), *messages, *others}
            size += draft.size_bytes
            if group and (size > _MOST_BYTES or not ids.isdisjoint(own)):
                break
            group.append(draft)
            ids |= own
            self._next = None
        return group

    def _read_chat(self) -> _ChatRead | None:
        """Return the next chat; None when there is none, or it cannot be read."""
        try:
            chat = next(self._chats, None)
        except Exception as error:  # noqa: BLE001 - it is raised when the chats before it are in
            self.fault = error
            return None
        if chat is None:
            return None
        try:
            validate_links(chat)
        except ChatledgerError as error:
            return _ChatRead(chat, error, 0)
        try:
            size_bytes = len(_encode(chat.messages))  # about what it takes on the log
        except Exception:  # noqa: BLE001 - its import says what is wrong with it, alone in its group
            size_bytes = _MOST_BYTES
        return _ChatRead(chat, None, size_bytes)
