"""Proof of growth: that between two anchors a chat only got more events, and those that it had stayed as they were."""

from ..errors import InvalidValueError
from ..log.merkle import Subtree, consistency_path, is_consistent
from ..wire import Value
from .anchors import Anchor, InclusionProof


class GrowthProof(Value, frozen=True, kw_only=True):
    """
    The proof that a chat at one anchor is the beginning of the same chat at a later one.

    Args:
        chat_id: The chat.
        earlier: Where it ended at the first anchor.
        later: Where it ended at the second.
        path: The consistency proof of RFC 9162 between the roots of both.
    """

    chat_id: str
    earlier: InclusionProof
    later: InclusionProof
    path: tuple[bytes, ...]

    def check(self, earlier: Anchor, later: Anchor) -> None:
        """
        Check it against both anchors, whose leaves are not needed. Their signatures are not checked by this.

        Raises:
            InvalidValueError: It does not show that.
        """
        before, after = self.earlier.leaf, self.later.leaf
        if not (earlier.check_proof(self.chat_id, self.earlier) and later.check_proof(self.chat_id, self.later)):
            why = "an anchor does not have the chat like this"
        # A tombstone begins a new tree: then the size does not grow as the version does.
        elif before.version > after.version or after.version - before.version != after.size - before.size:
            why = "the chat was deleted in between"
        elif not is_consistent(before.size, before.root, after.size, after.root, self.path):
            why = "the chat at the second anchor does not begin with all that it had at the first"
        else:
            return
        msg = f"the proof that chat {self.chat_id!r} only grew does not hold: {why}"
        raise InvalidValueError(msg)


def prove_growth(
    chat_id: str, earlier: Anchor, later: Anchor, *, events: Subtree, first_position: int, size: int
) -> GrowthProof:
    """
    Return the proof that between two anchors a chat only grew.

    `events` gives the roots of the chat's events by number, the first of which is at `first_position`; there are `size` of them.

    Raises:
        InvalidValueError: An anchor does not have the chat or lacks its leaves, is of another log, or the chat was deleted since.
    """
    earlier_proof, later_proof = earlier.proof(chat_id), later.proof(chat_id)
    before, after = earlier_proof.leaf, later_proof.leaf
    if before.position < first_position or not before.size <= after.size <= size:
        msg = f"chat {chat_id!r} was deleted since one of the anchors was signed, or they are given the wrong way round"
        raise InvalidValueError(msg)
    path = consistency_path(events, before.size, after.size)
    proof = GrowthProof(chat_id=chat_id, earlier=earlier_proof, later=later_proof, path=path)
    proof.check(earlier, later)
    return proof
