"""API keys: a file of their hashes, which `chatledger keys` changes and servers read."""

import hashlib
import logging
import os
import secrets
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from chatledger.domain.errors import AlreadyExistsError, ConfigurationError, InvalidValueError, NotFoundError
from chatledger.domain.limits import check_id

from ...clock import clock_ms
from ...operating_system import lock_file, open_folder_lock, replace
from .access import Principal, Scope, credential_of

PREFIX: Final = "clk_"
_SECRET_BYTES: Final = 32
_MOST_BYTES: Final = 64 << 20  # of the file, a quarter of a million keys
_log: Final = logging.getLogger("chatledger.server")


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """
    An API key, as it is kept.

    Args:
        name: Its name, which logs show.
        user_id: The user whose chats it opens; None for everybody's.
        scopes: The permissions.
        sha256: The hash of the key. The key itself has 256 random bits, so that no slower hash is needed.
        created_at: When it was made, in ms since the epoch.
    """

    name: str
    user_id: str | None
    scopes: frozenset[Scope]
    sha256: str
    created_at: int


class _Content(msgspec.Struct, frozen=True):
    keys: list[Key]


class KeyFile:
    """
    A file of API keys. A change counts at once, in all servers that read the file.

    Args:
        path: Of the file; it is made with the first key.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: Final = Path(path)
        self._seen: tuple[int, int, int] | None = None
        self._by_hash: dict[str, Key] = {}

    def read(self) -> list[Key]:
        """
        Return all keys, by name.

        Raises:
            ConfigurationError: The file cannot be read.
        """
        try:
            with self.path.open("rb") as stream:  # not to its end: a device such as `/dev/full` has none
                content = msgspec.json.decode(stream.read(_MOST_BYTES), type=_Content)
        except FileNotFoundError:
            return []
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            msg = f"{self.path} is no file of API keys that can be read: {error}"
            raise ConfigurationError(msg) from error
        return sorted(content.keys, key=lambda key: key.name)

    def add(self, name: str, *, user_id: str | None, scopes: frozenset[Scope]) -> str:
        """
        Make a key.

        Returns:
            The key, which is not kept: nobody can read it again.

        Raises:
            AlreadyExistsError: There is a key of this name.
            InvalidValueError: The name or the user's id breaks a rule, or the key would allow nothing.
            ConfigurationError: The file cannot be read or written.
        """
        check_id(name, "name")
        if user_id is not None:
            check_id(user_id, "user_id")
        if not scopes:
            msg = "a key needs a scope: read, write or admin"
            raise InvalidValueError(msg)
        secret = PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
        with self._locked():
            keys = self.read()
            if any(key.name == name for key in keys):
                msg = f"there is a key named {name!r} in {self.path}; choose another name, or remove it first"
                raise AlreadyExistsError(msg)
            key = Key(name=name, user_id=user_id, scopes=scopes, sha256=_hash(secret), created_at=clock_ms())
            self._write([*keys, key])
        return secret

    def remove(self, name: str) -> None:
        """
        Remove a key: a caller that sends it is a stranger from now on.

        Raises:
            NotFoundError: There is none of this name.
            ConfigurationError: The file cannot be read or written.
        """
        with self._locked():
            keys = self.read()
            kept = [key for key in keys if key.name != name]
            if len(kept) == len(keys):
                msg = f"there is no key named {name!r} in {self.path}"
                raise NotFoundError(msg)
            self._write(kept)

    def __call__(self, headers: Mapping[str, str]) -> Principal | None:
        """Return the caller whose key the headers of a request carry; None while the file cannot be read."""
        secret = credential_of(headers)
        if secret is None:
            return None
        try:
            self._read_again()
        except (OSError, ConfigurationError):
            _log.exception("the API keys cannot be read; all are refused")
            return None
        key = self._by_hash.get(_hash(secret))
        return None if key is None else Principal(key.user_id, key.scopes, key.name)

    def _read_again(self) -> None:
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            self._seen, self._by_hash = None, {}
            return
        # Each change makes a new file, see `_write`: within the grain of the clock the inode tells two of one size apart.
        seen = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if seen != self._seen:
            # Should reading fail, nobody may be let in by the keys of before: they are read again next time.
            self._seen = None
            self._by_hash = {key.sha256: key for key in self.read()}
            self._seen = seen

    @contextmanager
    def _locked(self) -> Generator[None]:
        # The folder is locked, as the file is replaced by each change: a lock on it would be on the old one.
        try:
            folder = open_folder_lock(self.path.parent.resolve())
        except OSError as error:
            msg = f"cannot keep keys in {self.path}: {error.strerror}"
            raise ConfigurationError(msg) from error
        try:
            lock_file(folder, is_waiting=True)
            yield
        finally:
            os.close(folder)

    def _write(self, keys: list[Key]) -> None:
        content = msgspec.json.format(msgspec.json.encode(_Content(keys)))
        try:
            # Readable for its owner only, and there whole or not at all.
            with tempfile.NamedTemporaryFile(dir=self.path.parent, prefix=f".{self.path.name}.", delete=False) as file:
                file.write(content + b"\n")
                file.flush()
                os.fsync(file.fileno())
            replace(Path(file.name), self.path)
        except OSError as error:
            msg = f"cannot write {self.path}: {error.strerror}"
            raise ConfigurationError(msg) from error


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def keys_beside(location: str) -> Path | None:
    """Return the path of the file of keys of a ledger in a directory or a SQLite file; None for one on a server."""
    if location.startswith("sqlite:///"):
        return Path(location.removeprefix("sqlite:///").partition("?")[0] + ".keys")
    if "://" in location or location == "memory:":
        return None
    path = Path(location).absolute()
    return path.with_name(path.name + ".keys")
