"""Many conversations taken in, several in a commit: what the log asks for each commit, it asks once for all of them."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, Self

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
        outcomes = [_outcome(chat, end) for chat, end in begun]
        ends = iter(begin_imports(ledger, [one.chat for one in group if one.fault is None], on_change=on_change))
        begun = [(one.chat, one.fault or next(ends)) for one in group]
        yield from outcomes
        if not group:
            break
    if groups.fault is not None:
        raise groups.fault


def _outcome(chat: ImportedChat, end: Callable[[], ImportResult] | ChatledgerError) -> ChatImport:
    try:
        return ChatImport(chat, end if isinstance(end, ChatledgerError) else end())
    except ChatledgerError as error:
        return ChatImport(chat, error)


class _Given(NamedTuple):
    """A chat that was read, what is wrong with it, and how large it is."""

    chat: ImportedChat
    fault: ChatledgerError | None
    size_bytes: int

    @classmethod
    def of(cls, chat: ImportedChat) -> Self:
        """Check a chat."""
        try:
            validate_links(chat)
        except ChatledgerError as error:
            return cls(chat, error, 0)
        return cls(chat, None, _size(chat))


class ChatGroups:
    """
    Divides chats into groups that can be decided on at the same time: none has an id of another, or of one of its messages.

    Attributes:
        fault: The error that reading the chats ended with.
    """

    def __init__(self, chats: Iterable[ImportedChat]) -> None:
        self._chats = iter(chats)
        self._next: _Given | None = None
        self.fault: Exception | None = None

    def read(self) -> list[_Given]:
        """Return the next group; empty when there are no more."""
        group: list[_Given] = []
        ids: set[tuple[str, ...]] = set()
        size = 0
        while len(group) < _MOST_CHATS and (found := self._next or self._read_chat()) is not None:
            self._next = found
            own = _ids(found)
            size += found.size_bytes
            if group and (size > _MOST_BYTES or not ids.isdisjoint(own)):
                break
            group.append(found)
            ids |= own
            self._next = None
        return group

    def _read_chat(self) -> _Given | None:
        """Return the next chat; None when there is none, or it cannot be read."""
        try:
            chat = next(self._chats, None)
        except Exception as error:  # noqa: BLE001 - it is raised when the chats before it are in
            self.fault = error
            return None
        return None if chat is None else _Given.of(chat)


def _ids(given: _Given) -> set[tuple[str, ...]]:
    """Return what no other chat of a group may have."""
    if given.fault is not None:
        return set()
    own = ((message.id, id_in_chat(given.chat.id, message.id)) for message in given.chat.messages)
    return {("chat", given.chat.id), *(("message", message_id) for ids in own for message_id in ids)}


def _size(chat: ImportedChat) -> int:
    """Return about as many bytes as a chat takes on the log; of one that cannot be written, so many that it is alone."""
    try:
        return len(_encode(chat.messages))
    except Exception:  # noqa: BLE001 - its import says what is wrong with it
        return _MOST_BYTES
