"""Removing foreign messages from a log while it is in use, and giving up chats that lost events."""

import os

from chatledger.domain.chat.events import ChatDeleted
from chatledger.domain.errors import ConfigurationError
from chatledger.domain.log.codec import NO_HASH, EncodedEvent, Envelope, encode_events
from chatledger.domain.log.tombstones import removed_stream

from ...ledger.drafts import new_id
from ...log.envelope import clock_ms, draw_salts
from ...log.nats.endpoint import Login
from ...log.nats_server.directory import DataDirectory
from ...store.opening.encryption import Encryption
from ...store.opening.locations import LogOnly, log_at
from ...store.quarantine import Quarantine, QuarantinedStream
from .chains import ChainScan
from .diagnosing import stored_on
from .merging import DOCTOR


def remove_foreign(
    location: str | os.PathLike[str],
    *,
    encryption: Encryption | None,
    login: Login | None,
    timeout_s: float,
    reason: str,
) -> ChainScan:
    """
    Delete foreign messages, of which a tombstone says first that their positions are not those of lost events.

    Interrupted at any point, doing it again completes it.

    Returns:
        What was found before.
    """
    options = LogOnly(location, create=False, timeout_s=timeout_s, encryption=encryption, login=login)
    with log_at(options) as log:
        log.check_keys()
        scan = ChainScan(is_checked=log.is_checked)
        scan.run(stored_on(log), log.decode)
        # The tombstone first: a removal that is interrupted before it would look like lost events.
        fresh = [position for position, _, _ in scan.foreign if position > scan.removed_until]
        if fresh:
            stream = removed_stream(fresh[-1], new_id())
            log.append(stream, account_for(stream, fresh[0], len(fresh), reason), expected_position=0)
        log.remove([position for position, _, _ in scan.foreign])
        return scan


def account_for(stream: str, first: int, count: int, reason: str) -> list[EncodedEvent]:
    """Return the tombstone that accounts for so many positions without an event, from a first one on, in a stream of its own."""
    return encode_events(
        [ChatDeleted(first, count, message_count=0, branch_count=0, checkpoint_count=0)],
        stream_id=stream,
        version=count,
        previous_hash=NO_HASH,
        occurred_at=clock_ms(),
        event_ids=[new_id()],
        salts=draw_salts(),
        envelope=Envelope(actor=DOCTOR, correlation_id=reason),
    )


def give_up(location: str | os.PathLike[str], chat_id: str) -> QuarantinedStream:
    """
    Serve what is left of a chat that a repair put into quarantine. That it lost events stays noted there.

    Processes that have the ledger open refuse it until they open it again.

    Args:
        location: The directory of the ledger.
        chat_id: The chat; of a thread of agents or a state of a graph the id of its stream, as the doctor names it.

    Returns:
        How many events it has, and had at least.

    Raises:
        ConfigurationError: It is no directory of a ledger.
        NotFoundError: The chat is not in quarantine.
        CorruptStateError: The notes of the quarantine cannot be read.
    """
    text = os.fspath(location)
    directory = DataDirectory(text).path
    if "://" in text or text == "memory:" or not directory.is_dir():
        msg = f"{text!r} is no directory; only repaired directories have a quarantine"
        raise ConfigurationError(msg)
    return Quarantine(directory).give_up(chat_id, now=clock_ms())
