"""Messages of a chat that have no vectors yet: the last ones in the order of its log, found from the ends of its segments."""

from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from chatledger.domain.search.embedding import role_key

from ..chat.chains import Chains, Place
from ..chat.pages import ordinals_in
from ..chat.reader import IndexedChat
from ..lmdb.checksums import view_without_checksum
from ..lmdb.environment import Transaction, prefixed
from ..lmdb.keys import Tag, chat_key, place_key
from ..lmdb.tables import Tables

_u32: Final = Struct(">I")
_NO_SEGMENT: Final = 0xFFFFFFFF
_MOST_CHARS: Final = 4 << 20
"""After so many characters no more messages are read at once."""
Pieces = Callable[[str], list[str]]
"""Returns the pieces of a text; see `Embedding.pieces`."""


class EmbeddedText(NamedTuple):
    """
    What is embedded of a message.

    Args:
        chat_no, ordinal: The message: its chat, and its number in the order of the log of that.
        segment, offset: Its place in the chains.
        created_at: In ms.
        role: See `role_key`.
        pieces: The pieces of `Message.text` that have vectors of their own; none of an empty one.
    """

    chat_no: int
    ordinal: int
    segment: int
    offset: int
    created_at: int
    role: int
    pieces: list[str]


class _Ends(Chains):
    """The chains of one chat, read from the ends of its segments."""

    def last(self, first: int) -> list[tuple[int, Place]]:
        """
        The messages from a number in log order on, as their numbers and places, in this order.

        Costs a look at each segment and at the pages that have these messages, whatever the length of the chat.
        """
        prefix = chat_key(self._chat_no, Tag.SEGMENT)
        numbered: list[tuple[int, Place]] = []
        for key, _ in list(prefixed(self._txn, self._table, prefix)):
            numbered += self._last_of(_u32.unpack_from(key, len(prefix))[0], first)
        return sorted(numbered)

    def _last_of(self, segment: int, first: int) -> Iterator[tuple[int, Place]]:
        """Yield those of one segment; their numbers ascend in it."""
        cursor = self._txn.cursor(self._table)
        start = place_key(self._chat_no, Tag.PAGE, segment, 0)
        # LMDB has no search for the last key before another: go to what follows the segment, and one back.
        is_there = (
            cursor.set_range(place_key(self._chat_no, Tag.PAGE, segment + 1, 0)) if segment < _NO_SEGMENT else False
        )
        is_there = cursor.prev() if is_there else cursor.last()
        while is_there and (key := cursor.key())[:-4] == start[:-4]:
            ordinals = ordinals_in(view_without_checksum(cursor.value()))
            offset = _u32.unpack_from(key, len(key) - 4)[0]
            for at, ordinal in enumerate(ordinals):
                if ordinal >= first:
                    yield ordinal, (segment, offset + at)
            if not ordinals or ordinals[0] < first:
                return
            is_there = cursor.prev()


def texts_from(
    txn: Transaction, tables: Tables, chat_no: int, first: int, limit: int, pieces: Pieces
) -> list[EmbeddedText]:
    """
    Return messages of a chat from a number in log order on: at most so many, fewer where they are long.

    None only where there are none, as in a deleted chat.
    """
    record = IndexedChat(tables, txn, "", chat_no).record
    if record is None or record.message_count <= first:
        return []
    chains = _Ends(txn, tables.rows, chat_no, "")
    texts: list[EmbeddedText] = []
    size = 0
    for text in _texts_at(chains, chat_no, chains.last(first)[:limit], pieces):
        texts.append(text)
        size += sum(map(len, text.pieces))
        if size > _MOST_CHARS:
            break
    return texts


def text_at(
    txn: Transaction, tables: Tables, chat_no: int, ordinal: int, place: Place, pieces: Pieces
) -> EmbeddedText | None:
    if IndexedChat(tables, txn, "", chat_no).record is None:
        return None
    chains = Chains(txn, tables.rows, chat_no, "")
    return next(_texts_at(chains, chat_no, [(ordinal, place)], pieces))


def _texts_at(
    chains: Chains, chat_no: int, numbered: Sequence[tuple[int, Place]], pieces: Pieces
) -> Iterator[EmbeddedText]:
    messages = chains.bare_messages([place for _, place in numbered])
    for (ordinal, place), message in zip(numbered, messages, strict=False):
        # What stands in the place of redacted content has no vectors: it is said of many messages.
        own = [] if message.redacted is not None else pieces(message.text)
        yield EmbeddedText(chat_no, ordinal, *place, message.created_at, role_key(message.name), own)
