"""A ledger behind `chatledger serve`, to pull from."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from shutil import copyfileobj
from typing import IO, Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

import msgspec

from chatledger.domain.chat.import_tree import Reporter
from chatledger.domain.chat.interchange import ImportedChat
from chatledger.domain.errors import (
    AccessDeniedError,
    ChatNotFoundError,
    ConfigurationError,
    InvalidValueError,
    LogUnavailableError,
)

from ..ledger.sync import ChatStanding
from .jsonl import read_jsonl

T = TypeVar("T")


class _RemoteHead(msgspec.Struct):
    chat_id: str
    version: int
    hash: str


class _RemoteHeads(msgspec.Struct):
    identity: str
    heads: list[_RemoteHead]


class RemoteLedger:
    """
    A ledger behind `chatledger serve`, as the source of `Ledger.pull`. It shows what its key may see.

    Example:
        ledger.pull(RemoteLedger("https://chats.example.com", key="..."), name="office")

    Args:
        url: The address of the server, with the path before `/api/v1` if there is one.
        key: An API key or token of it; None where it asks for none.
        timeout_s: How long it may stay silent.

    Raises:
        ConfigurationError: It is no address of a server.
    """

    def __init__(self, url: str, *, key: str | None = None, timeout_s: float = 60.0) -> None:
        if not url.startswith(("http://", "https://")):
            msg = f"{url!r} is no address of a server, which begins with https:// or http://"
            raise ConfigurationError(msg)
        self.url, self._key, self._timeout_s = url.rstrip("/"), key, timeout_s

    @property
    def identity(self) -> str:
        """Tells its log from others."""
        return self._heads([]).identity

    def heads(self, chat_ids: Sequence[str] | None) -> dict[str, tuple[int, str]]:
        """Return the version and the hash of the last event of each chat, or of some."""
        return {head.chat_id: (head.version, head.hash) for head in self._heads(chat_ids).heads}

    def standing(self, chat_id: str, version: int) -> ChatStanding:
        """Say how far it has come with a chat, and whether it has an event of that version."""
        return _decoded(self._ask("/pulls/standing", {"chat_id": chat_id, "version": version}), ChatStanding, self.url)

    def write_bundle(self, known: Mapping[str, int], stream: IO[bytes]) -> bool:
        """Write a bundle of the events of chats after the first few; False where none of them is there any more."""
        before = stream.tell()
        self._ask_into("/pulls/bundle", {"known": dict(known)}, stream)
        return stream.tell() > before

    def export_chat(self, chat_id: str) -> ImportedChat:
        """Return a whole chat. Raises `ChatNotFoundError`."""
        lines = self._ask(f"/chats/{quote(chat_id, safe='')}/export")
        for chat in read_jsonl(BytesIO(lines), Reporter(self.url, strict=True, on_problem=lambda _: None)):
            return chat
        raise ChatNotFoundError(chat_id)

    def _heads(self, chat_ids: Sequence[str] | None) -> _RemoteHeads:
        return _decoded(self._ask("/pulls/heads", {"chat_ids": chat_ids}), _RemoteHeads, self.url)

    def _ask(self, path: str, body: Any = None) -> bytes:
        answer = BytesIO()
        self._ask_into(path, body, answer)
        return answer.getvalue()

    def _ask_into(self, path: str, body: Any, stream: IO[bytes]) -> None:
        """Write what the server answers; GET without a body, else POST."""
        content = None if body is None else msgspec.json.encode(body)
        request = Request(f"{self.url}/api/v1{path}", content)  # noqa: S310 - the scheme was checked
        request.add_header("Content-Type", "application/json")
        if self._key is not None:
            request.add_header("Authorization", f"Bearer {self._key}")
        try:
            with urlopen(request, timeout=self._timeout_s) as answer:  # noqa: S310
                copyfileobj(answer, stream)
        except HTTPError as error:
            raise _refusal(error, self.url) from error
        except (URLError, TimeoutError, ConnectionError) as error:
            msg = f"{self.url} does not answer: {getattr(error, 'reason', error)}; calling again goes on"
            raise LogUnavailableError(msg) from error


def _refusal(error: HTTPError, url: str) -> Exception:
    told = error.read()
    try:
        detail = msgspec.json.decode(told)["detail"]
    except (msgspec.DecodeError, KeyError, TypeError):
        detail = error.reason
    msg = f"{url} answers {error.code}: {detail}"
    if error.code in {401, 403}:
        return AccessDeniedError(f"{msg}; give a key that may read there")
    return LogUnavailableError(msg) if error.code in {429, 502, 503, 504} else InvalidValueError(msg)


def _decoded(answer: bytes, kind: type[T], url: str) -> T:
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.MsgspecError as error:
        msg = f"{url} does not answer as chatledger does ({error}); look at the address, and at the version there"
        raise InvalidValueError(msg) from error
