"""Accepting that a chat lost events, so that what is left of it is served again."""

import os

from chatledger.domain.errors import ConfigurationError

from ..clock import clock_ms
from ..embedded import DataDirectory
from ..quarantine import Quarantine, QuarantinedStream


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
        CorruptStateError: The notes of the quarantine can not be read.
    """
    text = os.fspath(location)
    directory = DataDirectory(text).path
    if "://" in text or text == "memory:" or not directory.is_dir():
        msg = f"{text!r} is no directory; only repaired directories have a quarantine"
        raise ConfigurationError(msg)
    return Quarantine(directory).give_up(chat_id, now=clock_ms())
