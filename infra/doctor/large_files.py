"""Large data, read from the files of their stream while no server runs on them."""

import contextlib
from collections import OrderedDict
from pathlib import Path
from typing import Final

from chatledger.domain.errors import ChatledgerError
from chatledger.domain.large_data import digest_of
from chatledger.domain.undecodable import UNDECODABLE

from ..embedded.blocks import BlockRecord, DamagedBytes, block_files
from ..log.blob_strands import MemoryStrands
from ..log.blobs import Blobs, Chunk, MissingBlobError, Packer, chunk_in, completed_in
from .bit_correction import BitCorrection, CorrectedRecord

_OPEN_FILES: Final = 3
"""So many block files, of 8 MB mostly, are kept in memory: the parts of large data stand one after the other."""


class FileBlobs(Blobs):
    """
    The large data in the files of a stream. Whatever parts are there are put together, and their digest says whether that is right.

    Args:
        folder: Of the stream.
        stream: Its name.
        packer: How they are stored.

    Attributes:
        corrected: The records in which one bit was flipped, which is corrected.
        damages: Bytes of files that are no intact record.
        is_incomplete: Whether some were asked for of which no entry says any more that they are complete, so that a ledger misses them.
    """

    def __init__(self, folder: Path, stream: str, packer: Packer) -> None:
        super().__init__(MemoryStrands(chunk_bytes=0), packer)
        self._blocks = BitCorrection(folder, stream)
        self.corrected: list[CorrectedRecord] = []
        self.damages: list[DamagedBytes] = []
        self.is_incomplete = False
        self._complete: set[str] = set()
        self._prefix = f"{stream}.b."
        self._parts: dict[str, dict[str, dict[int, tuple[Path, int]]]] = {}
        """Where the parts are: by name, upload and number, the file and the position."""
        self._cached: OrderedDict[Path, dict[int, Chunk]] = OrderedDict()
        for file in block_files(folder):
            self._note(file)

    def get(self, digest: bytes, size: int) -> bytearray:
        """As declared in `Blobs`."""
        for name in self._names(digest):
            for upload_id, parts in reversed(self._parts.get(name, {}).items()):
                data = self._joined(name, upload_id, parts)
                if len(data) == size and digest_of(memoryview(data)) == digest:
                    self.is_incomplete |= upload_id not in self._complete
                    return data
        msg = f"its large data, with SHA-256 {digest.hex()}, are damaged or missing"
        raise MissingBlobError(msg)

    def _joined(self, name: str, upload_id: str, parts: dict[int, tuple[Path, int]]) -> bytearray:
        data = bytearray()
        for number in range(len(parts)):
            place = parts.get(number)
            chunk = None if place is None else self._chunks(place[0]).get(place[1])
            try:
                data += b"" if chunk is None else self._unpacked(chunk.data, (name, number, upload_id))
            except ChatledgerError:
                return bytearray()
        return data

    def _note(self, file: Path) -> None:
        block = self._blocks.block(file)
        self.corrected += block.corrected
        self.damages += [DamagedBytes(file, damage.offset, damage.length) for damage in block.scan.damages]
        for entry in self._blocks.records_in(block):
            chunk = _chunk(entry)
            with contextlib.suppress(*UNDECODABLE):
                self._complete.add(completed_in(entry.payload) or "")
            if chunk is not None and entry.subject.startswith(self._prefix):
                uploads = self._parts.setdefault(entry.subject.removeprefix(self._prefix), {})
                uploads.setdefault(chunk.upload_id, {})[chunk.number] = (file, entry.position)

    def _chunks(self, file: Path) -> dict[int, Chunk]:
        """The parts in a file, by position."""
        found = self._cached.get(file)
        if found is None:
            entries = self._blocks.records_in(self._blocks.block(file))
            found = {entry.position: chunk for entry in entries if (chunk := _chunk(entry)) is not None}
            self._cached[file] = found
            if len(self._cached) > _OPEN_FILES:
                self._cached.popitem(last=False)
        self._cached.move_to_end(file)
        return found


def _chunk(entry: BlockRecord) -> Chunk | None:
    try:
        return chunk_in(entry.payload)
    except UNDECODABLE:
        return None
