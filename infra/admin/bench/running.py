"""Benchmark: the same conversations in a ledger and in a SQLite file, and the same questions to both, in turns."""

import gc
import statistics
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from chatledger.domain.chat.interchange import ImportedChat, ImportedMessage
from chatledger.domain.errors import CorruptStateError, InvalidValueError
from chatledger.domain.values import NewMessage, plain_text

from ...ledger.ledger import Ledger
from ...ledger.open import open as open_ledger
from ...log.nats_server import Durability
from .sqlite_chats import SqliteChats

_REPEATS: Final = 5
_APPENDS: Final = 50
_TAIL: Final = 50
_HITS: Final = 10
_SAMPLE_S: Final = 0.02
_MIN_WORD: Final = 4


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """
    One operation of both.

    Args:
        name: What was done.
        ours_s, theirs_s: Samples in seconds, for one operation, in the order they were taken.
    """

    name: str
    ours_s: list[float]
    theirs_s: list[float]

    @property
    def ratio(self) -> float:
        """Theirs over ours, of the medians: above 1 chatledger is ahead."""
        return statistics.median(self.theirs_s) / statistics.median(self.ours_s)


def compare_with_sqlite(
    chats: Sequence[ImportedChat],
    folder: Path,
    *,
    durability: Durability = "always",
    report: Callable[[str], None] = lambda _: None,
) -> list[Comparison]:
    """
    Measure import, appends, chains, tails, search and rebuild in an empty folder. Whether chains are equal is checked.

    Raises:
        InvalidValueError: There is no message to measure with.
        CorruptStateError: Both gave different chains.
    """
    longest = max(chats, key=_length, default=None)
    if longest is None or not _length(longest):
        msg = "there is no chat with a message on its active branch to measure with; name another file"
        raise InvalidValueError(msg)
    with (
        open_ledger(folder / "ledger", durability=durability) as ledger,
        SqliteChats(folder / "peer.db", is_synced=durability == "always") as peer,
    ):
        return _BenchRun(ledger, peer, report).all(chats, longest, folder)


def _length(chat: ImportedChat) -> int:
    parents = {message.id: message.parent_id for message in chat.messages}
    at = next((branch.head_message_id for branch in chat.branches if branch.is_active), None)
    length = 0
    while at is not None:
        length, at = length + 1, parents[at]
    return length


class _BenchRun:
    def __init__(self, ledger: Ledger, peer: SqliteChats, report: Callable[[str], None]) -> None:
        self._ledger, self._peer, self._report = ledger, peer, report

    def all(self, chats: Sequence[ImportedChat], longest: ImportedChat, folder: Path) -> list[Comparison]:
        ledger, peer, chat_id = self._ledger, self._peer, longest.id
        total = sum(len(chat.messages) for chat in chats)
        length = _length(longest)
        found = [
            self._compare(
                f"import {total:,} messages in {len(chats):,} chats",
                lambda: _each(ledger.import_chat, chats),
                lambda: _each(peer.import_chat, chats),
                is_once=True,
            )
        ]
        self._check(chat_id)
        copies = iter(range(1 << 30))
        word = _word(longest)
        found += [
            self._compare(
                f"chain of {length:,} messages",
                lambda: ledger.get_messages(chat_id),
                lambda: peer.chain(chat_id),
            ),
            self._compare(
                f"last {min(_TAIL, length):,} of {length:,} messages",
                lambda: ledger.get_messages(chat_id, limit=_TAIL),
                lambda: peer.chain(chat_id, limit=_TAIL),
            ),
            self._compare(
                f"search the chat for {word!r}",
                lambda: ledger.search(word, chat_id=chat_id, limit=_HITS),
                lambda: peer.search(word, chat_id, _HITS),
            ),
            self._compare(
                "rebuild of the index; a copy of the file",
                ledger.rebuild,
                lambda: peer.copy_to(folder / f"copy-{next(copies)}.db"),
                is_long=True,
            ),
            self._appends(longest),
        ]
        return found

    def _appends(self, chat: ImportedChat) -> Comparison:
        chat_id, samples = chat.id, [message.data for message in chat.messages[-_APPENDS:]]
        drafts = [NewMessage("user", data) for data in samples]
        at = self._ledger.get_messages(chat_id, limit=1)[0].id
        heads = [at]

        def ours() -> None:
            for draft in drafts:
                self._ledger.append(chat_id, [draft])

        def theirs() -> None:
            for data in samples:
                message = ImportedMessage(id=str(uuid.uuid4()), parent_id=heads[-1], name="user", data=data)
                self._peer.append(chat_id, message)
                heads.append(message.id)

        found = self._compare("append of one message", ours, theirs, is_long=True)
        per = len(drafts)
        return Comparison(
            name=found.name,
            ours_s=[seconds / per for seconds in found.ours_s],
            theirs_s=[seconds / per for seconds in found.theirs_s],
        )

    def _check(self, chat_id: str) -> None:
        ours = [(message.id, message.data) for message in self._ledger.get_messages(chat_id)]
        if ours != [(row[0], row[4]) for row in self._peer.chain(chat_id)]:
            msg = f"the chains of chat {chat_id!r} are not equal in both, so their times are not compared"
            raise CorruptStateError(msg)

    def _compare(
        self,
        name: str,
        ours: Callable[[], object],
        theirs: Callable[[], object],
        *,
        is_once: bool = False,
        is_long: bool = False,
    ) -> Comparison:
        """Samples in turns; short calls are repeated until a sample takes long enough to be measured."""
        self._report(name)
        calls = (ours, theirs)
        counts = [1 if is_once or is_long else max(1, round(_SAMPLE_S / _sample(call, 1))) for call in calls]
        taken: tuple[list[float], list[float]] = ([], [])
        for turn in range(1 if is_once else _REPEATS):
            for who in (0, 1) if turn % 2 == 0 else (1, 0):
                taken[who].append(_sample(calls[who], counts[who]))
        return Comparison(name=name, ours_s=taken[0], theirs_s=taken[1])


def _each(call: Callable[[ImportedChat], object], chats: Sequence[ImportedChat]) -> None:
    for chat in chats:
        call(chat)


def _sample(call: Callable[[], object], times: int) -> float:
    gc.collect()  # nobody pays for the garbage of the other
    start = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - start) / times


def _word(chat: ImportedChat) -> str:
    """A word of the chat to search for: the first one of some length, so both sides find it."""
    for message in chat.messages:
        for word in _words(message.data):
            if len(word) >= _MIN_WORD and word.isalpha():
                return word.lower()
    return "the"


def _words(data: Any) -> list[str]:
    return plain_text(data).split()
