"""Ledgers elsewhere, to pull from and to push to: one behind `chatledger serve`, and one by whatever location."""

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from shutil import copyfileobj
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import msgspec

from chatledger.domain.chat.interchange import ImportedChat
from chatledger.domain.errors import (
    AccessDeniedError,
    ChatNotFoundError,
    ConfigurationError,
    InvalidValueError,
    LogUnavailableError,
    MessageNotFoundError,
    NotFoundError,
)
from chatledger.domain.legal_hold import LegalHold
from chatledger.domain.remotes import Remote

from ..ledger.bundles import is_bundle
from ..ledger.environment import open_given, require_ledger
from ..ledger.peers import ChatStanding, Heads, HeadSums, PulledChat, Settlement, TakenChat
from .tails import ChatTail, read_tail, written_tail

if TYPE_CHECKING:
    from ..ledger.ledger import Ledger

T = TypeVar("T")
SERVER_KEY_ENV: Final = "CHATLEDGER_SERVER_KEY"
_SERVERS: Final = ("https://", "http://")
_MOST_BYTES: Final = 64 * 1024 * 1024
"""Of the body of a request, as of a server of ours."""
_MB: Final = 1_000_000


@contextmanager
def open_remote(
    location: "Remote | str", *, create: bool = False, key_env: str | None = None
) -> "Generator[Ledger | RemoteLedger]":
    """
    Open another ledger, to pull from and to push to, with the key, login and encryption keys that the environment has.

    Example:
        with open_remote(ledger.remote("office")) as office:
            ledger.pull(office, name="office")

    Args:
        location: A remote of a ledger, or a location: of a ledger, the address of a `chatledger serve`, or the path of a bundle, which
            is only pulled from, and has its chats from their beginning.
        create: Whether a ledger that is not there is made.
        key_env: The environment variable with the key for a server, where `location` names none.

    Raises:
        ConfigurationError: There is no ledger and no bundle.
        ChatledgerError: As `chatledger.open`, or as `Ledger.import_bundle`.
    """
    remote = location if isinstance(location, Remote) else Remote(name="", location=location)
    if remote.location.startswith(_SERVERS):
        yield RemoteLedger(remote.location, key=os.environ.get(remote.key_env or key_env or SERVER_KEY_ENV))
    elif is_bundle(remote.location):
        from ..ledger.open import open as open_ledger

        with open_ledger("memory:") as ledger:
            ledger.import_bundle(remote.location)
            yield ledger
    else:
        if not create:
            require_ledger(remote.location)
        with open_given(remote.location, create=create) as ledger:
            yield ledger


class _RemoteHead(msgspec.Struct):
    chat_id: str
    version: int
    hash: str


class _RemoteHeads(msgspec.Struct):
    heads: list[_RemoteHead]


class _Standings(msgspec.Struct):
    standings: dict[str, ChatStanding]


class _Holds(msgspec.Struct):
    holds: list[LegalHold]


class _TakenChats(msgspec.Struct):
    chats: list[TakenChat]


class _SettledChat(msgspec.Struct):
    chat: PulledChat | None
    lacks: bool


class _RedactedCopies(msgspec.Struct):
    message_ids: list[str]


class _Problem(msgspec.Struct):
    detail: str
    type: str = ""


class RemoteLedger:
    """
    A ledger behind `chatledger serve`, to pull from and to push to: what its key may see, and write.

    Example:
        office = RemoteLedger("https://chats.example.com", key="...")
        ledger.pull(office, name="office")
        ledger.push(office, name="laptop")

    Args:
        url: The address of the server, with the path before `/api/v1` if there is one.
        key: An API key or token of it; None where it asks for none.
        timeout_s: How long it may stay silent.

    Raises:
        ConfigurationError: It is no address of a server.
    """

    def __init__(self, url: str, *, key: str | None = None, timeout_s: float = 60.0) -> None:
        if not url.startswith(_SERVERS):
            msg = f"{url!r} is no address of a server, which begins with https:// or http://"
            raise ConfigurationError(msg)
        self.url, self._key, self._timeout_s = url.rstrip("/"), key, timeout_s

    @property
    def most_bytes(self) -> int:
        """The largest bundle that it takes."""
        return _MOST_BYTES

    def sums(self, under: Sequence[str]) -> HeadSums:
        """Return the sums over the last events of the chats that the key may see: the root, or those below places of the tree."""
        return _decoded(self._ask("/pulls/sums", {"under": under}), HeadSums, self.url)

    def heads(self, chat_ids: Sequence[str], buckets: Sequence[str] = ()) -> Heads:
        """Return the version and the hash of the last event of some chats, and of those of some buckets of the tree of sums."""
        answer = self._ask("/pulls/heads", {"chat_ids": chat_ids, "buckets": buckets})
        return {head.chat_id: (head.version, head.hash) for head in _decoded(answer, _RemoteHeads, self.url).heads}

    def standings(self, versions: Mapping[str, int]) -> dict[str, ChatStanding]:
        """Say how far it has come with each chat, and whether it has an event of that version."""
        if not versions:
            return {}
        answer = self._ask("/pulls/standings", {"versions": versions})
        standings = _decoded(answer, _Standings, self.url).standings
        if standings.keys() != versions.keys():
            msg = f"{self.url} does not say how far it has come with the chats that were asked for"
            raise InvalidValueError(msg)
        return standings

    def write_bundle(self, known: Mapping[str, int], stream: IO[bytes], most: int) -> bool:
        """Write a bundle of the next events of chats after the first few, of each about `most`; False where none of the chats is there."""
        before = stream.tell()
        self._ask_into("/pulls/bundle", {"known": dict(known), "most": most}, stream)
        return stream.tell() > before

    def export_chat(self, chat_id: str, after: int = 0) -> ImportedChat:
        """Return a chat, whole or with the messages of which events after a version tell. Raises `ChatNotFoundError`."""
        try:
            answer = self._ask("/pulls/tail", {"chat_id": chat_id, "version": after})
        except NotFoundError as error:
            raise ChatNotFoundError(chat_id) from error
        return read_tail(_decoded(answer, ChatTail, self.url), self.url)

    def holds(self, chat_ids: Sequence[str] | None) -> list[LegalHold]:
        """Return the legal holds on users and on chats, or on some chats, where the key is not limited to a user."""
        return _decoded(self._ask("/pulls/holds", {"chat_ids": chat_ids}), _Holds, self.url).holds

    def take_holds(self, holds: Sequence[LegalHold]) -> list[LegalHold]:  # noqa: ARG002 - of all targets
        """Put none: who may hold there pulls them."""
        return []

    def take_in(self, bundle: IO[bytes]) -> list[TakenChat]:
        """Write the events of a bundle there, as far as the key may. Raises `InvalidValueError` where it does not hold."""
        return _decoded(self._ask("/pulls/take", bundle.read()), _TakenChats, self.url).chats

    def redact_copies(self, message_ids: Sequence[str]) -> list[str]:
        """Redact copies there of messages that are redacted, as those are. Returns those that were."""
        answer = self._ask("/pulls/copies", {"message_ids": message_ids})
        return _decoded(answer, _RedactedCopies, self.url).message_ids

    def settle(self, settlement: Settlement, theirs: ImportedChat | None) -> PulledChat | None:
        """Delete a chat there, or add what `theirs` goes on with; None where nothing was to be done."""
        chat = None if theirs is None else written_tail(theirs).to_dict()
        body = msgspec.json.encode({"settlement": settlement.to_dict(), "chat": chat})
        if len(body) > _MOST_BYTES:
            why = f"what is new in it takes {len(body) // _MB} MB, more than a request may have; let the other side pull it"
            return PulledChat(chat_id=settlement.chat_id, outcome="refused", tip=settlement.tip, why=why)
        settled = _decoded(self._ask("/pulls/settle", msgspec.Raw(body)), _SettledChat, self.url)
        if settled.lacks:
            raise MessageNotFoundError(settlement.chat_id)
        return settled.chat

    def _ask(self, path: str, body: Any = None) -> bytes:
        answer = BytesIO()
        self._ask_into(path, body, answer)
        return answer.getvalue()

    def _ask_into(self, path: str, body: Any, stream: IO[bytes]) -> None:
        """Write what the server answers; GET without a body, else POST, of bytes as they are."""
        content = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        request = Request(f"{self.url}/api/v1{path}", content)  # noqa: S310 - the scheme was checked
        request.add_header(
            "Content-Type", "application/octet-stream" if isinstance(body, bytes) else "application/json"
        )
        if self._key is not None:
            request.add_header("Authorization", f"Bearer {self._key}")
        try:
            with urlopen(request, timeout=self._timeout_s) as answer:  # noqa: S310
                copyfileobj(answer, stream)
        except HTTPError as error:
            raise _refusal(error, self.url) from error
        except (URLError, TimeoutError, ConnectionError) as error:
            why = getattr(error, "reason", error)
            msg = f"{self.url} does not answer: {why}; calling again goes on"
            # Who refuses a body for its size closes the connection, and what was said of it is lost with that.
            if isinstance(why, BrokenPipeError | ConnectionResetError) and content is not None and len(content) > _MB:
                msg += f", unless a proxy before it refuses requests of {len(content) // _MB} MB"
            raise LogUnavailableError(msg) from error


def _refusal(error: HTTPError, url: str) -> Exception:
    told = error.read()
    try:
        problem = msgspec.json.decode(told, type=_Problem)
    except msgspec.MsgspecError:
        problem = _Problem(detail=error.reason)
    msg = f"{url} answers {error.code}: {problem.detail}"
    if error.code in {401, 403}:
        return AccessDeniedError(f"{msg}; give a key that may do that there")
    if error.code == 404 and problem.type == "urn:chatledger:error:ChatNotFoundError":
        return NotFoundError(msg)
    return LogUnavailableError(msg) if error.code in {429, 502, 503, 504} else InvalidValueError(msg)


def _decoded(answer: bytes, kind: type[T], url: str) -> T:
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.MsgspecError as error:
        msg = f"{url} does not answer as chatledger does ({error}); look at the address, and at the version there"
        raise InvalidValueError(msg) from error
