"""Looking for the streams of an anchor while the log is walked."""

from typing import Final

from chatledger.domain.anchors import Anchor, AnchorLeaf
from chatledger.domain.errors import ChainIntegrityError
from chatledger.domain.events import Recorded, StreamDeleted

_SHOWN: Final = 5


class AnchorWatch:
    """Compares a log with an anchor, event by event. Takes memory for the leaves of the anchor."""

    def __init__(self, anchor: Anchor) -> None:
        self.anchor = anchor
        self._leaves = {leaf.digest: leaf for leaf in anchor.leaves}
        self._found: set[bytes] = set()
        self._erased: dict[bytes, str] = {}
        self._changed: dict[bytes, tuple[Recorded, str]] = {}

    def take(self, recorded: Recorded, head: AnchorLeaf) -> None:
        """Take the next event, and where it leaves its stream."""
        leaf = self._leaves.get(head.digest)
        if leaf is None or head.version < leaf.version:
            return
        if head.version == leaf.version:
            self._found.add(head.digest)
            if head != leaf:
                self._changed[head.digest] = recorded, _difference(leaf, head)
        elif isinstance(recorded.body, StreamDeleted) and recorded.body.first_position <= leaf.position:
            self._take_tombstone(recorded, head, leaf)
        elif head.digest not in self._found and head.digest not in self._erased:
            self._changed[head.digest] = recorded, f"it has no event {leaf.version}"

    def _take_tombstone(self, recorded: Recorded, head: AnchorLeaf, leaf: AnchorLeaf) -> None:
        """A chat that was deleted since; where its tombstone follows at once, it must name what was anchored."""
        if recorded.version == leaf.version + 1 and recorded.event.previous_hash != leaf.hash:
            self._changed[head.digest] = recorded, f"its tombstone does not continue event {leaf.version}"
        elif recorded.position <= self.anchor.position:
            self._changed[head.digest] = recorded, "its tombstone stands among the events of the anchor, which has none"
        else:
            self._erased[head.digest] = recorded.chat_id

    @property
    def erased(self) -> list[str]:
        """The chats that were deleted since, in the order of their deletion."""
        return list(self._erased.values())

    @property
    def problem(self) -> ChainIntegrityError | None:
        """What is wrong with the log up to here; None when it has everything that was anchored."""
        if self._changed:
            recorded, why = min(self._changed.values(), key=lambda one: one[0].position)
            more = f" (and so for {len(self._changed) - 1:,} more)" if len(self._changed) > 1 else ""
            return self._error(f"chat {recorded.chat_id!r} is not as it was: {why}{more}", recorded)
        missing = sorted(self._leaves.keys() - self._found - self._erased.keys())
        if missing:
            names = ", ".join(digest.hex()[:16] + "…" for digest in missing[:_SHOWN])
            return self._error(
                f"{len(missing):,} of its {len(self._leaves):,} streams are not on the log, or end earlier; their ids have the "
                f"SHA-256 {names}"
            )
        return None

    def _error(self, what: str, recorded: Recorded | None = None) -> ChainIntegrityError:
        msg = (
            f"the log is not the one that was anchored at position {self.anchor.position}: {what}. Events were changed, dropped "
            "or moved since; compare the log with a backup"
        )
        if recorded is None:
            return ChainIntegrityError(msg)
        return ChainIntegrityError(msg, chat_id=recorded.chat_id, position=recorded.position, version=recorded.version)


def _difference(leaf: AnchorLeaf, head: AnchorLeaf) -> str:
    if leaf.hash != head.hash:
        return f"event {leaf.version} has the hash {head.hash.hex()[:16]}…, it had {leaf.hash.hex()[:16]}…"
    if leaf.position != head.position:
        return f"event {leaf.version} stands at position {head.position}, it stood at {leaf.position}"
    return f"the events up to {leaf.version} stand at other positions than they did"
