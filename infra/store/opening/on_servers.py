"""Logs on NATS servers: that of a directory, whose server runs here, and those of servers elsewhere."""

import shutil
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from chatledger.domain.errors import ChainIntegrityError, LedgerLockedError, ResourceError

from ...log.nats_server.directory import DataDirectory, unowned
from ...log.nats_server.server import EmbeddedSource
from ...log.witness import Witness, read_last_seen
from ..temp_folders import Scratch
from . import STREAM
from .nats_locations import read_place
from .options import OpenedLog, OpenOptions, cache_of

if TYPE_CHECKING:
    from chatledger.projections.index import Index
    from chatledger.projections.snapshot import SettledIndex


def open_path(location: str, options: OpenOptions) -> OpenedLog:
    """Open a directory; one that cannot be written by way of a copy."""
    directory = DataDirectory(location)
    return (_open_copy if directory.is_read_only else _open_directory)(directory, options)


def _open_copy(directory: DataDirectory, options: OpenOptions) -> OpenedLog:
    """Open a private copy of a directory on a read-only file system, such as a snapshot: server and index write while they read."""
    has_lock = directory.lock_file.exists()
    with unowned(directory.lock_file) if has_lock else nullcontext(enter_result=True) as is_unowned:
        if not is_unowned:
            msg = (
                f"another process has {directory.path} open, and this one cannot write there; open it where it can be written, or "
                "close it"
            )
            raise LedgerLockedError(msg)
        # Copies of processes that were killed hold a whole ledger each.
        Scratch().remove_abandoned()
        folder = Scratch().take()
        copy = folder.path / "data"
        try:
            shutil.copytree(directory.path, copy)
        except OSError as error:
            folder.remove()
            msg = (
                f"{directory.path} is on a read-only file system, and is read from a copy in {folder.path.parent}, which cannot be "
                f"made: {error}. Name a folder with room for it in TMPDIR, and retry"
            )
            raise ResourceError(msg) from error
    try:
        opened = _open_directory(DataDirectory(copy), options, is_copy=True)
    except BaseException:
        folder.remove()
        raise
    return opened._replace(on_close=(*opened.on_close, folder.remove))


def _open_directory(directory: DataDirectory, options: OpenOptions, *, is_copy: bool = False) -> OpenedLog:
    directory.prepare()
    is_known = _is_known(directory)
    source = EmbeddedSource(
        directory,
        durability=options.durability,
        stream=STREAM,
        timeout_s=options.timeout_s,
        meanwhile=partial(_get_ready, options),
    )
    try:
        source()  # in this thread, so that its errors reach the caller as they are
        from ...log.nats.client import JetStreamClient
        from ...log.nats.errors import StreamAbsentError
        from ...log.nats.event_log import CopiedLog, JetStreamLog
        from ..quarantine import Quarantine
        from .at_rest import note_at_rest

        options.refuse = Quarantine(directory.path).refusal()
        client = JetStreamClient(
            source,
            timeout_s=options.timeout_s,
            erasing=source.erasing,
            why_full=directory.why_full,
            erasable=directory.erasable,
            sync_stream=directory.sync_stream,
            sync_messages=source.sync_messages,
        )
        try:
            kind = CopiedLog if is_copy else JetStreamLog
            log = kind(client, STREAM, create=not is_known, mapper=options.mapper)
        except BaseException as error:
            client.close()
            if isinstance(error.__cause__, StreamAbsentError):
                msg = (
                    f"nats-server cannot read the log in {directory.log}, and passes over it. 'chatledger doctor' says what is "
                    "damaged, and what can be repaired; else restore a backup"
                )
                raise ChainIntegrityError(msg) from error
            raise
        witness = options.witness(directory.witness, log, is_synced=source.is_synced)
        closing = _Closing(source, witness, partial(note_at_rest, directory, log.identity))
        return OpenedLog(log, directory.index, witness, (closing,), closing.has_served)
    except BaseException:
        source.close()
        raise


def _is_known(directory: DataDirectory) -> bool:
    """Whether a directory has a stream. Raises `ChainIntegrityError` where that is gone: to create it would delete what is left of it."""
    if directory.has_stream(STREAM):
        return True
    if (directory.index / "CURRENT").exists() or read_last_seen(directory.witness) is not None:
        msg = (
            f"the log in {directory.path} is gone: {directory.log} holds no stream {STREAM!r}, though events were seen in it. Put that "
            f"folder back, or restore a backup with 'chatledger restore'. To begin anew, with nothing, give another directory"
        )
        raise ChainIntegrityError(msg)
    return False


def _get_ready(options: OpenOptions) -> None:
    """Import what talks with a server while that starts, which takes as long."""
    from ...log.nats import event_log  # noqa: F401  # pyright: ignore[reportUnusedImport]

    options.get_ready()


class _Closing:
    """
    Stops the server, if it is ours, and lets the witness know whether all is on the disk then.

    Args:
        source: Of the server.
        witness: Of its log.
        note: Notes that the directory is at rest, if it is.
    """

    def __init__(
        self, source: EmbeddedSource, witness: Witness | None, note: "Callable[[SettledIndex], object]"
    ) -> None:
        self._source, self._witness, self._note = source, witness, note
        self._index: Index | None = None

    def has_served(self, index: "Index") -> None:
        """Let the note be written that is about this index. A ledger that could not be opened is to say so again."""
        self._index = index

    def __call__(self) -> None:
        left = None if self._index is None else self._index.left
        is_settled = self._source.close(on_settled=None if left is None else partial(self._note, left))
        if self._witness is not None:
            if is_settled:
                # Only where the server ended cleanly: then it has synced all, and a restart of the machine takes nothing.
                self._witness.settle()
            self._witness.close()


def open_nats(location: str, options: OpenOptions) -> OpenedLog:
    """Open a stream on servers elsewhere."""
    from ...log.nats.client import JetStreamClient
    from ...log.nats.event_log import JetStreamLog

    place = read_place(location, stream=STREAM, login=options.login, replicas=options.replicas, share=options.share)
    client = JetStreamClient(place.connect, timeout_s=options.timeout_s)
    try:
        log = JetStreamLog(
            client,
            place.stream,
            create=bool(options.create),
            replicas=place.new_replicas,
            mapper=options.mapper,
            share=place.share,
        )
        if options.create:
            # Now, by whoever may: logins for daily use may not create streams.
            log.make_streams()
        log.require_replicas(place.replicas)
        return options.with_witness(log, cache_of(log))
    except BaseException:
        client.close()
        raise
