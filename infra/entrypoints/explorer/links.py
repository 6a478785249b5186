"""Links that let a browser in: each once."""

import hashlib
import hmac
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

PARAMETER: Final = "token"


class EntryLinks:
    """
    The links of a server, one after the other: using one makes the next.

    Args:
        folder: Where the processes of one server mark which links were used; None for a single process.
        tell: Called with the next link when one was used.
    """

    def __init__(
        self,
        secret: bytes,
        address: str,
        *,
        folder: str | os.PathLike[str] | None = None,
        tell: Callable[[str], None] | None = None,
        user_id: str | None = None,
    ) -> None:
        self.user_id = user_id
        self._secret, self._address, self._tell = secret, address, tell
        self._folder = None if folder is None else Path(folder)
        self._used = 0

    def current(self) -> str:
        """Return the link that lets the next browser in."""
        return f"{self._address}sign-in?{PARAMETER}={self._token(self._count())}"

    def use(self, token: str) -> bool:
        """Take the token of a link; False where it is not the current one. The next link is the current one then."""
        number = self._count()
        if not hmac.compare_digest(token.encode(), self._token(number).encode()) or not self._mark(number):
            return False
        if self._tell is not None:
            self._tell(self.current())
        return True

    def _token(self, number: int) -> str:
        return hmac.new(self._secret, b"link %d" % number, hashlib.sha256).hexdigest()[:32]

    def _count(self) -> int:
        while self._folder is not None and self._marker(self._used).exists():
            self._used += 1
        return self._used

    def _mark(self, number: int) -> bool:
        """Mark a link as used; False where another process was sooner."""
        if self._folder is not None:
            try:
                # The file system decides between processes: making a file that is there fails for all but one.
                self._marker(number).touch(exist_ok=False)
            except FileExistsError:
                return False
        self._used = number + 1
        return True

    def _marker(self, number: int) -> Path:
        assert self._folder is not None
        return self._folder / f"link-{number}"
