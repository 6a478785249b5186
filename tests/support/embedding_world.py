"""Embeddings for tests: deterministic, from the words of a text, without a model; and ledgers that use them."""

import threading
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from chatledger import Embedding, Ledger
from chatledger.domain.search.embedding import piece_digest
from chatledger.infra.ledger.port import store_of
from chatledger.infra.store.vector_folders import read
from chatledger.projections.meaning.vector_index import VectorIndex

DIMENSIONS: Final = 64
SYNONYMS: Final = {"car": "automobile", "puppy": "dog", "hound": "dog", "feline": "cat", "soup": "broth"}
"""Words that mean the same as others: their vectors are equal."""


def word_vector(word: str, dimensions: int = DIMENSIONS) -> NDArray[np.float32]:
    """A direction for each word, the same one for ever."""
    word = SYNONYMS.get(word, word)
    seed = int.from_bytes(blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
    return np.random.default_rng(seed).standard_normal(dimensions).astype(np.float32)


def text_vector(text: str, dimensions: int = DIMENSIONS) -> NDArray[np.float32]:
    """The sum of the directions of the words."""
    words = text.lower().split() or [text]
    found: NDArray[np.float32] = np.sum([word_vector(word, dimensions) for word in words], axis=0, dtype=np.float32)
    return found


class Words:
    """
    A function of an embedding that counts its calls, and can be held back or made to fail.

    Args:
        dimensions: The length of its vectors.
        salt: Put before each word, so that another "model" gives other vectors.
        refuses: Whether it fails on a text.
    """

    def __init__(
        self, dimensions: int = DIMENSIONS, *, salt: str = "", refuses: Callable[[str], bool] = lambda text: False
    ) -> None:
        self.dimensions, self.salt, self.refuses = dimensions, salt, refuses
        self.calls: list[list[str]] = []
        self.is_down = False
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def __call__(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        self.calls.append(list(texts))
        self.entered.set()
        assert self.gate.wait(60)
        if self.is_down:
            msg = "the model does not answer"
            raise ConnectionError(msg)
        if any(map(self.refuses, texts)):
            msg = "a text is refused"
            raise ValueError(msg)
        salted = [" ".join(self.salt + word for word in text.split()) for text in texts]
        return [text_vector(text, self.dimensions) for text in salted]

    @property
    def texts(self) -> list[str]:
        """All texts that it was given."""
        return [text for call in self.calls for text in call]

    def embedding(self, name: str = "words", **options: Any) -> Embedding:
        """An embedding with it."""
        return Embedding(self, name, self.dimensions, **options)


def found(ledger: Any, query: str, **options: Any) -> list[str]:
    """The texts of the messages that a search by meaning finds, nearest first."""
    return [hit.message.text for hit in ledger.search(query, **{"mode": "meaning", **options})]


def vectors_of(ledger: Ledger, embedding: Embedding) -> VectorIndex:
    """The vectors of a ledger."""
    vectors = store_of(ledger).meaning.find(embedding)
    assert vectors is not None
    return vectors


def slots_of(ledger: Ledger, embedding: Embedding) -> set[tuple[int, int, int, bytes]]:
    """The slots in use: chat, place and digest of the piece."""
    vectors = vectors_of(ledger, embedding)

    def look(txn: Any) -> set[tuple[int, int, int, bytes]]:
        slots: set[tuple[int, int, int, bytes]] = set()
        for block, directory in vectors.directories(txn):
            places = np.flatnonzero(directory.chats)
            digests = [vectors.digest_at(txn, block * 1024 + place) for place in places.tolist()]
            facts = (directory.chats, directory.segments, directory.offsets)
            rows = zip(*(column[places].tolist() for column in facts), digests, strict=True)
            slots |= {(chat, segment, offset, digest) for chat, segment, offset, digest in rows}
        return slots

    return read(vectors, look)


def digests_of(ledger: Ledger, embedding: Embedding) -> list[bytes]:
    """The digests of the pieces of all messages of a ledger, sorted: what there should be vectors of."""
    messages = [message for chat in ledger.list_chats() for message in _all_messages(ledger, chat.id)]
    return sorted(piece_digest(piece) for message in messages for piece in embedding.pieces(message.text))


def _all_messages(ledger: Ledger, chat_id: str) -> list[Any]:
    graph = ledger.graph(chat_id)
    messages = [ledger.get_message(node.id) for node in graph.nodes]
    return [message for message in messages if message is not None]


def words_embedding() -> Embedding:
    """The embedding that command lines in tests name."""
    return Words().embedding()
