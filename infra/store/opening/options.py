"""
The arguments of `open`, and what they make of a log that is open.

What a store consists of is imported when there is a log: a server that is started for it gets ready meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar, get_args

from chatledger.domain.errors import ConfigurationError
from chatledger.domain.log.codec import MAX_EVENT_BYTES
from chatledger.domain.log.large_data import LARGE_BYTES, MAX_MESSAGE_BYTES
from chatledger.domain.log.shares import check_share
from chatledger.domain.values import Progress, no_progress
from chatledger.projections.lmdb.environment import absolute_path, check_path

from ...log.nats.endpoint import Login
from ...log.nats_server.directory import Durability
from ..temp_folders import Scratch
from . import DEFAULT_LOCATION
from .nats_locations import check_replicas
from .presence import without_secrets

if TYPE_CHECKING:
    from chatledger.domain.search.embedding import Embedding
    from chatledger.projections.custom.records import Projection
    from chatledger.projections.index import Index
    from chatledger.projections.snapshot import Refuse

    from ...log.mapper import StructMapper
    from ...log.port import EventLog
    from ...log.witness import Witness
    from ..redactor import Redact, Redactor
    from ..store import Store
    from .encryption import Encryption

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


def _checked_encryption(encryption: Encryption | None) -> Encryption | None:
    if encryption is None:
        return None
    from .encryption import Encryption

    return _checked_type(encryption, Encryption, "encryption must be a chatledger.Encryption")


def _checked_embedding(embed: Embedding | None) -> Embedding | None:
    if embed is None:
        return None
    from chatledger.domain.search.embedding import check_embedding

    return check_embedding(embed)


def _checked_projections(projections: Sequence[Projection]) -> tuple[Projection, ...]:
    if projections == ():
        return ()
    from ..custom_projections import check_projections

    return check_projections(projections)


def _checked_redactor(redact: Redact | Iterable[Redact] | None) -> Redactor | None:
    if redact is None:
        return None
    from ..redactor import check_redact

    return check_redact(redact)


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
        redact: Redact | Iterable[Redact] | None = None,
        read_only: bool = False,
    ) -> None:
        _checked_type(max_event_bytes, int, "max_event_bytes must be a whole number")
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
        self.index = None if index is None else check_path(absolute_path(index))
        self.durability: Durability = _checked_word(durability, Durability, "durability")
        self.create = _checked_type(create, bool | None, "create must be True or False")
        self.progress = _checked_type(progress or no_progress, Callable, "progress must be a function")
        self.timeout_s, self.max_event_bytes, self.max_message_bytes = timeout_s, max_event_bytes, max_message_bytes
        self.encryption, self.embed = _checked_encryption(encryption), _checked_embedding(embed)
        self.compression = _checked_word(compression, Compression, "compression")
        self.projections, self.redactor = _checked_projections(projections), _checked_redactor(redact)
        self.login = _checked_type(login, Login | None, "login must be a chatledger.Login")
        self.replicas, self.share = check_replicas(replicas), check_share(share)
        self.erase: Erase = _checked_word(erase, Erase, "erase")
        self.read_only = _checked_type(read_only, bool, "read_only must be True or False")

    meanwhile: Callable[[], object] = staticmethod(lambda: None)
    """Called while a server starts: whoever opens the log has something to import, too."""
    refuse: Refuse | None = None
    """Refuses streams that lost events; None where there are none."""

    @cached_property
    def mapper(self) -> StructMapper:
        """Return the mapper of the log. Raises `ConfigurationError` when keys or libraries are missing."""
        from eventsourcing.persistence import JSONTranscoder

        from ...log.cipher import RecordCipher
        from ...log.mapper import StructMapper, ZstdCompressor
        from .encryption import keyring_of

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
        if self.encryption is not None:
            from .encryption import check_index

            _ = self.mapper
            check_index(self.encryption, self.index)

    @cached_property
    def scratch(self) -> Scratch:
        """Return the place for temporary data derived from the log."""
        if self.encryption is None:
            return Scratch()
        from .encryption import scratch_beside

        return scratch_beside(self.index)

    def witness(
        self, folder: Path, log: EventLog, *, is_synced: bool = True, is_shared: bool = False
    ) -> Witness | None:
        """Return the witness that notes how far the log goes; None for a log that is only looked at."""
        from ...log.witness import SharedWitness, Witness

        shared = SharedWitness(log) if is_shared else None
        return Witness(folder, identity=_identity(log), is_synced=is_synced, shared=shared)

    def get_ready(self) -> None:
        """Import, while a server starts, what `store` and its caller need."""
        _ = self.mapper
        _store_class()
        _index_class()
        self.meanwhile()

    def store(self, opened: OpenedLog) -> Store:
        """Return the store of a log, with its index."""
        try:
            from ..shares import ShareStore
            from .encryption import IndexInMemory, index_folder

            # Before anything is derived from the log.
            opened.log.check_keys()
            identity = _identity(opened.log)
            if self.encryption is None or self.index is not None or opened.witness is None:
                folder, is_kept = self.index or opened.index_folder, bool(self.index or opened.witness)
                index = _index_class()(folder, identity=identity, is_kept=is_kept)
            else:  # its messages would lie in clear beside the log
                index = IndexInMemory(index_folder(identity), opened.witness.folder, identity=identity)
            index.refuse = self.refuse or index.refuse
            for projection in self.projections:
                index.custom.add(projection)
        except BaseException:
            opened.close()
            raise
        share = opened.log.share
        store = (_store_class() if share is None else partial(ShareStore, share=share))(
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
        store.redactor = self.redactor
        return store

    def with_witness(self, log: EventLog, index: Path, folder: Path | None = None) -> OpenedLog:
        """Return a log whose witness stands in a folder; by default beside the index, not inside: that may be removed."""
        root = self.index or index
        witness = self.witness(folder or root.with_name(f"{root.name}-witness"), log, is_shared=folder is None)
        return OpenedLog(log, index, witness, () if witness is None else (witness.close,))


def _store_class() -> type[Store]:
    from ..store import Store

    return Store


def _index_class() -> type[Index]:
    from chatledger.projections.index import Index

    return Index


class LogOnly(OpenOptions):
    """Options with which a location gives its log without an index: to restore into it, or to diagnose a ledger that does not open."""

    def witness(self, folder: Path, log: EventLog, *, is_synced: bool = True, is_shared: bool = False) -> None:
        """Nothing is written, so nothing is noted."""


def _identity(log: EventLog) -> str:
    """The identity of what an index is built from: the log, or a share of it."""
    return log.identity if log.share is None else f"{log.identity} share {log.share}"


def cache_of(log: EventLog) -> Path:
    """Where the index of a log elsewhere is kept, unless it is given."""
    import platformdirs

    from .encryption import folder_name

    return platformdirs.user_cache_path("chatledger") / folder_name(_identity(log))
