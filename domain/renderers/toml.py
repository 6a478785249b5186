"""Fragments as TOML 1.0: https://toml.io/en/v1.0.0."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import ConfigurationError
from .base import Renderer
from .plain import plain_data
from .prepared import Named
from .scalars import scalar_text
from .toml_layout import TomlWords, toml_document

_MAX_EXACT_INTEGER = 2**53
"""Up to here each whole number is a float of its own."""


@dataclass(frozen=True, kw_only=True)
class TomlRenderer(Renderer):
    """
    Writes fragments as a TOML document; see `Renderer`.

    Names are keys, objects are tables, and names that repeat are arrays: see `plain_data`. As this groups fragments of
    one name already, `group_fragments` changes nothing. It needs `pip install 'chatledger[toml]'`.
    """

    def _document(self, fragments: Sequence[Named]) -> str:
        return toml_document(plain_data(fragments), _words())


def _words() -> TomlWords:
    """
    Keys, text and numbers as TOML has them.

    The library quotes and escapes. It is not asked for whole documents: it fails with a `RecursionError` on 300 levels.
    """
    try:
        import tomli_w
    except ImportError as error:
        msg = "rendering TOML needs the library tomli-w; pip install 'chatledger[toml]'"
        raise ConfigurationError(msg) from error

    def key(name: str) -> str:
        return tomli_w.dumps({name: {}}).removeprefix("[").removesuffix("]\n")

    def text(value: str) -> str:
        return tomli_w.dumps({"_": value}).removeprefix("_ = ").removesuffix("\n")

    return TomlWords(key=key, text=text, number=_number)


def _number(value: float) -> str:
    """A number or boolean as in ECMAScript, but not in the notation of integers where a parser would read another one."""
    if isinstance(value, int):
        return scalar_text(value)
    if not math.isfinite(value):
        return str(value)  # nan, inf and -inf are TOML
    text = scalar_text(value)
    is_ambiguous = abs(value) > _MAX_EXACT_INTEGER and "e" not in text
    return f"{text}.0" if is_ambiguous else text
