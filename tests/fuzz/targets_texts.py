"""Fuzzed: queries, anchors, places of feeds, messages of other formats, what servers say, keys and locations."""

import base64
import select
import socket
import time
from collections.abc import Mapping
from functools import cache, partial
from importlib import import_module
from itertools import count
from typing import Any, Final
from unittest import mock

from eventsourcing.persistence import DataError, ProgrammingError, StoredEvent
from tests.fuzz.fuzz_inputs import only_ours
from tests.fuzz.fuzz_samples import KEY, anchors, bookmarks, excerpts
from tests.fuzz.fuzz_target import Bench, Maker, Target, as_text, chosen, numbered
from tests.support.in_form import in_form

import chatledger
from chatledger import ChatledgerError, Encryption
from chatledger.admin import Anchor
from chatledger.domain.proof.excerpt import read_excerpt
from chatledger.domain.search.query import parse
from chatledger.fragments import to_fragment
from chatledger.infra.exchange.source import decode_json
from chatledger.infra.log.bookmarks import Bookmark, decode_bookmark
from chatledger.infra.log.cipher import Keyring, read_keys
from chatledger.infra.log.nats.append import OutgoingMessage
from chatledger.infra.log.nats.blocking_connection import BlockingConnection, ConnectionBrokenError
from chatledger.infra.log.nats.endpoint import Login
from chatledger.infra.log.nats.reading import TOPIC, VERSION, LogMessage
from chatledger.infra.log.nats.records import Records, event_version
from chatledger.infra.log.nats.stream import event_prefix
from chatledger.infra.log.nats.subjects import ORIGINATOR_ID, check_stream_name, raw_id, stream_name, token
from chatledger.infra.log.nats_server import launcher
from chatledger.infra.store.opening.nats_locations import NatsPlace, read_place
from chatledger.infra.store.opening.presence import without_secrets

QUERIES: Final = (b'salt AND (pepper OR "sea salt") NOT tom*', "漢字 OR กก".encode(), b'((("a b"*) OR c) NOT d)')
OPENAI_MESSAGES: Final = (
    b'{"role": "user", "content": "hi", "name": "ada"}',
    b'{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:x"}}]}',
    b'{"role": "assistant", "content": null, "refusal": "no", "tool_calls": [{"id": "c", "type": "function", "function": %s}]}'
    % b'{"name": "w", "arguments": "{\\"city\\": 1}"}',
    b'{"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "w", "input": "x"}}]}',
    b'{"role": "tool", "tool_call_id": "c", "content": "rain"}',
)
FRAGMENTS: Final = (
    b'{"type": "term", "name": "a", "definition": "b"}',
    b'{"type": "hint", "text": "be short"}',
)


def _query(_: Bench) -> Target:
    """The text of a query: reading one never fails."""

    def read(raw: bytes) -> None:
        try:
            parse(as_text(raw))
        except ChatledgerError as error:
            raise AssertionError(error) from error

    return Target(QUERIES, read)


def _search(bench: Bench) -> Target:
    """The text of a query, which is then asked."""
    ledger = bench.stack.enter_context(chatledger.open("memory:"))
    ledger.create_chat("c", "u")
    texts = ("salt and pepper, sea salt, 漢字", "a b c d", "tomato กก")
    ledger.append("c", [chatledger.user(text) for text in texts])
    return Target(QUERIES, lambda raw: ledger.search(as_text(raw), chat_id="c"))


def _excerpt(_: Bench) -> Target:
    """The bytes of an excerpt."""

    def read(raw: bytes) -> None:
        excerpt = read_excerpt(base64.urlsafe_b64encode(raw).decode().rstrip("="))
        only_ours(lambda: excerpt.check_terms(None, 0))

    return Target(excerpts(), read)


def _anchor(_: Bench) -> Target:
    def read(raw: bytes) -> None:
        anchor = Anchor.from_json(raw)
        only_ours(anchor.check_leaves)
        only_ours(lambda: anchor.proof("c"))

    return Target(anchors(), read)


def _bookmark(_: Bench) -> Target:
    """The place of a feed."""

    def read(raw: bytes) -> None:
        assert isinstance(decode_bookmark(raw, 3), Bookmark)

    return Target(bookmarks(), read)


def _openai(_: Bench) -> Target:
    """A message of OpenAI's as JSON."""
    return Target(OPENAI_MESSAGES, lambda raw: in_form("openai", decode_json(raw)[0]))


def _fragment(_: Bench) -> Target:
    """A fragment of a context as JSON."""
    return Target(FRAGMENTS, lambda raw: to_fragment(decode_json(raw)[0]))


# What servers say. The interfaces of recorders are those of the library, and so are their errors.

RECORDS: Final = {kind: Records("s", kind) for kind in ("text", "uuid")}
PREFIX: Final = event_prefix("s")
HEADERS: Final = (TOPIC, VERSION, ORIGINATOR_ID)


def _sent(originator_id: str) -> OutgoingMessage:
    (message,) = RECORDS["text"].messages([StoredEvent(originator_id, 3, "chatledger.x/1", b"state")], None)
    return message


SUBJECTS: Final = [_sent(one).subject.encode() for one in ("c", "c" * 200, "6ba7b810-9dad-11d1-80b4-00c04fd430c8")]


def read_message(kind: str, message: LogMessage) -> None:
    """Read all that is read of a message, which may be a stranger's."""
    foreign = LogMessage(message.position, PREFIX + message.subject, message.headers, message.payload)
    for one in (message, foreign):
        only_ours(partial(RECORDS[kind].notification, one), also=(DataError,))
        only_ours(partial(event_version, one), also=(DataError,))
    only_ours(lambda: RECORDS[kind].event(foreign), also=(DataError,))


def _message(_: Bench) -> Target:
    """The kind of ids, and subject and headers of a message of a stream, one to a line."""

    def read(raw: bytes) -> None:
        kind, text = chosen(raw, sorted(RECORDS))
        subject, *values = text.decode("latin-1").split("\n")
        headers = {name: value for name, value in zip(HEADERS, values, strict=False) if value}
        read_message(kind, LogMessage(7, subject, headers, b"state"))

    texts = [subject + b"\nchatledger.x/1\n3\n" + b"c" * 200 for subject in SUBJECTS]
    return Target([*numbered(texts[:2]), *numbered([texts[2], texts[2][:-200]])], read)


class _Parser(BlockingConnection):
    """A line whose server is the other end of a pair of sockets."""

    def __init__(self, connection: socket.socket) -> None:
        self._inbox, self._inbox_bytes = "_INBOX.x.", b"_INBOX.x."
        self._tokens = count()
        self._rest = bytearray()
        self._wanted = self._pongs = self.max_payload = 0
        self._arrived, self._pages = {}, {0: []}
        self._socket, self._poll = connection, select.poll()

    def take(self) -> None:
        """Sort what came."""
        self._receive(time.monotonic() + 5)


REPLIES: Final = (
    b'INFO {"server_name": "n", "max_payload": 1048576, "headers": true}\r\nPONG\r\n',
    b'MSG _INBOX.x.1 1 29\r\n{"stream":"s","seq":1,"x":"y"}\r\n+OK\r\nPING\r\n',
    b"HMSG _INBOX.x.0 1 24 29\r\nNATS/1.0\r\nNats-a: 1\r\n\r\n\r\nstate\r\n",
    b"HMSG _INBOX.x.0 1 16 16\r\nNATS/1.0 204 \r\n\r\n\r\n",
)


def _blocking_connection(_: Bench) -> Target:
    """Bytes that come over a connection from a server."""

    def read(raw: bytes) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.sendall(raw)
            theirs.shutdown(socket.SHUT_WR)
            _Parser(ours).take()

    return Target(REPLIES, read, errors=(ConnectionBrokenError,))


def _introduction(bench: Bench) -> Target:
    """The words with which whoever listens on the port of a server greets everybody who connects."""
    connect = bench.stack.enter_context(mock.patch.object(launcher, "_connect"))

    def read(raw: bytes) -> None:
        ours, theirs = socket.socketpair()
        connect.return_value = ours
        with ours, theirs:
            theirs.sendall(raw)
            theirs.shutdown(socket.SHUT_WR)
            found = launcher.get_server_info("nats://host:1")
            assert found is None or isinstance(found.server_name, str)

    return Target(REPLIES[:1], read)


# Names and configuration


def _name(_: Bench) -> Target:
    """Any text is the name of a stream after a change, and any id comes back from its subject."""

    def read(raw: bytes) -> None:
        name = as_text(raw)
        assert check_stream_name(stream_name(name))
        if name:
            made = token(name)
            assert not set(made) & set(". *>")
        only_ours(lambda: check_stream_name(name), also=(ProgrammingError,))
        only_ours(lambda: raw_id(name, name), also=(DataError,))

    return Target([b"a", "a-ü.*".encode(), *(token(name).encode() for name in ("a", "ü" * 200))], read)


def _keys(_: Bench) -> Target:
    """A list of keys: none of them is shown, whatever is wrong."""

    def read(raw: bytes) -> None:
        text = as_text(raw)
        try:
            assert isinstance(read_keys(text), Keyring)
            Encryption(text)
        except ChatledgerError as error:
            assert KEY[2:] not in str(error)  # noqa: PT017 - as above
            raise

    return Target([KEY.encode(), KEY.encode() + b",2:" + KEY[2:].encode()], read)


ENDPOINTS: Final = (
    b"nats://user:secret@host:4222/stream?replicas=3",
    b"tls://token@a:1,b:2,c:3/s",
    b"nats://[::1]:4222",
)


def _location(_: Bench) -> Target:
    """The location of a ledger on servers."""

    def read(raw: bytes) -> None:
        location = as_text(raw)
        without_secrets(location)
        assert isinstance(read_place(location, stream="s", login=None, replicas=None), NatsPlace)

    return Target(ENDPOINTS, read)


@cache
def seed_of_user() -> bytes:
    """The seed of a user, which is none of anybody."""
    nkeys: Any = import_module("nkeys")
    raw = bytearray(b"\x95\0" + bytes(32))
    return base64.b32encode(raw + nkeys.crc16(raw).to_bytes(2, "little")).rstrip(b"=")


def _credentials(bench: Bench) -> Target:
    """The kind of a login, and its file."""
    path = bench.folder / "some.creds"
    logins = (Login(creds=path), Login(nkey=path))

    def read(raw: bytes) -> None:
        login, content = chosen(raw, logins)
        path.write_bytes(content)
        read_place("nats://host", stream="s", login=login, replicas=None)

    token = b"-----BEGIN NATS USER JWT-----\neyJ.eyJ.x\n------END NATS USER JWT------\n"
    creds = token + b"-----BEGIN USER NKEY SEED-----\n" + seed_of_user() + b"\n------END USER NKEY SEED------\n"
    return Target(numbered([creds, seed_of_user()]), read)


TEXTS: Final[Mapping[str, Maker]] = {
    "query": _query,
    "search": _search,
    "anchor": _anchor,
    "excerpt": _excerpt,
    "bookmark": _bookmark,
    "openai-message": _openai,
    "fragment": _fragment,
    "stream-message": _message,
    "server-line": _blocking_connection,
    "server-introduction": _introduction,
    "name": _name,
    "keys": _keys,
    "location": _location,
    "credentials": _credentials,
}
