"""Erasing the messages of one subject, newest first."""

import logging
from collections.abc import Sequence
from typing import Final

import msgspec
from eventsourcing.persistence import OperationalError

from .client import JetStreamClient
from .errors import ALREADY_DELETED, NO_MESSAGE, STORE_FAILED, ApiError
from .reading import StreamPages, at, last_on_subject
from .transport import Answer, Transport, ask_api, decode_api, payload_of

WINDOW = 16
_ROOM_S: Final = 2.0
_DOUBT = (
    "position %d of the stream %r was deleted by a request whose answer was lost: if its server was killed meanwhile, the bytes may "
    "still be in the server's block files; see 'How to delete a chat'"
)
log = logging.getLogger("chatledger.jetstream")


class _Deleted(msgspec.Struct):
    success: bool = False


def erase(client: JetStreamClient, stream: str, subject: str, *, after: int, before: int) -> int:
    """
    Overwrite and delete the messages of `subject` with after < position < before; how many there were.

    What remains after an interruption is a prefix, but for the requests that were under way together; see `erase_all`.

    Raises:
        OperationalError: No answer within the budget.
    """
    deadline = client.deadline()
    # From the leader: by this the pages notice that the replica which answers is behind, and ask again.
    last = last_on_subject(client, stream, subject, deadline)
    if last is None:
        return 0
    pages = StreamPages(client, stream, deadline, after=after, subject=subject, until=min(last.position, before - 1))
    positions: list[int] = []
    while not pages.is_complete and (not positions or positions[-1] < before):
        positions += [message.position for message in pages.read()]
    # Newest first: what a kill leaves is the older part, from which the next call finds all that is left.
    return erase_all(client, stream, [position for position in reversed(positions) if position < before])


def erase_all(client: JetStreamClient, stream: str, positions: Sequence[int]) -> int:
    """
    Overwrite and delete messages in this order, 16 at the same time; return how many were there.

    A server that is killed between the two leaves a message as deleted, and its bytes in the block file. Whoever starts the
    server of a directory overwrites them before. The files of other servers are out of reach.

    Raises:
        OperationalError: No answer within the budget, or no room on the disk.
    """
    start = count = 0
    while start < len(positions):
        window = positions[start : start + _room_for(client, stream)]
        count += _erase_window(client, stream, window)
        start += len(window)
    return count


def _room_for(client: JetStreamClient, stream: str) -> int:
    """Return how many messages can be erased at the same time."""
    # What a block was before it was written anew takes its room as long as somebody has it open, as who copies the folder.
    deadline = client.deadline(_ROOM_S)
    while (count := client.erasable(stream, WINDOW)) == 0:
        if not deadline.pause():
            msg = f"erasing messages of {stream}: the disk has no room for a copy of a block"
            raise OperationalError(msg)
    return count


def _erase_window(client: JetStreamClient, stream: str, positions: Sequence[int]) -> int:
    pipeline = client.pipeline()
    for position in positions:
        pipeline.send((f"$JS.API.STREAM.MSG.DELETE.{stream}", {}, _request(position)))
    first = zip(positions, pipeline.finish(), strict=True)
    return sum(_erase_at(client, stream, position, outcome) for position, outcome in first)


def _erase_at(client: JetStreamClient, stream: str, position: int, outcome: Answer | Exception | None) -> bool:
    """Delete a message, after the first attempt had this outcome. Return whether it was there."""
    is_repeated = isinstance(outcome, Exception)

    def ask(transport: Transport, ends_at: float) -> bool:
        nonlocal is_repeated, outcome
        was_asked, is_repeated = is_repeated, True
        first, outcome = outcome, None
        try:
            if isinstance(first, tuple):
                decode_api(payload_of(first, stream), _Deleted)
            else:
                ask_api(transport, f"STREAM.MSG.DELETE.{stream}", _request(position), _Deleted, ends_at)
        except ApiError as error:
            # The deletion of before whose answer was lost, or somebody else's.
            if error.fault.err_code in {ALREADY_DELETED, NO_MESSAGE}:
                if was_asked and not client.finishes_erasures:
                    log.warning(_DOUBT, position, stream)
                return False
            # What a request gets that lost the race against another one; it is also what a broken store says, so the message decides.
            if error.fault.err_code == STORE_FAILED and at(client, stream, position, client.deadline()) is None:
                return False
            raise
        return True

    return client.retry(ask, client.deadline(), doing=f"erasing position {position} of {stream}")


def _request(position: int) -> bytes:
    return msgspec.json.encode({"seq": position})
