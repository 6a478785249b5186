"""Opening foreign files, compressed or not, and decoding their JSON."""

import gzip
import json
import re
import zlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE, EncodedFile
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any, Final, NoReturn, TypeGuard, cast

import msgspec

from chatledger.domain.chat.import_check import describe_json_fault
from chatledger.domain.chat.import_fit import describe_id_fault
from chatledger.domain.chat.import_tree import Reporter
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.limits import MAX_UNPACKED_BYTES

from ..store.opening.presence import without_secrets

_PIECE_BYTES: Final = 1024 * 1024
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def check_encoded(location: str) -> None:
    """Raise `InvalidValueError` where parts of a password would count as the host or the database, which drivers name in errors."""
    server, _, name = location.partition("://")[2].partition("/")
    if server.count("@") > 1 or "@" in name.partition("?")[0]:
        place = without_secrets(location)
        msg = f"{place} has an '@' or '/' that must be percent-encoded, as %40 or %2F: in the password, or another part"
        raise InvalidValueError(msg)


class Allowance:
    """The number of bytes of one source that may still be unpacked."""

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
    """A stream of unpacked data that raises an error at the end of its allowance."""

    def __init__(self, stream: IO[bytes], allowance: Allowance) -> None:
        self._stream, self._allowance = stream, allowance

    def read(self, size: int = -1) -> bytes:
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
        line = self._stream.readline(self._allowance.left_bytes + 1)  # a bomb may be a single line
        self._allowance.spend(len(line))
        return line


_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()
_CLOSING = {list: "]", dict: "}"}


def decode_deep(text: str) -> Any:
    """
    Decode a JSON text with a loop and a stack of open containers.

    Slower than the usual decoders by far, so it is meant for what they refuse. Raises ValueError when malformed.
    """
    result: list[Any] = []
    stack: list[tuple[list[Any] | dict[str, Any], str]] = [(result, "")]
    at = _skip(text, 0)
    while True:
        if text[at : at + 1] in {"[", "{"}:
            opened: list[Any] | dict[str, Any] = [] if text[at] == "[" else {}
            _put(stack[-1], opened)
            at = _skip(text, at + 1)
            if text[at : at + 1] != _CLOSING[type(opened)]:
                key, at = _read_key(text, at, opened)
                stack.append((opened, key))
                continue
            at += 1
        else:
            value, at = _DECODER.raw_decode(text, at)
            _put(stack[-1], value)
        at = _skip(text, at)
        while len(stack) > 1 and text[at : at + 1] == _CLOSING[type(stack[-1][0])]:
            stack.pop()
            at = _skip(text, at + 1)
        if len(stack) == 1:
            if at != len(text):
                raise _malformed(at)
            return result[0]
        if text[at : at + 1] != ",":
            raise _malformed(at)
        container = stack[-1][0]
        key, at = _read_key(text, _skip(text, at + 1), container)
        stack[-1] = (container, key)


def _put(place: tuple[list[Any] | dict[str, Any], str], value: Any) -> None:
    container, key = place
    if isinstance(container, dict):
        container[key] = value
    else:
        container.append(value)


def _read_key(text: str, at: int, container: list[Any] | dict[str, Any]) -> tuple[str, int]:
    if isinstance(container, list):
        return "", at
    if text[at : at + 1] != '"':
        raise _malformed(at)
    key, at = _DECODER.raw_decode(text, at)
    at = _skip(text, at)
    if text[at : at + 1] != ":":
        raise _malformed(at)
    return key, _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return at if space is None else space.end()


def _malformed(at: int) -> ValueError:
    return ValueError(f"JSON is malformed: unexpected character (character {at})")


GZIP_MAGIC = b"\x1f\x8b"
_SIGN_BYTES = 4
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
            if path.is_fifo():  # opening it waits for a writer, and what was read of it cannot be read again
                msg = f"{path} is a pipe; save what comes from it as a file, or give it to 'chatledger import', which does that"
                raise InvalidValueError(msg)
            # By the first bytes, never by the name.
            raw = stack.enter_context(path.open("rb"))
            is_packed = raw.read(len(GZIP_MAGIC)) == GZIP_MAGIC
            raw.seek(0)
        except OSError as error:
            refuse_unreadable(path, error)
        source: IO[bytes] = raw
        start = raw.peek(_SIGN_BYTES)
        if is_packed:
            unpacked = stack.enter_context(gzip.GzipFile(fileobj=raw))
            with suppress(*READ_ERRORS):  # who reads on is told
                start = unpacked.peek(_SIGN_BYTES)
            source = cast(
                "IO[bytes]", LimitedStream(cast("IO[bytes]", unpacked), Allowance(str(path), max_unpacked_bytes))
            )
        encoding = _utf16(start)
        yield source if encoding is None else cast("IO[bytes]", EncodedFile(source, "utf-8", encoding, "replace"))


def _utf16(start: bytes) -> str | None:
    """Return the encoding of a text in UTF-16, which PowerShell's `>` writes; None for any other."""
    if start.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        return "utf-16"
    return {b"[\0": "utf-16-le", b"{\0": "utf-16-le", b"\0[": "utf-16-be", b"\0{": "utf-16-be"}.get(start[:2])


def as_utf8(text: bytes) -> bytes:
    """Return a text that is in UTF-8 or UTF-16 in UTF-8, without a mark of its order of bytes."""
    encoding = _utf16(text)
    return text.removeprefix(_BOM) if encoding is None else text.decode(encoding, "replace").encode()


def read_source(path: Path, size: int = -1, *, max_unpacked_bytes: int = MAX_UNPACKED_BYTES) -> bytes:
    """The first bytes of a file, unpacked; all when `size` is negative. Raises InvalidValueError when it cannot be read."""
    with open_source(path, max_unpacked_bytes) as stream:
        try:
            return stream.read(size)
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


def decode_json(text: bytes) -> tuple[Any, str | None]:
    """
    Decode JSON, and say what was replaced in it, if anything was.

    JavaScript escapes half an emoji as it stands, and Python writes NaN: neither may cost the record that it is in. Raises
    InvalidValueError with the reason and place, never with content.
    """
    text = text.removeprefix(_BOM)
    try:
        return msgspec.json.decode(text), None
    except RecursionError:
        msg = "the JSON is nested too deeply"
        raise InvalidValueError(msg) from None
    except ValueError as error:
        # msgspec.DecodeError, and UnicodeDecodeError from bytes that are no UTF-8.
        repaired = _repaired(text)
        if repaired is None:
            msg = f"not valid JSON: {_describe(error, text)}"
            raise InvalidValueError(msg) from None
        return repaired


def decode_tree(text: bytes) -> tuple[Any, str | None]:
    """Decode JSON as `decode_json` does, nested to any depth: each reply stands within what it answers."""
    try:
        return decode_json(text)
    except InvalidValueError as error:
        try:
            value = decode_deep(text.decode())
        except ValueError:
            raise error from None
        if describe_json_fault(value) is not None:
            raise
        return value, None


def _describe(error: ValueError, text: bytes) -> str:
    # A UnicodeDecodeError carries the bytes it refused, and content stays out of messages.
    reason = "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
    place = _BYTE.search(reason)
    lines = text.count(b"\n", 0, int(place[1])) if place else 0
    return f"{reason}, line {lines + 1}" if lines else reason


def _repaired(text: bytes) -> tuple[Any, str] | None:
    """Return the value with what JSON does not have replaced, and a description of that; None where something else is wrong."""
    has_constant = False

    def no_number(_: str) -> None:
        nonlocal has_constant
        has_constant = True

    try:
        value = json.loads(text, parse_constant=no_number)
        sound = json.dumps(value, ensure_ascii=False, allow_nan=False)
        # Halves of one emoji that are escaped one by one are one emoji again.
        whole = sound.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        replaced = [
            *(["NaN and infinite numbers replaced by null"] if has_constant else []),
            *(["lone surrogates replaced by U+FFFD"] if whole != sound else []),
        ]
        return (msgspec.json.decode(whole), ", ".join(replaced)) if replaced else None
    except (ValueError, RecursionError):
        return None


def is_id(value: object, what: str, report: Reporter, *, line: int | None = None) -> TypeGuard[str]:
    """Return whether a value may be an id. A record with another one is reported as skipped."""
    fault = describe_id_fault(value)
    if fault is not None:
        report.broken(f"{what} {fault}; skipped", line=line)
    return fault is None


def iso_milliseconds(value: Any, what: str, report: Reporter, *, line: int | None = None) -> int | None:
    """Return an ISO 8601 time, UTC where it names no zone, in milliseconds; None for none, and for what is no time, which is reported."""
    if value is None:
        return None
    try:
        return time_of_iso(value)
    except (TypeError, ValueError, OverflowError):
        report.broken(f"{what} is not an ISO 8601 time; imported without", line=line)
        return None


def time_of_iso(value: Any) -> int | None:
    """Return an ISO 8601 time, UTC where it names no zone, in milliseconds; None for None. Raises TypeError, ValueError or OverflowError."""
    if value is None:
        return None
    moment = datetime.fromisoformat(value)
    # Integer division, because the product of a float timestamp may be off by one.
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)
