"""Search by meaning: the nearest of many messages, beside an exact scan by NumPy over vectors that are in memory."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import chatledger
from chatledger import Embedding, Ledger, NewMessage

from ..measure import ResultsDifferError, Row, bytes_on_disk
from ..world import World

DIMENSIONS: Final = 384
LIMIT: Final = 10
_LEAST_RECALL: Final = 0.95
_QUERIES: Final = 40
_CLUSTERS: Final = 500
_USERS: Final = 10
_SHAPES: Final = ("random", "clustered")
_PEER: Final = "NumPy, exact, in memory"


class Vectors:
    """
    A model that knows its texts: the text is the number of a vector.

    Args:
        count: How many there are.
        shape: `random` directions, which have nothing in common, or `clustered` ones, as texts about some matters have.
    """

    def __init__(self, count: int, shape: str) -> None:
        draw = np.random.default_rng(count)
        rows = draw.standard_normal((count + _QUERIES, DIMENSIONS), np.float32)
        if shape == "clustered":
            centers = draw.standard_normal((_CLUSTERS, DIMENSIONS), np.float32)
            rows = centers[draw.integers(0, _CLUSTERS, len(rows))] + np.float32(0.7) * rows
        self._rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        self.known, self.count = self._rows[:count], count

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of texts."""
        found: NDArray[np.float32] = self._rows[[int(text) for text in texts]]
        return found

    def nearest(self, query: str, among: "NDArray[Any] | slice" = slice(None)) -> list[int]:
        """Return the best ones of all, or of some, by one product of matrices."""
        scores = self.known[among] @ self._rows[int(query)]
        best = np.argpartition(scores, -min(LIMIT, len(scores)))[-LIMIT:]
        found: NDArray[Any] = best[np.argsort(-scores[best])]
        return [int(at) for at in found]

    @property
    def queries(self) -> list[str]:
        """Texts of vectors that no message has."""
        return [str(self.count + number) for number in range(_QUERIES)]


def meaning(world: World) -> Iterator[Row]:
    """All messages, one user's, both rankings; what is found of the true best; embedding them; bytes."""
    for count in world.sizes.searched:
        for shape in _SHAPES:
            yield from _of_shape(world, count, shape)


def _of_shape(world: World, count: int, shape: str) -> Iterator[Row]:
    vectors = Vectors(count, shape)
    folder = world.folder() / "ledger"
    embedding = Embedding(vectors.embed, f"{shape}-{count}", DIMENSIONS, batch=1024)
    world.report(f"storing {count:,} messages of {shape} vectors")
    with chatledger.open(folder, durability="fast") as ledger:
        _fill(ledger, count)
    begun = time.perf_counter()
    with chatledger.open(folder, durability="fast", embed=embedding) as ledger:
        ledger.embed_pending(timeout_s=3_600)
        took_s = time.perf_counter() - begun
        yield _compare(world, ledger, vectors, f"search {count:,} messages of {shape} vectors by meaning", {})
        if shape == "random":
            return
        owner = {"user_id": "user-1"}
        yield _compare(world, ledger, vectors, f"search a tenth of {count:,} messages, one user's, by meaning", owner)
        yield _compare(
            world, ledger, vectors, f"search {count:,} messages by words and meaning", {"mode": "both"}, is_exact=False
        )
        rate = took_s / count
        note = (
            "from opening the ledger until the last vector is on the disk, by a function that returns at once; a model takes longer. The limit: "
            "the same vectors written to a file as float32"
        )
        theirs = _written(world, vectors) / count
        name = f"take in the vectors of {count:,} messages"
        yield Row(subject="meaning", name=name, peer="a file", show="rate", ours=[rate], theirs=[theirs], note=note)
        yield Row(
            subject="meaning",
            name=f"bytes of the vectors of {count:,} messages",
            peer="a file",
            show="bytes",
            ours=[float(bytes_on_disk(folder / "index" / "vectors"))],
            theirs=[float(vectors.known.nbytes)],
            note=f"{DIMENSIONS} dimensions, with signs, digests, directories and an index by content; theirs is float32 alone",
        )


def _fill(ledger: Ledger, count: int) -> None:
    """Store messages in chats of at most a hundred, of ten users in turn."""
    size = _per_chat(count)
    for first in range(0, count, size):
        chat = first // size
        ledger.create_chat(f"chat-{chat}", f"user-{chat % _USERS}")
        numbers = range(first, min(first + size, count))
        ledger.append(f"chat-{chat}", [NewMessage("user", str(number)) for number in numbers])


def _per_chat(count: int) -> int:
    return min(100, count // (2 * _USERS))


def _compare(
    world: World, ledger: Ledger, vectors: Vectors, name: str, scope: dict[str, Any], *, is_exact: bool = True
) -> Row:
    among: NDArray[Any] | slice = slice(None)
    numbers = np.arange(vectors.count)
    if "user_id" in scope:
        numbers = numbers[numbers // _per_chat(vectors.count) % _USERS == 1]
        among = numbers
    ours = partial(ledger.search, mode="meaning", limit=LIMIT)
    ours = partial(ours, **scope)
    found = wanted = 0
    for query in vectors.queries if is_exact else ():
        true = {str(number) for number in numbers[vectors.nearest(query, among)]}
        found += len(true & {hit.message.text for hit in ours(query)})
        wanted += len(true)
    if is_exact and found < _LEAST_RECALL * wanted:
        msg = f"{name}: only {found} of the best {wanted} are found"
        raise ResultsDifferError(msg)
    share = f"of the true best {LIMIT} of {_QUERIES} queries {found / wanted:.1%} are found; " if wanted else ""
    note = (
        f"{share}best {LIMIT} with snippets, messages decoded; ours reads bits and numbers from LMDB; theirs has "
        f"{vectors.known.nbytes / 1e6:.0f} MB of float32 in memory, and neither filters for all nor reads messages"
    )
    return world.compare(
        _in_turn(ours, vectors.queries),
        _in_turn(partial(vectors.nearest, among=among), vectors.queries),
        subject="meaning",
        name=name,
        peer=_PEER,
        note=note,
    )


def _in_turn(ask: Callable[[str], object], queries: Sequence[str]) -> Callable[[], object]:
    """Return a call that asks the next query each time."""
    asked = iter(range(1 << 62))
    return lambda: ask(queries[next(asked) % len(queries)])


def _written(world: World, vectors: Vectors) -> float:
    begun = time.perf_counter()
    with (world.folder() / "vectors").open("wb") as file:
        vectors.known.tofile(file)
        file.flush()
    return time.perf_counter() - begun
