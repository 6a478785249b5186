"""Fragments as TOON: https://github.com/toon-format/spec."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import ConfigurationError
from .base import Renderer
from .plain import plain_data
from .prepared import Named
from .toon_layout import toon_document


@dataclass(frozen=True, kw_only=True)
class ToonRenderer(Renderer):
    """
    Writes fragments as a TOON document; see `Renderer`.

    Names are keys, and names that repeat are arrays: see `plain_data`. As this groups fragments of one name already,
    `group_fragments` changes nothing. It needs `pip install 'chatledger[toon]'`.
    """

    def _document(self, fragments: Sequence[Named]) -> str:
        try:
            import toon_format
        except ImportError as error:
            msg = "rendering TOON needs the library toon-format; pip install 'chatledger[toon]'"
            raise ConfigurationError(msg) from error
        return toon_document(plain_data(fragments), toon_format.dumps)
