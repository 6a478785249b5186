"""Whether a log still has what was seen of it."""

from chatledger.domain.errors import LogRegressedError

from .port import EventLog


def refuse_if_regressed(log: EventLog, *, position: int, event_hash: bytes) -> None:
    """
    Raise `LogRegressedError` when the log lost the event that was seen at a position: it would be given out again.

    An event that was erased is not lost. Its chat's tombstone stands after it, so the last event of all is never erased.
    Position 0 stands for nothing that was seen, an empty hash for one that is not known.
    """
    if not position:
        return
    last = log.settled_position(position)
    there = log.event_at(position) if last >= position else None
    if there is None and last >= position:
        # The end is looked up again, since the tombstone may be younger than our first look.
        last = log.settled_position(position + 1)
        is_lost = last <= position
    else:
        is_lost = there is None or event_hash not in {b"", there.hash}
    if is_lost:
        raise LogRegressedError(last_position=last, seen_position=position)
