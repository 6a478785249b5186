"""Counting tokens exactly, without a network."""

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, Final, Protocol, runtime_checkable

from chatledger.domain.context.estimate import Tokenizer
from chatledger.domain.errors import ConfigurationError, InvalidValueError

ENCODINGS: Final = ("cl100k_base", "o200k_base")
_MAX_CHARACTERS: Final = 500_000
"""bpe-openai refuses texts of a million characters."""

_BOUNDARY: Final = re.compile(r"(?<=[a-zA-Z])(?=[ \n])")
"""No token spans it: in both encodings a token that has a letter ends before white space."""


@runtime_checkable
class Encoding(Protocol):
    """The interface of tiktoken's `Encoding`, and of libraries that follow it."""

    def encode_ordinary(self, text: str) -> Sequence[int]:
        """The tokens of a text, in which names of special tokens are ordinary text."""
        ...


def tokenizer(encoding: str = "o200k_base") -> Tokenizer:
    """
    Return the tokenizer of an OpenAI encoding. Its tables are part of the extra: nothing is downloaded, now or later.

    Args:
        encoding: `o200k_base`, of GPT-4o and later models, or `cl100k_base`, of GPT-4 and GPT-3.5.

    Raises:
        InvalidValueError: There is no such encoding.
        ConfigurationError: The extra is not installed: `pip install 'chatledger[tokens]'`.
    """
    if encoding not in ENCODINGS:
        msg = f"unknown encoding {encoding!r}; choose one of {', '.join(ENCODINGS)}, or use tokens_of with your own"
        raise InvalidValueError(msg)
    with warnings.catch_warnings():
        # bpe-openai 0.1.4 reads its tables by a function that Python 3.11 and 3.12 call deprecated, and 3.13 does not.
        warnings.filterwarnings("ignore", message="open_binary is deprecated", category=DeprecationWarning)
        try:
            library: Any = import_module("bpe_openai")
        except ImportError as error:
            msg = "exact token counts need bpe-openai: pip install 'chatledger[tokens]'; rough_tokens needs nothing"
            raise ConfigurationError(msg) from error
        encode: Callable[[str], Sequence[int]] = library.get_encoding(encoding).encode_ordinary
    return lambda text: sum(len(encode(piece)) for piece in _pieces(text))


def as_tokenizer(counter: Tokenizer | str) -> Tokenizer:
    """
    Return the tokenizer that goes by the name of its encoding; a function is returned as it is.

    Raises:
        InvalidValueError: There is no such encoding, or it is neither a name nor a function.
        ConfigurationError: The extra is not installed: `pip install 'chatledger[tokens]'`.
    """
    if isinstance(counter, str):
        return tokenizer(counter)
    if not callable(counter):
        msg = f"a counter is a function of a text or the name of an encoding, not {type(counter).__name__}"
        raise InvalidValueError(msg)
    return counter


def tokens_of(encoding: Encoding) -> Tokenizer:
    """
    Return the tokenizer of an encoding that you have, such as `tiktoken.get_encoding("o200k_base")`.

    tiktoken downloads its tables when an encoding is made, not when it counts.

    Raises:
        InvalidValueError: It has no `encode_ordinary`.
    """
    if not isinstance(encoding, Encoding):
        msg = f"an encoding has encode_ordinary(text), {type(encoding).__name__} does not; a function is a tokenizer already"
        raise InvalidValueError(msg)
    return lambda text: len(encoding.encode_ordinary(text))


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces that can be encoded one by one: cut where no token can span, if there is such a place."""
    start = 0
    while len(text) - start > _MAX_CHARACTERS:
        end = start + _MAX_CHARACTERS
        cuts = [match.start() for match in _BOUNDARY.finditer(text, end - 10_000, end)]
        end = cuts[-1] if cuts else end
        yield text[start:end]
        start = end
    yield text[start:]
