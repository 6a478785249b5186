"""Looking for what an erasure left: in every file, by a mark in clear, and by pieces of the records as they were stored."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
from tests.faults.deleting import CHAT_ACTS, MARKS, STREAMS, Act, Setting
from tests.support.block_world import read_blocks

from chatledger.infra.admin.doctor.store_files import StoreFiles, stream_folder
from chatledger.infra.log.blobs import NAMES_STRAND
from chatledger.infra.log.nats_server.blocks import BlockRecord
from chatledger.infra.log.nats_server.directory import DataDirectory
from chatledger.infra.store.opening import STREAM

PIECE_BYTES: Final = 24
_PIECES: Final = 6
_ENVELOPE_BYTES: Final = 160
"""A record begins with the id of its chat, and hashes that a tombstone may have too."""


class Pieces:
    """
    Bytes that are looked for.

    Args:
        mark: A word that stands for itself.
        pieces: Of `PIECE_BYTES` each.
    """

    def __init__(self, mark: bytes, pieces: list[bytes]) -> None:
        self._mark, self._pieces = mark, set(pieces)
        self._words = np.unique(np.array([int.from_bytes(piece[:8], "little") for piece in pieces], dtype=np.uint64))
        self._table = np.zeros(1 << 16, dtype=np.bool_)
        self._table[self._words & np.uint64(0xFFFF)] = True

    def are_in(self, raw: bytes) -> bool:
        """Whether the mark or one of the pieces stands anywhere. All are looked for at once: there are hundreds."""
        if self._mark in raw:
            return True
        for shift in range(min(8, len(raw) - 8)):
            words = np.frombuffer(raw, dtype="<u8", offset=shift, count=(len(raw) - shift) // 8)
            likely = np.flatnonzero(self._table[words & np.uint64(0xFFFF)])
            for index in likely[np.isin(words[likely], self._words)]:
                at = shift + 8 * int(index)
                if raw[at : at + PIECE_BYTES] in self._pieces:
                    return True
        return False


def pieces_of(setting: Setting, act: Act) -> Pieces:
    """Bytes that must be nowhere after an erasure: the mark, and pieces of each record that goes, as it is stored now."""
    doomed, kept = list[bytes](), list[bytes]()
    for stream, record in _events(setting):
        (doomed if stream in STREAMS[act] else kept).append(record)
    names = list[str]()
    for name, record in _large(setting):
        if name.endswith(NAMES_STRAND):  # the secret of the names, which is of no chat
            continue
        if name not in names:
            names.append(name)
        # Large messages were written to the chat that goes and to the one that stays, by turns.
        (doomed if act in CHAT_ACTS and names.index(name) % 2 == 0 else kept).append(record)
    rest = b"\0".join(kept)
    found = [piece for record in doomed for piece in _pieces(record) if piece not in rest]
    return Pieces(MARKS[act].encode(), found)


def _events(setting: Setting) -> Iterator[tuple[str, bytes]]:
    """(stream, record) of each event."""
    if setting.kind == "sqlite":
        yield from _rows(setting, "SELECT originator_id, state FROM standing_events ORDER BY rowid")
        return
    for record in StoreFiles(DataDirectory(setting.data)).records.values():
        yield str(record.originator_id), record.state


def _large(setting: Setting) -> Iterator[tuple[str, bytes]]:
    """(name, entry) of what is stored of large data, in order."""
    if setting.kind == "sqlite":
        yield from _rows(setting, "SELECT name, entry FROM chatledger_blobs WHERE name IS NOT NULL ORDER BY id")
        return
    folder = stream_folder(DataDirectory(setting.data)).with_name(f"{STREAM}-blobs")
    for entry in read_blocks(folder, folder.name):
        if isinstance(entry, BlockRecord):
            yield entry.subject, entry.payload


def _rows(setting: Setting, statement: str) -> Iterator[tuple[str, bytes]]:
    with contextlib.closing(sqlite3.connect(setting.database)) as connection:
        for name, record in connection.execute(statement):
            yield str(name), bytes(record)


def _pieces(record: bytes) -> Iterator[bytes]:
    step = max(PIECE_BYTES, len(record) // _PIECES)
    for at in range(_ENVELOPE_BYTES, len(record) - PIECE_BYTES + 1, step):
        yield record[at : at + PIECE_BYTES]


def found_in(setting: Setting, pieces: Pieces) -> list[str]:
    """The files below the folder of a ledger in which one of the pieces stands."""
    found: list[str] = []
    for root in (Path(setting.folder), setting.memory):
        for file in sorted(path for path in root.rglob("*") if path.is_file()):
            with contextlib.suppress(FileNotFoundError):
                if pieces.are_in(file.read_bytes()):
                    found.append(str(file.relative_to(root)))
    return found
