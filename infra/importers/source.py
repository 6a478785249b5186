"""Opening foreign files, compressed or not, and decoding their JSON."""

import gzip
import json
import re
import zlib
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, NoReturn, cast

import msgspec

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.rules import MAX_UNPACKED_BYTES

from .report import Reporter
from .unpacking import Allowance, LimitedStream

GZIP_MAGIC = b"\x1f\x8b"
READ_ERRORS = (OSError, EOFError, zlib.error)
_BOM = b"\xef\xbb\xbf"
_BYTE = re.compile(r"\(byte (\d+)\)")


def refuse_unreadable(path: Path, error: BaseException) -> NoReturn:
    """Translate what reading a file raised."""
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    msg = f"{path} cannot be read: {reason}"
    raise InvalidValueError(msg) from error


@contextmanager
def open_source(path: Path, max_unpacked_bytes: int = MAX_UNPACKED_BYTES) -> Generator[IO[bytes]]:
    """
    The bytes of a file, unpacked if they are gzip, whatever its name.

    Raises InvalidValueError when it cannot be opened, and from reading when it becomes too large by being unpacked.
    """
    with ExitStack() as stack:
        try:
            raw = stack.enter_context(path.open("rb"))
            is_packed = raw.read(len(GZIP_MAGIC)) == GZIP_MAGIC
            raw.seek(0)
        except OSError as error:
            refuse_unreadable(path, error)
        if is_packed:
            unpacked = cast("IO[bytes]", stack.enter_context(gzip.GzipFile(fileobj=raw)))
            yield cast("IO[bytes]", LimitedStream(unpacked, Allowance(str(path), max_unpacked_bytes)))
        else:
            yield raw


def read_whole(path: Path, max_unpacked_bytes: int) -> bytes:
    """All bytes of a file, unpacked. Raises InvalidValueError when it cannot be read to its end."""
    with open_source(path, max_unpacked_bytes) as stream:
        try:
            return stream.read()
        except READ_ERRORS as error:
            refuse_unreadable(path, error)


def number_lines(stream: IO[bytes], report: Reporter) -> Iterator[tuple[int, bytes]]:
    """The lines that hold something, with their numbers from 1. Damaged compression ends them, and is reported."""
    number = 0
    while True:
        try:
            line = stream.readline()
        except READ_ERRORS as error:
            report.broken(f"the file cannot be read on after this line: {error}", line=number)
            return
        if not line:
            return
        number += 1
        line = (line.removeprefix(_BOM) if number == 1 else line).strip()
        if line:
            yield number, line


def decode_json(text: bytes) -> tuple[Any, bool]:
    """
    Decode JSON, and say whether lone surrogates were replaced by U+FFFD.

    JavaScript escapes half an emoji as it stands, and one such text must not cost its whole file. Raises
    InvalidValueError with the reason and place, never with content.
    """
    text = text.removeprefix(_BOM)
    try:
        return msgspec.json.decode(text), False
    except RecursionError:
        msg = "the JSON is nested too deeply"
        raise InvalidValueError(msg) from None
    except ValueError as error:
        # msgspec.DecodeError, and UnicodeDecodeError from bytes that are no UTF-8.
        repaired = _replace_lone_surrogates(text)
        if repaired is None:
            msg = f"not valid JSON: {_describe(error, text)}"
            raise InvalidValueError(msg) from None
        return repaired, True


def _describe(error: ValueError, text: bytes) -> str:
    # A UnicodeDecodeError carries the bytes it refused, and content stays out of messages.
    reason = "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
    place = _BYTE.search(reason)
    lines = text.count(b"\n", 0, int(place[1])) if place else 0
    return f"{reason}, line {lines + 1}" if lines else reason


def _replace_lone_surrogates(text: bytes) -> Any:
    if b"\\u" not in text:
        return None
    try:
        value = json.loads(text)
        sound = json.dumps(value, ensure_ascii=False, allow_nan=False)
        sound = sound.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return msgspec.json.decode(sound)
    except (ValueError, RecursionError):
        return None
