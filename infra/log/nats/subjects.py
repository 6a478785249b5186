"""Encoding of originator ids, topics and stream names as subjects and headers."""

import base64
import contextlib
import hashlib
import re
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote
from uuid import UUID

from eventsourcing.persistence import DataError, ProgrammingError

from chatledger.domain.log.shares import BUCKETS, UNSHARED, Share

ORIGINATOR_ID = "Cl-Id"
MAX_TOKEN_CHARS = 100
MAX_NAME_CHARS = 200  # the server takes 255; `_snapshots` and the files of the store need some of them
# Everything printable in ASCII but `%`, which introduces an escape, and the blank, which headers lose at both ends.
_SAFE = "!\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"
_NAME = re.compile(r"[A-Za-z0-9_-]+")

PLACE_TOKENS: Final = 4
ANY_PLACE: Final = ".".join("*" * PLACE_TOKENS)
UNSHARED_PLACE: Final = ".".join("x" * PLACE_TOKENS)


def _place(bucket: int) -> str:
    # The remainders say the bucket (2 * 2 * 3 * 5 = 60), and one wildcard filter can ask for any of them.
    return f"{bucket % 2}.{bucket // 2 % 2}.{bucket % 3}.{bucket % 5}"


_PLACES: Final = {UNSHARED: UNSHARED_PLACE} | {bucket: _place(bucket) for bucket in range(BUCKETS)}
_BUCKETS: Final = {place: bucket for bucket, place in _PLACES.items()}


def place_of(bucket: int) -> str:
    """Return the tokens of a bucket in the subjects of a log that is held in shares."""
    return _PLACES[bucket]


def bucket_at(place: str) -> int | None:
    """Return the bucket behind the tokens; None where they are none."""
    return _BUCKETS.get(place)


def places_in(share: Share) -> str:
    """Return the tokens, with wildcards, of the buckets in a share; `ANY_PLACE` where that is all of them."""
    tokens = _place(share.number).split(".")
    return ".".join(
        token if share.total % divisor == 0 else "*" for token, divisor in zip(tokens, (2, 4, 3, 5), strict=True)
    )


@lru_cache(maxsize=4096)
def token(raw: str) -> str:
    """
    The subject token of an id: `u` + hex of a UUID, `b` + base64 of its text, or `h` + a hash when that is too long.

    The first letter keeps the three forms apart, so two ids share a token only if SHA-256 collides.

    Raises:
        DataError: The id is empty.
    """
    if not raw:
        msg = "an originator id must not be empty"
        raise DataError(msg)
    if len(raw) == 36:
        with contextlib.suppress(ValueError):
            if str(UUID(raw)) == raw:  # the canonical form: of all others the text is lost
                return "u" + raw.replace("-", "")
    # Never the id itself: wildcards, blanks and dots mean something in a subject, and one of 4,090 bytes ends the connection.
    encoded = raw.encode(errors="surrogatepass")
    text = "b" + base64.urlsafe_b64encode(encoded).rstrip(b"=").decode()
    return text if len(text) <= MAX_TOKEN_CHARS else "h" + hashlib.sha256(encoded).hexdigest()


@lru_cache(maxsize=4096)
def raw_id(subject_token: str, header: str | None) -> str:
    """
    The id behind a token; `header` is the value of `Cl-Id`, which the `h` form needs.

    Raises:
        DataError: This token was not made by `token`.
    """
    form, rest = subject_token[:1], subject_token[1:]
    raw = ""
    # UnicodeDecodeError and binascii.Error are ValueErrors.
    with contextlib.suppress(ValueError):
        if form == "u":
            raw = str(UUID(hex=rest))
        elif form == "b":
            raw = base64.urlsafe_b64decode(rest + "=" * (-len(rest) % 4)).decode(errors="surrogatepass")
        elif form == "h" and header is not None:
            raw = decode_header(header)
    # The decoders are lenient: they skip characters that do not belong there.
    if not raw or token(raw) != subject_token:
        msg = f"the token {subject_token!r} is not the form of an id, or its header {ORIGINATOR_ID} is missing or wrong"
        raise DataError(msg)
    return raw


@lru_cache(maxsize=4096)
def encode_header(text: str) -> str:
    """Any text as a header value: what is not printable ASCII, and `%`, is percent-encoded."""
    return quote(text, safe=_SAFE, errors="surrogatepass")


@lru_cache(maxsize=4096)
def decode_header(value: str) -> str:
    """The text behind `encode_header`."""
    return unquote(value, errors="surrogatepass")


def check_stream_name(name: str) -> str:
    """The name itself. Raises `ProgrammingError` when it has other characters than letters, digits, `_` and `-`, or more than 200 of them."""
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME_CHARS:
        msg = f"stream name {name!r}: 1 to {MAX_NAME_CHARS} of A-Z, a-z, 0-9, '_' and '-', please"
        raise ProgrammingError(msg)
    return name


def stream_name(application_name: str) -> str:
    """An application's name as the name of a stream. Names that need changes get a hash, so that they stay apart."""
    if _NAME.fullmatch(application_name) and len(application_name) <= MAX_NAME_CHARS:
        return application_name
    digest = hashlib.sha256(application_name.encode(errors="surrogatepass")).hexdigest()[:12]
    return "_".join([*_NAME.findall(application_name)[:8], digest])[-MAX_NAME_CHARS:]
