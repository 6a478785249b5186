"""
Large data beside the log: stored once, in chunks, and erased when nothing refers to them any more.

The data of a digest have a strand of entries (see `blob_strands`), whose last one says how they stand:

    chunk …    somebody is storing them
    in use     complete; a writer is about to refer to them in an event
    at rest    complete; all writers that were about to refer to them have done so, or have not
    dying      nothing refers to them; what stands before this entry is never used again, and is being erased

Names say nothing of what is stored: a strand is called by the HMAC-SHA-256 of the digest, under the log's key where it is
encrypted, and else under 32 random bytes, which have a strand of their own. Where large data go, to another log, they are named anew.

Every entry is added behind the last one that its writer has seen, so two who disagree never both succeed. What is marked as
dying was at rest, or its writers have had their time, and no event up to the end of the log referred to it *after* that was
seen. A writer that came in between has added an entry, and the mark is refused. So what an event refers to is never erased.
"""

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from hmac import digest as hmac_digest
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

import msgspec

from chatledger.domain.errors import DECODE_ERRORS, ChatledgerError, CorruptStateError, LogUnavailableError

from .blob_storage import BlobChangedError, BlobStorage

if TYPE_CHECKING:
    from .cipher import Keyring

T = TypeVar("T")

LEASE_MS: Final = 60 * 60 * 1000
"""The time a writer may take from storing data to the event. After that a crashed one does not keep them from erasure."""
_STALLED_S: Final = 2.0
"""A writer that stores no chunk for so long is taken for dead, and another one begins anew."""
_PAUSE_S: Final = 0.02
_NAME_KEY: Final = b"chatledger names of large data"
NAMES_STRAND: Final = "names"
"""The strand of the secret that names depend on. It stays when all data are erased."""
_SECRET_BYTES: Final = 32
_SUFFIX_CHARACTERS: Final = 16

_PLAIN: Final = b"\0"
"""Before the data of a chunk, which could begin with what marks an encrypted or a compressed record."""

_CHUNK, _IN_USE, _AT_REST, _DYING, _SECRET = range(5)


class MissingBlobError(Exception):
    """Large data that an event refers to are not there, or the event is not there any more either."""


class Packer(Protocol):
    """Compression and encryption of chunks."""

    def pack(self, data: bytes, place: tuple[str, int, str]) -> bytes:
        """The record of these bytes at a place: a name, a number and a kind."""
        ...

    def unpack(self, record: bytes, place: tuple[str, int, str]) -> bytes:
        """The bytes of the record. Raises `CorruptStateError`."""
        ...

    @property
    def keyring(self) -> "Keyring | None":
        """The keys that it encrypts with; None when it does not."""
        ...


class _Upload(msgspec.Struct, frozen=True, array_like=True):
    """Data that are complete: `count` chunks, the first and the last of which are at these positions."""

    id: str
    count: int
    size: int
    first: int
    last: int


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    """`at` is when a chunk was written, in ms, and `until` how long an entry in use is heeded, both by the clock of the storage."""

    kind: int
    at: int
    upload: _Upload | None = None
    until: int = 0
    upload_id: str = ""
    number: int = 0
    data: bytes = b""


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Entry).decode


def _decoded(raw: bytes) -> _Entry | None:
    try:
        return _decode(raw)
    except DECODE_ERRORS:
        return None


class Chunk(NamedTuple):
    """A part of large data: its record, of which upload it is, and which part of that."""

    upload_id: str
    number: int
    data: bytes


class EntryPart(NamedTuple):
    """One of these, which is what an entry says: a part of large data, the id of an upload that is complete, the secret of names."""

    chunk: Chunk | None = None
    completed: str = ""
    secret: bytes | None = None


def part_in(raw: bytes) -> EntryPart:
    """Return what an entry says; nothing where it cannot be read, as what others published."""
    entry = _decoded(raw)
    if entry is None:
        return EntryPart()
    chunk = Chunk(entry.upload_id, entry.number, entry.data) if entry.kind == _CHUNK else None
    completed = "" if entry.upload is None else entry.upload.id
    return EntryPart(chunk, completed, entry.data if entry.kind == _SECRET else None)


class Hold(NamedTuple):
    """Keeps data from being erased until `Blobs.release`."""

    name: str
    position: int
    upload: _Upload


class Blobs:
    """
    The large data of one log.

    `storage`: where they lie. Its clock says whether a writer has had its time: those of two clients may be hours apart.
    """

    def __init__(self, storage: BlobStorage, packer: Packer) -> None:
        self._storage, self._packer = storage, packer
        self._secret: bytes | None = None

    def referring(self, contents: Sequence[tuple[bytes, memoryview]], write: Callable[[], T]) -> T:
        """
        Store data, each with its digest, and do what refers to them; they are not erased in between.

        Raises:
            LogUnavailableError: It took too long; or what `write` raises.
        """
        begun_s = time.monotonic()
        holds = [self.hold(digest, data) for digest, data in dict(contents).items()]
        # Half of the lease is left for the append of the event that refers to them.
        if time.monotonic() - begun_s > LEASE_MS / 2000:
            msg = "storing the large data took too long; try again, what was stored is found then"
            raise LogUnavailableError(msg)
        try:
            written = write()
        except LogUnavailableError:
            raise  # it may have happened; the holds end by themselves
        except Exception:
            self._release(holds)
            raise
        self._release(holds)
        return written

    def _release(self, holds: Iterable[Hold]) -> None:
        for hold in holds:
            try:
                self.release(hold)
            except ChatledgerError:  # what was to be done is done; the hold ends by itself
                return

    def hold(self, digest: bytes, data: memoryview) -> Hold:
        """Store data unless they are there, and keep them from being erased."""
        self._make_secret()
        # By the storage's clock: compared with that of another client, an hour ahead, what was about to be referred to was erased.
        name, now = self._names(digest)[0], self._storage.now_ms()
        seen, since_s = 0, time.monotonic()
        while True:
            expected, entry = self._last(name)
            if expected != seen:
                # Each new entry is a sign of life of whoever stores the same data; two that upload at once would refuse each other.
                seen, since_s = expected, time.monotonic()
            try:
                if entry is not None and entry.upload is not None:
                    return self._use(name, entry.upload, expected, now)
                is_free = entry is None or entry.kind == _DYING
                if is_free or time.monotonic() - since_s > _STALLED_S:
                    hold = self._use(name, *self._upload(name, data, expected, now), now)
                    # What stood before is of no use any more. Where it cannot be removed, it goes with the new data.
                    with contextlib.suppress(ChatledgerError):
                        if expected:
                            self._storage.erase(name, until=expected)
                    return hold
            except BlobChangedError:
                continue
            time.sleep(_PAUSE_S)

    def _use(self, name: str, upload: _Upload, expected: int, now: int) -> Hold:
        entry = _Entry(_IN_USE, now, upload, now + LEASE_MS)
        return Hold(name, self._storage.add(name, _encode(entry), expected=expected), upload)

    def _upload(self, name: str, data: memoryview, expected: int, now: int) -> tuple[_Upload, int]:
        # Each part behind the one before: where somebody else adds, the upload ends there, and `hold` looks again.
        upload_id, positions = uuid.uuid4().hex, [expected]
        step = self._storage.chunk_bytes
        for number, start in enumerate(range(0, len(data), step)):
            # Bound to its place, so that a part of other data, or of another upload, is not taken for it.
            record = self._packer.pack(_PLAIN + data[start : start + step], (name, number, upload_id))
            entry = _Entry(_CHUNK, now, upload_id=upload_id, number=number, data=record)
            positions.append(self._storage.add(name, _encode(entry), expected=positions[-1]))
        upload = _Upload(upload_id, len(positions) - 1, len(data), positions[1], positions[-1])
        return upload, positions[-1]

    def release(self, hold: Hold) -> None:
        expected = hold.position
        rest = _encode(_Entry(_AT_REST, 0, hold.upload))
        while True:
            try:
                position = self._storage.add(hold.name, rest, expected=expected)
                break
            except BlobChangedError:
                expected, entry = self._last(hold.name)
                if entry is None or entry.upload != hold.upload:
                    return  # it took longer than the lease
        self._tidy(hold, before=position)

    def _tidy(self, hold: Hold, *, before: int) -> None:
        """Remove what the entry at rest has replaced, so that a blob does not grow with its uses."""
        for stored in self._storage.read(hold.name, after=hold.upload.last, until=before - 1):
            entry = _decoded(stored.entry)
            if (
                entry is None
                or stored.position == hold.position
                or entry.kind == _AT_REST
                or entry.until < self._storage.now_ms()  # a request, for which nobody waits who is alone
            ):
                self._storage.remove(hold.name, stored.position)

    def get(self, digest: bytes, size: int) -> bytearray:
        """
        The data of a digest.

        Raises:
            MissingBlobError: They are not there, or not all of them.
            CorruptStateError: They are damaged.
        """
        data = self._find(digest)
        if data is None and self._secret is not None and self._look_for_secret() is None:
            # The storage was lost and made anew, by another process, since this one looked for the secret of names.
            data = self._find(digest)
        if data is None:
            msg = f"its large data, with SHA-256 {digest.hex()}, are missing"
            raise MissingBlobError(msg)
        if len(data) != size or sha256(data).digest() != digest:
            msg = f"its large data, with SHA-256 {digest.hex()}, were altered"
            raise CorruptStateError(msg)
        return data

    def _find(self, digest: bytes) -> bytearray | None:
        for name in self._names(digest):
            _, entry = self._last(name)
            if entry is not None and entry.upload is not None:
                return self._read(name, entry.upload)
        return None

    def _read(self, name: str, upload: _Upload) -> bytearray:
        data, count = bytearray(), 0
        for stored in self._storage.read(name, after=upload.first - 1, until=upload.last):
            entry = _decoded(stored.entry)
            if entry is None:
                continue
            if entry.upload_id != upload.id or entry.number != count:
                break
            data += self._unpacked(entry.data, (name, count, upload.id))
            count += 1
        if count != upload.count:
            msg = f"of its large data {upload.count - count:,} of {upload.count:,} parts are missing"
            raise MissingBlobError(msg)
        return data

    def _unpacked(self, record: bytes, place: tuple[str, int, str]) -> memoryview:
        return memoryview(self._packer.unpack(record, place))[len(_PLAIN) :]

    def drop(self, digest: bytes, *, is_used: Callable[[], bool]) -> bool:
        """
        Erase data, unless something refers to them.

        Args:
            digest: Their SHA-256.
            is_used: Says whether an event refers to them, up to the present end of the log.

        Returns:
            False when a writer is about to refer to them: ask again later.
        """
        done = [self.drop_name(name, is_used=is_used) for name in self._names(digest)]
        return all(done)

    def drop_name(self, name: str, *, is_used: Callable[[], bool]) -> bool:
        """Erase data by one of the names of their digest; see `drop`."""
        while True:
            last, entry = self._last(name)
            if entry is None:
                return True
            # The order is what keeps data safe: look at the last entry, then whether an event refers to them, then mark behind that entry.
            if entry.kind != _DYING:
                if self._is_in_use(name, last, entry):
                    return False
                if is_used():
                    return True
                try:
                    mark = _encode(_Entry(_DYING, 0))
                    position = self._storage.add(name, mark, expected=last)
                except BlobChangedError:
                    continue
            else:
                # Somebody marked them, and may have died before he erased: whoever comes next goes on.
                position = last
            self._storage.erase(name, until=position)
            return True

    def _last(self, name: str) -> tuple[int, _Entry | None]:
        """The position of the last entry, 0 when there is none, and the entry; of what others published the one before."""
        last = self._storage.last(name)
        if last is None:
            return 0, None
        entry = _decoded(last.entry)
        if entry is None:
            for stored in self._storage.read(name, after=0, until=last.position):
                entry = _decoded(stored.entry) or entry
        return last.position, entry

    def _is_in_use(self, name: str, last: int, entry: _Entry) -> bool:
        now = self._storage.now_ms()
        if entry.upload is None:
            return entry.at + LEASE_MS > now
        # Several may hold the same data; the last entry may be the rest of one while another one is still about to refer to them.
        tail = self._storage.read(name, after=entry.upload.last, until=last)
        entries = (_decoded(stored.entry) for stored in tail)
        return any(use is not None and use.until > now for use in entries)

    def unreferenced(self, digests: Iterable[bytes]) -> Iterator[str]:
        """The names of data that are none of these; without those that were named by a key or a secret that is not here."""
        stored = self.names()
        if not stored:
            return
        referenced = {name for digest in digests for name in self._names(digest)}
        suffixes = self._secrets()
        for name in stored:
            # One that was named by a key or a secret that is not here may be in use, for all we can tell.
            if name not in referenced and name.partition("-")[2] in suffixes:
                yield name

    def names(self) -> list[str]:
        """Return the names of all data that are stored, or about to be."""
        return [name for name in self._storage.names() if name != NAMES_STRAND]

    def has(self, name: str, digest: bytes) -> bool:
        return name in self._names(digest)

    def _make_secret(self) -> None:
        """Let there be a secret for names: that of the storage, whatever was there when it was last looked at, or a new one."""
        if self._packer.keyring is not None:
            return
        entry = _encode(_Entry(_SECRET, 0, data=os.urandom(_SECRET_BYTES)))
        while (end := self._look_for_secret()) is not None:
            with contextlib.suppress(BlobChangedError):
                self._storage.add(NAMES_STRAND, entry, expected=end)

    def _look_for_secret(self) -> int | None:
        """Look for the secret in the storage; the position behind which it is to be added when it is not there."""
        position, entry = self._last(NAMES_STRAND)
        if entry is None or entry.kind != _SECRET:
            self._secret = None
            return position
        self._secret = entry.data
        return None

    def _secrets(self) -> dict[str, bytes]:
        """The secrets of names by what they are called in these: one for each key, so that equal content does not show; the present one first."""
        keyring = self._packer.keyring
        if keyring is not None:
            return {key.id.encode().hex(): hmac_digest(key.secret, _NAME_KEY, "sha256") for key in keyring}
        if self._secret is None:
            self._look_for_secret()
        secret = self._secret
        return {} if secret is None else {sha256(_NAME_KEY + secret).hexdigest()[:_SUFFIX_CHARACTERS]: secret}

    def _names(self, digest: bytes) -> list[str]:
        """The names that data may have, the present one first."""
        return [f"{hmac_digest(secret, digest, 'sha256').hex()}-{suffix}" for suffix, secret in self._secrets().items()]
