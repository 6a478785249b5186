"""Bundles that were changed: bytes that are flipped, lost, repeated or zeroed, and files that were cut off."""

import random
from collections.abc import Iterator
from typing import NamedTuple


class Mutation(NamedTuple):
    """A change of a file: at a place, so many bytes become others; None where the file ends there."""

    at: int
    length: int
    new: bytes | None

    def of(self, content: bytes) -> bytes:
        """Return the changed file."""
        return (
            content[: self.at] if self.new is None else content[: self.at] + self.new + content[self.at + self.length :]
        )


def mutations(content: bytes, count: int, seed: int) -> Iterator[Mutation]:
    """Yield changes of a bundle, most of whose bytes are of large data: half of the changes are made in the rest."""
    draw = random.Random(seed)
    for _ in range(count):
        size = len(content) if draw.random() < 0.5 else min(len(content), 12_000)
        at, length = draw.randrange(size), draw.choice((1, 1, 1, 2, 5, 40))
        piece = content[at : at + length]
        new = {
            "flip": bytes([piece[0] ^ 1 << draw.randrange(8)]) + piece[1:],
            "lose": b"",
            "repeat": piece * 2,
            "zero": bytes(len(piece)),
            "end": None,
        }[draw.choice(("flip", "flip", "flip", "lose", "repeat", "zero", "end"))]
        yield Mutation(at, len(piece), new)
