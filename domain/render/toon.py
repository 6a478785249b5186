"""Fragments as TOON: https://github.com/toon-format/spec."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import ConfigurationError
from .plain import document_of
from .prepared import Named, Renderer


@dataclass(frozen=True, kw_only=True)
class ToonRenderer(Renderer):
    """
    Writes fragments as a TOON document; see `Renderer`.

    Names are keys, and names that repeat are arrays: see `plain_data`. As this groups fragments of one name already,
    `group_fragments` changes nothing. It needs `pip install 'chatledger[toon]'`.

    At most 200 levels of arrays and objects are rendered; beyond that, `InvalidValueError` is raised.
    """

    def _document(self, fragments: Sequence[Named]) -> str:
        try:
            import toon_format
        except ImportError as error:
            msg = "rendering TOON needs the library toon-format; pip install 'chatledger[toon]'"
            raise ConfigurationError(msg) from error
        return document_of(fragments, toon_format.dumps)
