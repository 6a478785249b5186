"""Reading what is compressed up to a limit: a few kilobytes may say that they are terabytes."""

from typing import IO, Final, NoReturn

from chatledger.domain.errors import InvalidValueError

_PIECE_BYTES: Final = 1024 * 1024


class Allowance:
    """How many bytes of one source may still be unpacked."""

    def __init__(self, source: str, limit_bytes: int) -> None:
        self._source, self._limit_bytes = source, limit_bytes
        self.left_bytes = limit_bytes

    def spend(self, size_bytes: int) -> None:
        """Note what was unpacked. Raises `InvalidValueError` when it is more than was left."""
        self.left_bytes -= size_bytes
        if self.left_bytes < 0:
            self.refuse()

    def refuse(self) -> NoReturn:
        """Raise `InvalidValueError` with the limit, and how to raise it."""
        msg = (
            f"{self._source} is more than {self._limit_bytes:,} bytes when it is unpacked, the limit; if you trust the file, "
            "unpack it yourself, or raise the limit (--max-unpacked, max_unpacked_bytes)"
        )
        raise InvalidValueError(msg)


class LimitedStream:
    """What is unpacked from a stream, which ends with an error where the allowance does."""

    def __init__(self, stream: IO[bytes], allowance: Allowance) -> None:
        self._stream, self._allowance = stream, allowance

    def read(self, size: int = -1) -> bytes:
        """As of the stream."""
        pieces: list[bytes] = []
        while size != 0:
            wanted = _PIECE_BYTES if size < 0 else min(size, _PIECE_BYTES)
            piece = self._stream.read(wanted)
            if not piece:
                break
            self._allowance.spend(len(piece))
            pieces.append(piece)
            size = size if size < 0 else size - len(piece)
        return b"".join(pieces)

    def readline(self) -> bytes:
        """As of the stream."""
        line = self._stream.readline(self._allowance.left_bytes + 1)
        self._allowance.spend(len(line))
        return line
