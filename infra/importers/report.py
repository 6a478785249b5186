"""What happens to a problem: told to the caller and worked around, or raised at once when reading strictly."""

from collections.abc import Callable

from chatledger.domain.errors import ChainIntegrityError, InvalidValueError
from chatledger.domain.rules import MAX_UNPACKED_BYTES

from .model import Problem


class Reporter:
    """The problems of one source. Messages name chats, messages and lines, never content or user ids."""

    def __init__(
        self,
        source: str,
        *,
        strict: bool,
        on_problem: Callable[[Problem], None],
        max_unpacked_bytes: int = MAX_UNPACKED_BYTES,
    ) -> None:
        self.source, self.max_unpacked_bytes = source, max_unpacked_bytes
        self._strict = strict
        self._on_problem = on_problem

    def within(self, member: str) -> "Reporter":
        """The same, for a file inside this one."""
        return Reporter(
            f"{self.source}, {member}",
            strict=self._strict,
            on_problem=self._on_problem,
            max_unpacked_bytes=self.max_unpacked_bytes,
        )

    def broken(self, message: str, *, line: int | None = None) -> None:
        """A record that cannot be used as it stands. Raises InvalidValueError when reading strictly."""
        problem = Problem(source=self.source, line=line, message=message)
        if self._strict:
            raise InvalidValueError(str(problem).removesuffix("; skipped"))
        self._on_problem(problem)

    def unlinked(self, message: str, *, line: int | None = None) -> None:
        """A reference that leads nowhere, or in a circle. Raises ChainIntegrityError when reading strictly."""
        problem = Problem(source=self.source, line=line, message=message)
        if self._strict:
            raise ChainIntegrityError(str(problem).removesuffix("; skipped"))
        self._on_problem(problem)
