"""The neutral form in which every reader hands conversations on, and what it has to say besides."""

import msgspec

from chatledger.domain.imported import (
    ImportedBranch,
    ImportedChat,
    ImportedCheckpoint,
    ImportedMessage,
    ImportedRegeneration,
)

__all__ = [
    "ImportedBranch",
    "ImportedChat",
    "ImportedCheckpoint",
    "ImportedMessage",
    "ImportedRegeneration",
    "Problem",
]


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A broken record or a warning. `line` counts from 1 and is None where the format has no lines."""

    source: str
    line: int | None
    message: str

    def __str__(self) -> str:
        place = self.source if self.line is None else f"{self.source}, line {self.line}"
        return f"{place}: {self.message}"
