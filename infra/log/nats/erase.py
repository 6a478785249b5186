"""Erasing the messages of one subject, newest first."""

import asyncio
import logging

import msgspec

from .client import Deadline, JetStreamClient, ask_api
from .connection import Connection
from .errors import ALREADY_DELETED, NO_MESSAGE, STORE_FAILED, ApiError
from .reading import Pages, at, last_on_subject

WINDOW = 16
_DOUBT = (
    "position %d of the stream %r was deleted by a request whose answer was lost: if its server was killed meanwhile, the bytes may "
    "still be in the server's block files; see 'How to delete a chat'"
)
log = logging.getLogger("chatledger.jetstream")


class _Deleted(msgspec.Struct):
    success: bool = False


async def erase(client: JetStreamClient, stream: str, subject: str, *, after: int, before: int) -> int:
    """
    Overwrite and delete the messages of `subject` with after < position < before; how many there were.

    Windows of 16 requests are under way together, and a window begins when the newer one is done. So what remains
    after an interruption is a prefix, but for the window that was interrupted.

    Raises:
        OperationalError: No answer within the budget.
    """
    deadline = client.deadline()
    last = await last_on_subject(client, stream, subject, deadline)
    if last is None:
        return 0
    pages = Pages(client, stream, deadline, after=after, subject=subject, until=min(last.position, before - 1))
    positions: list[int] = []
    while not pages.is_complete and (not positions or positions[-1] < before):
        positions += [message.position for message in await pages.read()]
    doomed = [position for position in reversed(positions) if position < before]
    erased = 0
    for start in range(0, len(doomed), WINDOW):
        window = [erase_at(client, stream, position) for position in doomed[start : start + WINDOW]]
        erased += sum(await asyncio.gather(*window))
    return erased


async def erase_at(client: JetStreamClient, stream: str, position: int) -> bool:
    """
    Overwrite and delete one message; whether it was there.

    A server that is killed between the two leaves the message as deleted, and its bytes in the block file. Whoever starts the
    server of a directory overwrites them before. The files of other servers are out of reach.
    """
    payload = msgspec.json.encode({"seq": position})
    is_repeated = False

    async def ask(connection: Connection, deadline: Deadline) -> bool:
        nonlocal is_repeated
        was_asked, is_repeated = is_repeated, True
        try:
            await ask_api(connection, f"STREAM.MSG.DELETE.{stream}", payload, _Deleted, deadline)
        except ApiError as error:
            if error.fault.err_code in {ALREADY_DELETED, NO_MESSAGE}:
                if was_asked and not client.finishes_erasures:
                    log.warning(_DOUBT, position, stream)
                return False
            if error.fault.err_code == STORE_FAILED and await at(client, stream, position, deadline) is None:
                return False
            raise
        return True

    return await client.retry(ask, client.deadline(), doing=f"erasing position {position} of {stream}")
