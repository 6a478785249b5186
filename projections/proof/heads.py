"""Where the streams of a log end, noted while it is walked: what an anchor is made from."""

from collections.abc import Iterator
from typing import Final

import msgspec

from chatledger.domain.anchors import AnchorLeaf, digest_of
from chatledger.domain.events import Recorded, StreamDeleted
from chatledger.domain.trails import NO_TRAIL, extended

from ..environment import Environment, Transaction

_decode: Final = msgspec.msgpack.Decoder(AnchorLeaf).decode
_encode: Final = msgspec.msgpack.Encoder().encode


class Heads:
    """A table of leaves by digest, on disk: there may be more streams than fit into memory."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        env.on_reopened(self._open)
        self._changed: dict[str, AnchorLeaf] = {}

    def _open(self) -> None:
        self._table = self._env.table(b"heads")

    def begin(self) -> None:
        """Forget what was not written."""
        self._changed = {}

    def take(self, txn: Transaction, recorded: Recorded) -> AnchorLeaf:
        """Where the stream of an event ends with it."""
        known = self._changed.get(recorded.chat_id)
        digest = digest_of(recorded.chat_id) if known is None else known.digest
        if isinstance(recorded.body, StreamDeleted):
            trail = NO_TRAIL
        elif known is not None:
            trail = known.trail
        else:
            raw = txn.get(digest, db=self._table)
            trail = NO_TRAIL if raw is None else _decode(raw).trail
        leaf = AnchorLeaf(
            digest=digest,
            version=recorded.version,
            position=recorded.position,
            hash=recorded.hash,
            trail=extended(trail, recorded.position, recorded.hash),
        )
        self._changed[recorded.chat_id] = leaf
        return leaf

    def write(self, txn: Transaction) -> None:
        """Write what changed since `begin`."""
        for leaf in self._changed.values():
            txn.put(leaf.digest, _encode(leaf), db=self._table)

    def leaves(self, txn: Transaction) -> Iterator[AnchorLeaf]:
        """All of them, in the order of their digests."""
        for _, value in txn.cursor(self._table):
            yield _decode(value)
