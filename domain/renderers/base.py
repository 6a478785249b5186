"""What all renderers have in common."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..context.fragment import Fragment
from .prepared import Named, prepare


@dataclass(frozen=True, kw_only=True)
class Renderer(ABC):
    """
    Writes fragments as the text of a prompt. A value without state: share it between engines and threads.

    Args:
        group_fragments: Put fragments of one name, in the data list of a fragment, under the plural of the name.
    """

    group_fragments: bool = False

    def render(self, fragments: Iterable[Fragment | Mapping[str, Any]]) -> str:
        """
        The fragments, in order, as one text; empty when nothing is left of them.

        What is None is left out, and so is a value inside of itself. Nesting of any depth works.

        Raises:
            InvalidValueError: A value is neither a fragment nor JSON; the message names its path.
            MissingCodecError: A message without a codec, or a fragment that is still lazy.
        """
        return self._document(prepare(fragments))

    @abstractmethod
    def _document(self, fragments: Sequence[Named]) -> str:
        """The text of prepared fragments."""
