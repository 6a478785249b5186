"""Appending one message, or several as one atomic batch, and finding out what became of an append without an answer."""

import os
import re
import time
from collections.abc import Sequence
from typing import Final

import msgspec
from eventsourcing.persistence import (
    DatabaseError,
    DataError,
    IntegrityError,
    OperationalError,
    ProgrammingError,
)

from .client import Deadline, JetStreamClient
from .connection import Connection
from .errors import (
    CONTESTED_CODES,
    DUPLICATE_IN_BATCH,
    TRANSIENT,
    WRONG_LAST_SEQUENCE,
    ApiError,
    ApiFault,
    DamagedLogError,
    NoAnswerError,
    OutcomeUnknownError,
    StorageFullError,
    translate,
)
from .reading import MESSAGE_ID, next_on_subject

MAX_BATCH = 1000
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
# The version line, the empty line at the end, and what the server counts for expectation and batch headers at most.
HEADER_OVERHEAD_BYTES = 300
MAX_HEADER_BYTES = 64 * 1024
STALE_S: Final = 6.0
"""For how long an answer in a cluster may be behind what it has acknowledged; a leader that hung steps down sooner."""
_WRONG: Final = re.compile(r"wrong last sequence: (\d+)")


class Message(msgspec.Struct):
    """
    A message to append.

    Args:
        headers: Its own headers, with `Nats-Msg-Id`.
        expected: The position of the subject's last message, checked by the server; None for later messages of a batch
            on the same subject.
    """

    subject: str
    payload: bytes
    headers: dict[str, str]
    expected: int | None = None


class Ack(msgspec.Struct):
    """
    The answer to an append.

    Args:
        last: The position of the last message.
        is_duplicate: The server had stored this id before, at that position.
    """

    last: int = msgspec.field(name="seq", default=0)
    is_duplicate: bool = msgspec.field(name="duplicate", default=False)
    error: ApiFault | None = None


class SlotTakenError(Exception):
    """Another message follows the expected position. Nothing was written."""


class SlotEmptyError(Exception):
    """The expected position is refused, and yet nothing follows it."""


decode_ack = msgspec.json.Decoder(Ack).decode


async def append_messages(
    client: JetStreamClient,
    stream: str,
    messages: Sequence[Message],
    deadline: Deadline,
    *,
    replicas: int = 1,
    is_uncertain: bool = False,
) -> Ack:
    """
    Store the messages, all or none, each on its subject's expected position.

    `is_uncertain` says that they may be stored already, by an attempt whose answer was lost.

    With several replicas the leader may be one that woke up and does not know yet that it was replaced, or one that has not
    taken in yet what the last one acknowledged. So an empty slot is believed only when it stays empty for `STALE_S`.

    Raises:
        SlotTakenError, SlotEmptyError: An expectation does not hold; nothing was written.
        OutcomeUnknownError: No answer within the budget, or on a full disk, and the messages may have arrived.
        OperationalError: They have certainly not arrived.
        StorageFullError, DataError, ProgrammingError: The server refuses such messages; nothing was written.
    """
    doubts_end_at = 0.0
    while True:
        was_uncertain = is_uncertain
        try:
            why_full = client.why_full()
            if why_full is not None:
                return await _look(client, stream, messages, deadline, why_full, is_uncertain=is_uncertain)
            connection = await client.connection(deadline)
            _check_sizes(messages, connection.max_payload)
            is_uncertain = True
            ack = await _send(connection, messages, deadline)
            if ack.error is None:
                return ack
            # A refusal is certain: this attempt stored nothing.
            is_uncertain = was_uncertain
            refusal = ApiError(ack.error)
            reason: Exception = refusal
            if ack.error.err_code in CONTESTED_CODES:
                found = await _resolve(client, stream, messages, ack.error, deadline)
                if found is not None:
                    return found
            elif not refusal.is_transient:
                raise translate(ack.error, doing=f"appending to {stream}")
        except SlotEmptyError as error:
            doubts_end_at = doubts_end_at or time.monotonic() + (STALE_S if replicas > 1 else 0)
            if time.monotonic() >= doubts_end_at or deadline.left_s == 0:
                raise
            reason = error
        except DatabaseError:
            raise
        except TRANSIENT as error:
            if isinstance(error, NoAnswerError):
                is_uncertain = was_uncertain
            reason = error
        if not await deadline.pause():
            raise _gave_up(client, stream, reason, is_uncertain=is_uncertain) from reason


async def _look(
    client: JetStreamClient,
    stream: str,
    messages: Sequence[Message],
    deadline: Deadline,
    why_full: str,
    *,
    is_uncertain: bool,
) -> Ack:
    """Find an append without an answer on a log that can take none now; raises when it is not there."""
    if not is_uncertain:
        msg = f"appending to {stream}: {why_full}"
        raise StorageFullError(msg)
    found = await _stored(client, stream, messages, deadline)
    if found is None:
        msg = f"appending to {stream}: no answer, and {why_full}. The append may be stored; repeating it with the same ids is safe"
        raise OutcomeUnknownError(msg)
    return found


def _gave_up(client: JetStreamClient, stream: str, reason: Exception, *, is_uncertain: bool) -> OperationalError:
    text = f"appending to {stream}: no answer within {client.timeout_s:g} s; the last reason was {reason!r}"
    if is_uncertain:
        return OutcomeUnknownError(f"{text}. The append may be stored; repeating it with the same ids is safe")
    return OperationalError(f"{text}. Nothing was written")


async def _send(connection: Connection, messages: Sequence[Message], deadline: Deadline) -> Ack:
    if len(messages) == 1:
        message = messages[0]
        reply = await connection.request(
            message.subject, message.payload, _headers(message), timeout_s=deadline.attempt_s
        )
        return decode_ack(reply.data)
    # Fresh for every attempt: the server may still hold the beginning of the last one.
    batch = {"Nats-Batch-Id": os.urandom(16).hex()}
    for number, message in enumerate(messages[:-1], 1):
        headers = {**_headers(message), **batch, "Nats-Batch-Sequence": str(number)}
        await connection.publish(message.subject, message.payload, headers=headers)
    message = messages[-1]
    headers = {**_headers(message), **batch, "Nats-Batch-Sequence": str(len(messages)), "Nats-Batch-Commit": "1"}
    reply = await connection.request(message.subject, message.payload, headers, timeout_s=deadline.attempt_s)
    return decode_ack(reply.data)


def _headers(message: Message) -> dict[str, str]:
    # A new dictionary: nats-py writes into the one it is given in places.
    if message.expected is None:
        return dict(message.headers)
    return {**message.headers, EXPECTED: str(message.expected)}


async def _resolve(
    client: JetStreamClient, stream: str, messages: Sequence[Message], fault: ApiFault, deadline: Deadline
) -> Ack | None:
    """
    What a refused expectation means: an earlier attempt of our own was stored (its answer), or a conflict.

    The server refuses the repetition of a stored append like that of a lost race. The difference is in the log: whose
    message follows the expected position. The subject's last message would not do, others may have appended since.
    None: nothing follows, for now.
    """
    last = _WRONG.search(fault.description)
    found = await _stored(client, stream, messages, deadline)
    if found is not None:
        return found
    if last is not None and any(
        int(last[1]) > message.expected for message in messages if message.expected is not None
    ):
        return None  # something does follow, and who answered the question does not know it yet
    if fault.err_code == WRONG_LAST_SEQUENCE:
        msg = f"nothing follows the expected positions in {stream}: {fault}"
        raise SlotEmptyError(msg)
    if fault.err_code == DUPLICATE_IN_BATCH:
        msg = f"a message id was used before for something else: {fault}"
        raise ProgrammingError(msg)
    return None


async def _stored(client: JetStreamClient, stream: str, messages: Sequence[Message], deadline: Deadline) -> Ack | None:
    """The answer to an append that was stored; None when nothing follows the expected positions. Else `SlotTakenError`."""
    for index, message in enumerate(messages):
        if message.expected is None:
            continue
        taken = await next_on_subject(client, stream, message.subject, message.expected + 1, deadline)
        if taken is None:
            continue
        if taken.headers.get(MESSAGE_ID) == message.headers[MESSAGE_ID]:
            return Ack(last=taken.position - index + len(messages) - 1)
        msg = f"{message.subject}: {taken.position} follows {message.expected}"
        raise SlotTakenError(msg)
    return None


def _check_sizes(messages: Sequence[Message], limit: int) -> None:
    # The server answers a too large message by ending the connection, which would look like a lost one.
    for message in messages:
        size = len(message.payload) + HEADER_OVERHEAD_BYTES
        if size > limit - MAX_HEADER_BYTES:
            size += sum(len(name) + len(value) + 4 for name, value in message.headers.items())
        if size > limit:
            msg = f"an event of {len(message.payload):,} bytes and its headers exceed the server's limit of {limit:,}"
            raise DataError(msg)


def conflict(error: SlotTakenError) -> IntegrityError:
    """The library's error for a lost race."""
    return IntegrityError(f"somebody else appended in between: {error}")


def damaged(error: SlotEmptyError) -> DamagedLogError:
    """The library's error for a position that the caller knows and the log does not."""
    return DamagedLogError(f"{error}. The log lost what was stored there, or it was erased")
