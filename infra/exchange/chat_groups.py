"""Many conversations taken in, several in a commit: what the log asks for each commit, it asks once for all of them."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from chatledger.domain.chat.import_versions import OnChange
from chatledger.domain.chat.interchange import ImportedChat, ImportResult
from chatledger.domain.errors import ChatledgerError

from ..ledger.interchange import begin_import
from ..ledger.ledger import Ledger

_MOST_CHATS: Final = 64
_MOST_BYTES: Final = 1024 * 1024
_encode: Final = msgspec.msgpack.Encoder().encode


class ChatImport(NamedTuple):
    """
    The outcome of the import of one chat of many: a result, or the error that `import_chat` would have raised.

    Args:
        chat: The chat, as it was given.
        result: The changes that the import made; None when the chat was refused.
        error: The reason why it was refused; None when it was not.
    """

    chat: ImportedChat
    result: ImportResult | None
    error: ChatledgerError | None


def import_chats(
    ledger: Ledger, chats: Iterable[ImportedChat], *, on_change: OnChange = "version"
) -> Iterator[ChatImport]:
    """
    Take many conversations in, as `import_chat` does one after the other, but faster: small ones share a commit of the log.

    A chat that is refused does not hinder the others. Each chat is whole on the log, or not there at all, also when the process
    dies; then do it again, which adds what is missing. Up to 64 chats, or 1 MiB, are read ahead of what is yielded; those are
    written also when the iteration is left early.

    Args:
        ledger: The ledger that they are imported into.
        chats: As `read_chats` yields them.
        on_change: The treatment of a message that is stored with other content; see `Ledger.import_chat`.

    Yields:
        The outcome of each chat, in order. Nothing is imported before it is asked for.

    Raises:
        Exception: What `chats` raises; the chats before it are imported, and their outcomes were yielded.
    """
    groups = _Groups(chats)
    begun: list[tuple[ImportedChat, Callable[[], ImportResult]]] = []
    while True:
        group = groups.read()  # while the last one is being written
        outcomes = [_outcome(chat, end) for chat, end in begun]
        begun = [(chat, _begin(ledger, chat, on_change)) for chat in group]
        yield from outcomes
        if not group:
            break
    if groups.fault is not None:
        raise groups.fault


def _begin(ledger: Ledger, chat: ImportedChat, on_change: OnChange) -> Callable[[], ImportResult]:
    try:
        return begin_import(ledger, chat, on_change=on_change)
    except ChatledgerError as error:
        return _raising(error)


def _raising(error: ChatledgerError) -> Callable[[], ImportResult]:
    def end() -> ImportResult:
        raise error

    return end


def _outcome(chat: ImportedChat, end: Callable[[], ImportResult]) -> ChatImport:
    try:
        return ChatImport(chat, end(), None)
    except ChatledgerError as error:
        return ChatImport(chat, None, error)


class _Groups:
    """
    Divides chats into groups that can be decided on at the same time: none has an id of another, or of one of its messages.

    Attributes:
        fault: The error that reading the chats ended with.
    """

    def __init__(self, chats: Iterable[ImportedChat]) -> None:
        self._chats = iter(chats)
        self._next: tuple[ImportedChat, int] | None = None
        self.fault: Exception | None = None

    def read(self) -> list[ImportedChat]:
        """Return the next group; empty when there are no more."""
        group: list[ImportedChat] = []
        chat_ids: set[str] = set()
        message_ids: set[str] = set()
        size = 0
        while len(group) < _MOST_CHATS and (found := self._next or self._read_chat()) is not None:
            self._next = found
            chat, chat_bytes = found
            ids = {message.id for message in chat.messages}
            is_apart = chat.id not in chat_ids and message_ids.isdisjoint(ids)
            if group and not (is_apart and size + chat_bytes <= _MOST_BYTES):
                break
            group.append(chat)
            chat_ids.add(chat.id)
            message_ids |= ids
            size += chat_bytes
            self._next = None
        return group

    def _read_chat(self) -> tuple[ImportedChat, int] | None:
        """Return the next chat and its size in bytes; None when there is none, or it cannot be read."""
        try:
            chat = next(self._chats, None)
        except Exception as error:  # noqa: BLE001 - it is raised when the chats before it are in
            self.fault = error
            return None
        return None if chat is None else (chat, _size(chat))


def _size(chat: ImportedChat) -> int:
    """Return about as many bytes as a chat takes on the log; of one that cannot be written, so many that it is alone."""
    try:
        return len(_encode(chat.messages))
    except Exception:  # noqa: BLE001 - its import says what is wrong with it
        return _MOST_BYTES
