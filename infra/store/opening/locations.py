"""From a location to a log and an index."""

import os
import shutil
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager, nullcontext
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeVar, get_args

import platformdirs
from eventsourcing.persistence import JSONTranscoder

from chatledger.domain.errors import ChainIntegrityError, ConfigurationError, LedgerLockedError, ResourceError
from chatledger.domain.log.codec import MAX_EVENT_BYTES
from chatledger.domain.log.large_data import LARGE_BYTES, MAX_MESSAGE_BYTES
from chatledger.domain.log.shares import check_share
from chatledger.domain.search.embedding import Embedding, check_embedding
from chatledger.domain.values import Progress, no_progress
from chatledger.projections.custom.projection import Projection
from chatledger.projections.index import Index
from chatledger.projections.lmdb.environment import absolute_path, check_path
from chatledger.projections.lmdb.system_errors import system_errors
from chatledger.projections.snapshot import Refuse, SettledIndex, refuse_nothing

from ...log.cipher import RecordCipher
from ...log.compression import ZstdCompressor
from ...log.mapper import StructMapper
from ...log.memory import MemoryLog
from ...log.nats.client import JetStreamClient
from ...log.nats.endpoint import Login
from ...log.nats.errors import StreamAbsentError
from ...log.nats.event_log import CopiedLog, JetStreamLog
from ...log.nats_server.directory import DataDirectory, Durability
from ...log.nats_server.lock import unowned
from ...log.nats_server.server import EmbeddedSource
from ...log.port import EventLog
from ...log.witness import SharedWitness, Witness, read_last_seen
from ..custom_projections import check_projections
from ..quarantine import Quarantine
from ..shares import ShareStore
from ..store import Store
from ..temp_folders import Scratch
from . import DEFAULT_LOCATION, STREAM
from .at_rest import note_at_rest
from .encryption import (
    Encryption,
    IndexInMemory,
    check_index,
    folder_name,
    index_folder,
    keyring_of,
    scratch_beside,
)
from .nats_locations import check_replicas, read_place, without_secrets
from .presence import is_alchemy, sqlite_file
from .registry import SharedStore, acquire

T = TypeVar("T")
Compression = Literal["zstd", "none"]
Erase = Literal["soon", "wait"]
_MOST_MESSAGE_BYTES: Final = 1024 * 1024 * 1024  # what a row of the index takes, with room to spare
_LEAST_EVENT_BYTES: Final = 32 * 1024  # ids and names of 2,048 bytes each have to fit


class OpenedLog(NamedTuple):
    """
    The log at a location.

    Args:
        log: It is open.
        index_folder: Where its index lies, unless another one is asked for.
        witness: Notes how far the log goes; None where nothing is to be noted.
        on_close: Called in order after the log was closed, e.g. to stop its server.
        on_served: Called with its index when that serves, and lies where it lies by default.
    """

    log: EventLog
    index_folder: Path
    witness: Witness | None = None
    on_close: tuple[Callable[[], object], ...] = ()
    on_served: Callable[[Index], object] = lambda _: None

    def close(self) -> None:
        """Close the log, and stop its server if it is ours."""
        self.log.close()
        for action in self.on_close:
            action()


def _checked_word(word: T, words: Any, name: str) -> T:
    """Return one of the words of a literal type. Raises `ConfigurationError` for any other."""
    allowed = get_args(words)
    if word not in allowed:
        msg = f"{name} must be {' or '.join(map(repr, allowed))}, not {word!r}"
        raise ConfigurationError(msg)
    return word


def _checked_type(value: T, kind: Any, what: str) -> T:
    """Return a value of a type. Raises `ConfigurationError` for any other, which says `what` is wanted."""
    if not isinstance(value, kind):
        msg = f"{what}, not {type(value).__name__}"
        raise ConfigurationError(msg)
    return value


class OpenOptions:
    """The arguments of `chatledger.open`, which describes them."""

    def __init__(
        self,
        location: str | os.PathLike[str] = DEFAULT_LOCATION,
        *,
        index: str | os.PathLike[str] | None = None,
        durability: Durability = "always",
        create: bool | None = None,
        progress: Progress | None = None,
        timeout_s: float = 15.0,
        max_event_bytes: int = MAX_EVENT_BYTES,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        encryption: Encryption | None = None,
        compression: Compression = "zstd",
        sweep_every_s: float | None = None,
        projections: Sequence[Projection] = (),
        login: Login | None = None,
        replicas: int | None = None,
        share: tuple[int, int] | None = None,
        embed: Embedding | None = None,
        erase: Erase = "soon",
    ) -> None:
        if max_event_bytes < _LEAST_EVENT_BYTES:
            msg = f"max_event_bytes must be a number of at least {_LEAST_EVENT_BYTES:,}, not {max_event_bytes!r}"
            raise ConfigurationError(msg)
        is_number = isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool)  # pyright: ignore[reportUnnecessaryIsInstance] - users'
        if not is_number or not timeout_s > 0:
            msg = f"timeout_s must be a number of seconds above 0, not {timeout_s!r}"
            raise ConfigurationError(msg)
        is_whole = isinstance(max_message_bytes, int)  # pyright: ignore[reportUnnecessaryIsInstance] - users'
        if not is_whole or not LARGE_BYTES <= max_message_bytes <= _MOST_MESSAGE_BYTES:
            limits = f"{LARGE_BYTES:,} to {_MOST_MESSAGE_BYTES:,}"
            msg = f"max_message_bytes must be a number from {limits}, not {max_message_bytes!r}"
            raise ConfigurationError(msg)
        _checked_type(index, str | os.PathLike | None, "index must be the path of a folder")
        self.location, self.sweep_every_s = location, sweep_every_s
        self.index = None if index is None else absolute_path(index)
        if self.index is not None:
            check_path(self.index)
        self.durability: Durability = _checked_word(durability, Durability, "durability")
        self.create = create
        self.progress = progress or no_progress
        self.timeout_s, self.max_event_bytes, self.max_message_bytes = timeout_s, max_event_bytes, max_message_bytes
        self.encryption = _checked_type(encryption, Encryption | None, "encryption must be a chatledger.Encryption")
        self.compression = _checked_word(compression, Compression, "compression")
        self.projections, self.embed = check_projections(projections), check_embedding(embed)
        self.login = _checked_type(login, Login | None, "login must be a chatledger.Login")
        self.replicas, self.share = check_replicas(replicas), check_share(share)
        self.erase: Erase = _checked_word(erase, Erase, "erase")
        self.refuse: Refuse = refuse_nothing

    @cached_property
    def mapper(self) -> StructMapper:
        """Return the mapper of the log. Raises `ConfigurationError` when keys or libraries are missing."""
        return StructMapper(
            JSONTranscoder(),
            compressor=None if self.compression == "none" else ZstdCompressor(),
            cipher=None if self.encryption is None else RecordCipher(keyring_of(self.encryption)),
        )

    def check_place(self, scheme: str, location: str) -> None:
        """Raise `ConfigurationError` where something is said that is about servers only."""
        if scheme not in {"nats", "tls"} and (self.login, self.replicas, self.share) != (None, None, None):
            msg = (
                f"login, replicas and share are for nats:// and tls:// locations, not for {without_secrets(location)!r}"
            )
            raise ConfigurationError(msg)

    def prepare(self) -> None:
        """Raise `ConfigurationError` before anything is made, where keys or a place for the index are missing."""
        _ = self.mapper
        if self.encryption is not None:
            check_index(self.encryption, self.index)

    @cached_property
    def scratch(self) -> Scratch:
        """Return the place for temporary data derived from the log."""
        return Scratch() if self.encryption is None else scratch_beside(self.index)

    def witness(
        self, folder: Path, log: EventLog, *, is_synced: bool = True, is_shared: bool = False
    ) -> Witness | None:
        """Return the witness that notes how far the log goes; None for a log that is only looked at."""
        shared = SharedWitness(log) if is_shared else None
        return Witness(folder, identity=_identity(log), is_synced=is_synced, shared=shared)

    def store(self, opened: OpenedLog) -> Store:
        """Return the store of a log, with its index."""
        try:
            # Before anything is derived from the log.
            opened.log.check_keys()
            identity = _identity(opened.log)
            if self.encryption is None or self.index is not None or opened.witness is None:
                index = Index(self.index or opened.index_folder, identity=identity)
            else:  # its messages would lie in clear beside the log
                index = IndexInMemory(index_folder(identity), opened.witness.folder, identity=identity)
            index.refuse = self.refuse
            for projection in self.projections:
                index.custom.add(projection)
        except BaseException:
            opened.close()
            raise
        share = opened.log.share
        store = (Store if share is None else partial(ShareStore, share=share))(
            opened.log,
            index,
            on_close=opened.on_close,
            max_event_bytes=self.max_event_bytes,
            max_message_bytes=self.max_message_bytes,
            progress=self.progress,
            scratch=self.scratch,
            witness=opened.witness,
        )
        if self.index is None and self.encryption is None:
            opened.on_served(index)
        store.erases_soon = self.erase == "soon"
        return store

    def with_witness(self, log: EventLog, index: Path, folder: Path | None = None) -> OpenedLog:
        """Return a log whose witness stands in a folder; by default beside the index, not inside: that may be removed."""
        root = self.index or index
        witness = self.witness(folder or root.with_name(f"{root.name}-witness"), log, is_shared=folder is None)
        return OpenedLog(log, index, witness, () if witness is None else (witness.close,))


@system_errors("the ledger cannot be opened")
def open_shared(options: OpenOptions) -> SharedStore:
    """
    Return the store that the options name, shared with others who have it open in this process.

    Raises:
        ConfigurationError: There can be no ledger at that location.
        ChatledgerError: See `chatledger.open`.
    """
    location = options.location
    text = os.fspath(location) if isinstance(location, str | os.PathLike) else ""
    if not text:
        msg = "the location must be text: give the path of a directory, or see chatledger.open for other places"
        raise ConfigurationError(msg)
    # Before a directory, a file or a stream is made that could not be opened then.
    options.prepare()
    scheme = text.partition("://")[0] if "://" in text else "path"
    options.check_place(scheme, text)
    if text == "memory:":
        folder = options.scratch.take()
        opened = OpenedLog(MemoryLog(options.mapper), folder.path, on_close=(folder.remove,))
        shared = acquire(None, lambda: SharedStore(None, text, options.store(opened), options.durability))
        shared.store.meaning.attach(options.embed)
        return shared
    opener = _opener(scheme)
    if opener is None:
        msg = (
            f"unknown location {without_secrets(text)!r}: give the path of a directory, nats://host:port, "
            "sqlite:///file.db, postgresql://…, memory:, or a database of SQLAlchemy with its driver, such as mysql+pymysql://…"
        )
        raise ConfigurationError(msg)
    # Two ways to one directory are one ledger.
    name = os.path.realpath(DataDirectory(text).path) if scheme == "path" else text
    shown = text if scheme == "path" else without_secrets(text)
    key = f"{name}\n{options.index or ''}\n{hash(options.login)}\n{options.share}"
    shared = acquire(key, lambda: SharedStore(key, shown, options.store(opener(text, options)), options.durability))
    if options.durability == "always" and shared.durability == "fast":
        shared.release()
        msg = f"{shown} is open in this process with durability 'fast', which is less than 'always'; close it first"
        raise ConfigurationError(msg)
    # Who cannot show the keys must not get the messages by way of another part of the process that has them.
    cipher, wanted = shared.store.log.cipher, options.mapper.cipher
    if (cipher and cipher.keys) != (wanted.keys if isinstance(wanted, RecordCipher) else None):
        shared.release()
        msg = f"{shown} is open in this process with other encryption keys, or without; close it first"
        raise ConfigurationError(msg)
    if options.erase == "wait":  # whoever asked for less gets more
        shared.store.erases_soon = False
    try:
        shared.store.projections.attach(options.projections, options.progress)
        shared.store.meaning.attach(options.embed)
    except BaseException:
        shared.release()
        raise
    return shared


def _open_path(location: str, options: OpenOptions) -> OpenedLog:
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
        opened = _open_directory(DataDirectory(copy), options, kind=CopiedLog)
    except BaseException:
        folder.remove()
        raise
    return opened._replace(on_close=(*opened.on_close, folder.remove))


def _open_directory(
    directory: DataDirectory, options: OpenOptions, *, kind: type[JetStreamLog] = JetStreamLog
) -> OpenedLog:
    directory.prepare()
    options.refuse = Quarantine(directory.path).refusal()
    # A stream that is known here but not to the server is lost, and creating it would delete what is left of it.
    is_known = (
        directory.has_stream(STREAM)
        or (directory.index / "CURRENT").exists()
        or read_last_seen(directory.witness) is not None
    )
    if is_known and not directory.has_stream(STREAM):
        msg = (
            f"the log in {directory.path} is gone: {directory.log} holds no stream {STREAM!r}, though events were seen in it. Put that "
            f"folder back, or restore a backup with 'chatledger restore'. To begin anew, with nothing, give another directory"
        )
        raise ChainIntegrityError(msg)
    source = EmbeddedSource(directory, durability=options.durability, stream=STREAM, timeout_s=options.timeout_s)
    try:
        source()  # in this thread, so that its errors reach the caller as they are
        client = JetStreamClient(
            source,
            timeout_s=options.timeout_s,
            erasing=source.erasing,
            why_full=directory.why_full,
            sync_stream=directory.sync_stream,
            sync_messages=source.sync_messages,
        )
        try:
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


class _Closing:
    """
    Stops the server, if it is ours, and lets the witness know whether all is on the disk then.

    Args:
        source: Of the server.
        witness: Of its log.
        note: Notes that the directory is at rest, if it is.
    """

    def __init__(self, source: EmbeddedSource, witness: Witness | None, note: Callable[[SettledIndex], object]) -> None:
        self._source, self._witness, self._note = source, witness, note
        self._index: Index | None = None

    def has_served(self, index: Index) -> None:
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


def _open_nats(location: str, options: OpenOptions) -> OpenedLog:
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
        return options.with_witness(log, _cache(_identity(log)))
    except BaseException:
        client.close()
        raise


def _open_sqlite(location: str, options: OpenOptions) -> OpenedLog:
    from ...log.sql import SqliteLog

    path = _checked_sqlite_file(location)
    log = SqliteLog(str(path), mapper=options.mapper)
    return options.with_witness(log, path.with_name(f"{path.name}-index"), path.with_name(f"{path.name}-witness"))


def _checked_sqlite_file(location: str) -> Path:
    """The file of a location on SQLite. Raises `ConfigurationError` when it can be none."""
    path = sqlite_file(location)
    check_path(path)  # its index lies beside it
    if path.is_dir() or not path.parent.is_dir():
        msg = f"{path} cannot be an SQLite file: its folder does not exist, or it is a folder"
        raise ConfigurationError(msg)
    return path


def _open_alchemy(location: str, options: OpenOptions) -> OpenedLog:
    scheme = location.partition("://")[0]
    try:
        from ...log.alchemy.event_log import AlchemyLog
    except ImportError as error:
        extra = "postgres" if scheme.startswith("postgres") else "sqlalchemy"
        msg = f"{scheme}:// needs SQLAlchemy: pip install 'chatledger[{extra}]'"
        raise ConfigurationError(msg) from error
    if not scheme.startswith("sqlite+"):
        log = AlchemyLog(location, timeout_s=options.timeout_s, mapper=options.mapper)
        return options.with_witness(log, _cache(log.identity))
    path = _checked_sqlite_file(location)
    log = AlchemyLog(f"{scheme}:///{path}", timeout_s=options.timeout_s, mapper=options.mapper)
    return options.with_witness(log, path.with_name(f"{path.name}-index"), path.with_name(f"{path.name}-witness"))


def _identity(log: EventLog) -> str:
    """The identity of what an index is built from: the log, or a share of it."""
    return log.identity if log.share is None else f"{log.identity} share {log.share}"


def _cache(identity: str) -> Path:
    """Where the index of a log elsewhere is kept, unless it is given."""
    return platformdirs.user_cache_path("chatledger") / folder_name(identity)


def open_unshared(options: OpenOptions) -> OpenedLog:
    """Open the log that the options name, for nobody else of this process to share."""
    text = os.fspath(options.location)
    scheme = text.partition("://")[0] if "://" in text else "path"
    opener = _opener(scheme)
    if opener is None:
        msg = (
            f"{without_secrets(text)!r} is no place that outlives its process: give a directory, nats://, sqlite://, postgresql:// "
            "or a database of SQLAlchemy with its driver"
        )
        raise ConfigurationError(msg)
    options.check_place(scheme, text)
    options.prepare()
    return opener(text, options)


_OPENERS: Final[dict[str, Callable[[str, OpenOptions], OpenedLog]]] = {
    "path": _open_path,
    "nats": _open_nats,
    "tls": _open_nats,
    "sqlite": _open_sqlite,
}


def _opener(scheme: str) -> Callable[[str, OpenOptions], OpenedLog] | None:
    """Return the function that opens locations of a scheme, None for an unknown one."""
    return _open_alchemy if is_alchemy(scheme) else _OPENERS.get(scheme)


class LogOnly(OpenOptions):
    """Options with which a location gives its log without an index: to restore into it, or to diagnose a ledger that does not open."""

    def witness(self, folder: Path, log: EventLog, *, is_synced: bool = True, is_shared: bool = False) -> None:
        """Nothing is written, so nothing is noted."""


@contextmanager
def log_at(options: LogOnly) -> Generator[EventLog]:
    """Open the log that the options name. Raises `ChatledgerError` as `chatledger.open` does, where that is not about the index."""
    with closing(open_unshared(options)) as opened:
        yield opened.log
