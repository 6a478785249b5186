"""The block files of a store, read as they lie on the disk."""

from collections.abc import Iterator
from pathlib import Path

from chatledger.infra.log.nats_server.blocks import (
    BlockRecord,
    Entry,
    block_files,
    block_key,
    entries_of,
    scan_block,
    subject_prefix,
)


def read_blocks(folder: Path, stream: str) -> Iterator[Entry]:
    """Return the entries of the block files of a stream, in order, with nothing corrected."""
    last = 0
    for file in block_files(folder):
        raw = file.read_bytes()
        scan = scan_block(raw, block_key(stream, int(file.stem)), subject_prefix(stream))
        for entry in entries_of(file, raw, scan, after=last):
            last = entry.position if isinstance(entry, BlockRecord) else last
            yield entry
