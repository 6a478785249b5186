"""
A directory at rest: closed cleanly, with its index at the end of the log, and not changed since. Its index answers without a server.

The last process that closes a directory cleanly writes a note, the file `at-rest`: how far the index is, and a digest of what files
there are. The note holds as long as each file of the log, the seals, and the index is the one that was there: its inode, its size, the
time of its last write, and the time at which its inode was changed, which no program can set. Every start of a server writes the
seals anew, and so ends the note. So does a restart of the machine.

The bytes of the log are not read: what a disk changes by itself is noticed by the next start of a server.
"""

import contextlib
import os
from typing import Final

import lmdb
import msgspec
import xxhash

from chatledger.domain.errors import DECODE_ERRORS, ChatledgerError
from chatledger.projections.generations import IndexState
from chatledger.projections.snapshot import IndexReader, SettledIndex

from ...log.nats_server.directory import CHECKED, FORMAT_FILE, LOST_AND_FOUND, DataDirectory, unowned, write_private
from ...log.witness import boot_id, read_last_seen
from . import STREAM

NOTE_FILE: Final = "at-rest"
_EXPECTED: Final = {
    *(NOTE_FILE, FORMAT_FILE, CHECKED, LOST_AND_FOUND),
    *("index", "lock", "log", "nats.conf", "seals", "server.log", "witness"),
}
"""Anything else in a directory, such as a quarantine or an erasure under way, is left to opening it."""


_FILES: Final = (FORMAT_FILE, CHECKED, "seals", "index/CURRENT")


class RestNote(msgspec.Struct, frozen=True):
    """
    The content of `at-rest`.

    Args:
        boot: The run of the machine in which it was written.
        identity: Of the log.
        generation: The generation of the index.
        state: How far the index is, which is the end of the log.
        files: A digest of what files there are, see `_digest_of`.
    """

    boot: bytes
    identity: str
    generation: int
    state: IndexState
    files: bytes


def note_at_rest(directory: DataDirectory, identity: str, left: SettledIndex) -> None:
    """
    Note that a directory is at rest, if it is. Only for the holder of its lock, when the server has ended cleanly.

    Args:
        directory: With its index inside.
        identity: Of the log.
        left: How its index was left by the last process that had it open.
    """
    with contextlib.suppress(OSError):
        boot, number = boot_id(), left.generation_no
        # An index that is behind would give old answers, without a server to read the rest from.
        if boot and left.state.position == _end_of_log(directory):
            note = RestNote(boot, identity, number, left.state, _digest_of(directory, number))
            write_private(directory.path / NOTE_FILE, msgspec.msgpack.encode(note), is_synced=False)


def open_at_rest(directory: DataDirectory) -> IndexReader | None:
    """
    Open the index of a directory at rest, without a server; None where the directory is not at rest, or that cannot be known.

    The index that is returned is closed by the caller. Others may open the directory meanwhile, and write.
    """
    try:
        note = msgspec.msgpack.decode((directory.path / NOTE_FILE).read_bytes(), type=RestNote)
        # With owners kept out for the moment of the look, and no longer: what is read is the index, which may be read beside a writer.
        with unowned(directory.lock_file) as is_unowned:
            return _opened(directory, note) if is_unowned and _holds(directory, note) else None
    except (OSError, lmdb.Error, ChatledgerError, *DECODE_ERRORS):  # opening the directory says what is wrong
        return None


def read_note(directory: DataDirectory) -> RestNote | None:
    """Return the note of a directory at rest; None where it is not at rest, or that cannot be known."""
    try:
        note = msgspec.msgpack.decode((directory.path / NOTE_FILE).read_bytes(), type=RestNote)
        with unowned(directory.lock_file) as is_unowned:
            return note if is_unowned and _holds(directory, note) else None
    except (OSError, ChatledgerError, *DECODE_ERRORS):  # opening the directory says what is wrong
        return None


def _holds(directory: DataDirectory, note: RestNote) -> bool:
    """Whether nothing has changed since a note was written, and the witness knows of nothing later."""
    seen, state = read_last_seen(directory.witness), note.state
    if (
        seen is not None
        and seen.position >= state.position
        and seen not in {(state.position, b""), (state.position, state.hash)}
    ):
        return False
    return (
        note.boot == boot_id()
        and {path.name for path in directory.path.iterdir()} <= _EXPECTED
        and _digest_of(directory, note.generation) == note.files
    )


def _opened(directory: DataDirectory, note: RestNote) -> IndexReader | None:
    index = IndexReader(directory.index, identity=note.identity)
    try:
        if index.open() is None and index.generation_no == note.generation and index.state == note.state:
            return index
    except BaseException:
        index.close()
        raise
    index.close()
    return None


def _end_of_log(directory: DataDirectory) -> int | None:
    """The last position in the blocks of the log; None unless all of them are sealed."""
    from ...log.nats_server.seals import read_seals

    seals = read_seals(directory)
    if seals is None or not seals.is_clean:
        return None
    return max((seal.last for seal in seals.streams.get(STREAM, {}).values()), default=0)


def _digest_of(directory: DataDirectory, generation: int) -> bytes:
    """Return a digest of the files that a note is about: their names, inodes, sizes, and times of change. Raises `OSError`."""
    root = str(directory.path)
    files = [*_FILES, f"index/{generation:06d}/data.mdb"]
    for folder, _, names in os.walk(directory.log):
        inside = folder.removeprefix(root).lstrip("/")
        files += [f"{inside}/{name}" for name in names]
    described: list[str] = []
    for name in sorted(files):
        stat = os.lstat(f"{root}/{name}")
        described.append(f"{name} {stat.st_ino} {stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}\n")
    return xxhash.xxh3_128_digest("".join(described).encode(errors="surrogateescape"))
