"""Fragments as TOML 1.0: https://toml.io/en/v1.0.0."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Final

from ..errors import ConfigurationError
from .plain import document_of
from .prepared import Named, Renderer, scalar_text

_INDENT: Final = 2
_MAX_EXACT_INTEGER: Final = 2**53
"""Up to here each whole number is a float of its own."""


@dataclass(frozen=True, kw_only=True)
class TomlRenderer(Renderer):
    """
    Writes fragments as a TOML document; see `Renderer`.

    Names are keys, objects are tables, and names that repeat are arrays: see `plain_data`. As this groups fragments of
    one name already, `group_fragments` changes nothing. It needs `pip install 'chatledger[toml]'`.

    At most 200 levels of arrays and tables are rendered; beyond that, `InvalidValueError` is raised.
    """

    def _document(self, fragments: Sequence[Named]) -> str:
        try:
            import tomli_w
        except ImportError as error:
            msg = "rendering TOML needs the library tomli-w; pip install 'chatledger[toml]'"
            raise ConfigurationError(msg) from error
        return document_of(fragments, partial(tomli_w.dumps, indent=_INDENT), _number).removesuffix("\n")


def _number(value: float) -> float | Decimal:
    """Return what tomli-w writes as ECMAScript does, but not as an integer that a parser would read as another number."""
    if value.is_integer() and abs(value) <= _MAX_EXACT_INTEGER:
        return int(value)
    return Decimal(scalar_text(value))
