"""Append one message, or several as one atomic batch, and find out what became of an append without an answer."""

import contextlib
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
from .errors import (
    CONTESTED_CODES,
    DUPLICATE_IN_BATCH,
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
from .transport import TRANSIENT, Answer, Pipeline, Request, Transport

MAX_BATCH = 1000
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_ON = "Nats-Expected-Last-Subject-Sequence-Subject"
"""The subject, with wildcards, that an expectation is about, in place of the message's own."""
# The version line, the empty line at the end, and what the server counts for expectation and batch headers at most.
HEADER_OVERHEAD_BYTES = 300
MAX_HEADER_BYTES = 64 * 1024
STALE_S: Final = 6.0
"""For how long an answer in a cluster may be behind what it has acknowledged; a leader that hung steps down sooner."""
_WRONG: Final = re.compile(r"wrong last sequence: (\d+)")


class OutgoingMessage(msgspec.Struct):
    """
    A message to append.

    Args:
        headers: Its own headers, with `Nats-Msg-Id`.
        expected: The position of the subject's last message, checked by the server; None for later messages of a batch
            on the same subject.
        may_use_reserve: It is part of a deletion, which makes room: the disk need not have more than that takes.
    """

    subject: str
    payload: bytes
    headers: dict[str, str]
    expected: int | None = None
    may_use_reserve: bool = False


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


class SlotTakenError(IntegrityError):
    """Another message follows the expected position. Nothing was written."""


class SlotEmptyError(DamagedLogError):
    """The expected position is refused, and yet nothing follows it. Nothing was written."""


decode_ack = msgspec.json.Decoder(Ack).decode


def append_messages(
    client: JetStreamClient,
    stream: str,
    messages: Sequence[OutgoingMessage],
    deadline: Deadline,
    *,
    replicas: int = 1,
    is_uncertain: bool = False,
) -> Ack:
    """
    Store the messages, all or none, each on its subject's expected position.

    `is_uncertain` says that they may be stored already, by an attempt whose answer was lost. From before an attempt is sent, a kill
    or a lost connection leaves that unknown, and no later "not there" makes it untrue: only an acknowledgement does, or a look at
    whose message follows. So "wrong last sequence" is no conflict yet, and on a full disk, where the server answers no publish at
    all, the log is looked at instead.

    With several replicas the leader may be one that woke up and does not know yet that it was replaced, or one that has not
    taken in yet what the last one acknowledged. So an empty slot is believed only when it stays empty for `STALE_S`.

    Raises:
        SlotTakenError, SlotEmptyError: An expectation does not hold; nothing was written.
        OutcomeUnknownError: No answer within the budget, or on a full disk, and the messages may have arrived.
        OperationalError: They have certainly not arrived.
        StorageFullError, DataError, ProgrammingError: The server refuses such messages; nothing was written.
    """
    reason: Exception
    doubts_end_at, is_first = 0.0, not is_uncertain
    while True:
        was_uncertain = is_uncertain
        try:
            why_full = client.why_full(may_use_reserve=any(message.may_use_reserve for message in messages))
            if why_full is not None:
                return _look(client, stream, messages, deadline, why_full, is_uncertain=is_uncertain)
            # What failed over the blocking connection is repeated over the shared one.
            transport = (client.acquire() if is_first else None) or client.connection(deadline)
            try:
                requests = _requests(messages, transport.max_payload)
                is_uncertain, is_first = True, False
                ack = _exchange(transport, requests, deadline.attempt_ends_at)
            finally:
                transport.release()
            if ack.error is None:
                return ack
            # A refusal is certain: this attempt stored nothing.
            is_uncertain, reason = was_uncertain, ApiError(ack.error)
            ours = _resolve(client, stream, messages, reason, deadline)
            if ours is not None:
                return ours
        except SlotEmptyError as error:
            doubts_end_at = doubts_end_at or time.monotonic() + (STALE_S if replicas > 1 else 0)
            if time.monotonic() >= doubts_end_at or deadline.left_s == 0:
                raise
            reason = error
        except ProgrammingError as error:
            if not was_uncertain:
                raise
            raise _unanswered(stream, str(error)) from error
        except DatabaseError:
            raise
        except TRANSIENT as error:
            if isinstance(error, NoAnswerError):
                is_uncertain = was_uncertain
            reason = error
        if not deadline.pause():
            why = f"no answer within {client.timeout_s:g} s; last of all: {str(reason) or type(reason).__name__}"
            raise _unanswered(stream, why, is_uncertain=is_uncertain) from reason


def _unanswered(stream: str, why: str, *, is_uncertain: bool = True) -> OperationalError:
    what = f"appending to {stream}: {why}"
    if is_uncertain:
        return OutcomeUnknownError(f"{what}. The append may be stored; repeating it with the same ids is safe")
    return OperationalError(f"{what}. Nothing was written")


class FirstAttempts:
    """
    First attempts to append single messages, each on a subject of its own, under way at the same time over one transport.

    The transport is held until `finish`. What is not plainly acknowledged is left to `append_messages`.
    """

    def __init__(self, client: JetStreamClient) -> None:
        self._pipeline = client.pipeline() if client.why_full() is None else Pipeline(None, 0)

    def send(self, messages: Sequence[OutgoingMessage]) -> None:
        """Send a message, if there is one. `finish` returns its outcome."""
        requests: list[Request] = []
        with contextlib.suppress(DataError):  # `append_messages` says what is wrong with it
            requests = _requests(messages, self._pipeline.max_payload)
        self._pipeline.send(requests[0] if requests else None)

    def finish(self) -> list[int | Exception | None]:
        """Return the outcome of each: its position; an error, after which it may be stored; None where it is not known to be."""
        return [
            outcome if isinstance(outcome, Exception) else _position(outcome) for outcome in self._pipeline.finish()
        ]


def _position(answer: Answer | None) -> int | None:
    if answer is None or not answer[1]:  # it was not sent, or nobody was there to store it
        return None
    ack = decode_ack(answer[1])
    return ack.last if ack.error is None and not ack.is_duplicate else None


def _look(
    client: JetStreamClient,
    stream: str,
    messages: Sequence[OutgoingMessage],
    deadline: Deadline,
    why_full: str,
    *,
    is_uncertain: bool,
) -> Ack:
    """Find an append without an answer on a log that can take none now; raises when it is not there."""
    if not is_uncertain:
        msg = f"appending to {stream}: {why_full}"
        raise StorageFullError(msg)
    ours = _stored(client, stream, messages, deadline)
    if ours is None:
        raise _unanswered(stream, f"no answer, and {why_full}")
    return ours


def _requests(messages: Sequence[OutgoingMessage], max_payload: int) -> list[Request]:
    """Return the messages as they are sent. Raises `DataError` when one is too large."""
    # Fresh for every attempt: the server may still hold the beginning of the last one.
    batch = os.urandom(16).hex() if len(messages) > 1 else ""
    requests: list[Request] = []
    for number, message in enumerate(messages, 1):
        headers = dict(message.headers)
        # Only the first message of each subject has one: the server refuses another on a subject that the batch has written (10164).
        if message.expected is not None:
            headers[EXPECTED] = str(message.expected)
        if batch:
            headers.update({"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)})
            if number == len(messages):
                # The commit is the request: a refusal of any message of the batch comes as its answer.
                headers["Nats-Batch-Commit"] = "1"
        if len(message.payload) > max_payload - HEADER_OVERHEAD_BYTES - MAX_HEADER_BYTES:
            # The server answers a too large message by ending the connection, which would look like a lost one.
            header_bytes = sum(len(name) + len(value) + 4 for name, value in message.headers.items())
            if len(message.payload) + HEADER_OVERHEAD_BYTES + header_bytes > max_payload:
                msg = f"an event of {len(message.payload):,} bytes and its headers exceed the server's limit of {max_payload:,}"
                raise DataError(msg)
        requests.append((message.subject, headers, message.payload))
    return requests


def _exchange(transport: Transport, requests: Sequence[Request], ends_at: float) -> Ack:
    _, payload = transport.answer(transport.send(requests), ends_at)
    if not payload:  # nobody was there to store it
        raise NoAnswerError
    return decode_ack(payload)


def _resolve(
    client: JetStreamClient, stream: str, messages: Sequence[OutgoingMessage], refusal: ApiError, deadline: Deadline
) -> Ack | None:
    """
    Find out what a refusal means: an earlier attempt of our own was stored (its answer), or a conflict, or an error.

    The server refuses the repetition of a stored append like that of a lost race. The difference is in the log: whose
    message follows the expected position. The subject's last message would not do, others may have appended since.
    None: nothing follows, for now, or the server is not ready; so try again.
    """
    fault = refusal.fault
    if fault.err_code not in CONTESTED_CODES:
        if refusal.is_transient:
            return None
        raise translate(fault, doing=f"appending to {stream}")
    # The number is a sequence of the stream, not a count of the subject's messages.
    last = _WRONG.search(fault.description)
    ours = _stored(client, stream, messages, deadline)
    if ours is not None:
        return ours
    if last is not None and any(
        int(last[1]) > message.expected for message in messages if message.expected is not None
    ):
        return None  # something does follow, and who answered the question does not know it yet
    if fault.err_code == WRONG_LAST_SEQUENCE:
        msg = f"nothing follows the expected positions in {stream}: {fault}. The log lost what was stored there, or it was erased"
        raise SlotEmptyError(msg)
    # The slot is not ours, or it would have said so: the id was given to something else.
    if fault.err_code == DUPLICATE_IN_BATCH:
        msg = f"a message id was used before for something else: {fault}"
        raise ProgrammingError(msg)
    return None


def _stored(
    client: JetStreamClient, stream: str, messages: Sequence[OutgoingMessage], deadline: Deadline
) -> Ack | None:
    """The answer to an append that was stored; None when nothing follows the expected positions. Else `SlotTakenError`."""
    for index, message in enumerate(messages):
        # Later messages of a batch follow the first one of their subject: who has the first slot has all.
        if message.expected is None:
            continue
        subject = message.headers.get(EXPECTED_ON, message.subject)
        taken = next_on_subject(client, stream, subject, message.expected + 1, deadline)
        if taken is None:
            continue
        if taken.headers.get(MESSAGE_ID) == message.headers[MESSAGE_ID]:
            # Nobody writes in between the messages of a batch, so one position gives all others.
            return Ack(last=taken.position - index + len(messages) - 1)
        msg = f"somebody else appended in between: {message.subject}: {taken.position} follows {message.expected}"
        raise SlotTakenError(msg)
    return None
