"""Foreign texts: queries, anchors, places of feeds, headers of messages, keys and locations."""

from functools import partial
from pathlib import Path
from typing import Final

import pytest
from eventsourcing.persistence import DataError, ProgrammingError, StoredEvent
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.fuzz_inputs import WILD, nearly, only_ours
from tests.fuzz.fuzz_samples import KEY, anchors, bookmarks

import chatledger
from chatledger import Anchor, ChatledgerError, ConfigurationError
from chatledger.domain.search.query import MAX_QUERY_TERMS, parse
from chatledger.infra.encryption import Encryption
from chatledger.infra.jetstream.append import Message
from chatledger.infra.jetstream.reading import TOPIC, VERSION, LogMessage
from chatledger.infra.jetstream.records import Records, version_of
from chatledger.infra.jetstream.stream import event_prefix
from chatledger.infra.jetstream.subjects import ORIGINATOR_ID, check_stream_name, raw_id, stream_name, token
from chatledger.infra.log.bookmarks import Bookmark, decode_bookmark
from chatledger.infra.log.keys import Keyring, read_keys
from chatledger.infra.login import Login
from chatledger.infra.servers import Place, read_place, without_secrets

FEW = settings(max_examples=80, deadline=None)
any_text = st.text(st.characters(codec=None) | st.sampled_from('()"* \0\ud800漢กa'), max_size=60)
"""Lone surrogates too: `sys.argv` may have them."""


# Queries

QUERIES: Final = [b'salt AND (pepper OR "sea salt") NOT tom*', "漢字 OR กก".encode(), b'((("a b"*) OR c) NOT d)']


@given(text=any_text | nearly(QUERIES).map(lambda raw: raw.decode("utf-8", "surrogateescape")))
@FEW
def test_parsing_a_query_never_fails(text: str) -> None:
    parse(text)


@pytest.mark.parametrize("part", ["(", ")", '"', "a ", "a*", "NOT ", "(a ", '"a b" OR ', "漢", "e\u0301", "a-", "\0"])
def test_long_queries_end(part: str) -> None:
    query = parse(part * 20_000)
    assert query is None or len(repr(query)) < 400 * MAX_QUERY_TERMS


@given(texts=st.lists(any_text | nearly(QUERIES).map(lambda raw: raw.decode("utf-8", "surrogateescape")), min_size=4))
@settings(max_examples=20, deadline=None)
def test_searching_for_anything(texts: list[str]) -> None:
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "u")
        ledger.append("c", [chatledger.user("salt and pepper, sea salt, 漢字")])
        for text in texts:
            only_ours(partial(ledger.search, text, chat_id="c"))


# Anchors and places of feeds


@given(raw=nearly(anchors()) | st.sampled_from(WILD) | any_text)
@FEW
def test_an_anchor(raw: bytes | str) -> None:
    found = only_ours(lambda: Anchor.from_json(raw))
    if found is not None:
        only_ours(found.check_leaves)
        only_ours(lambda: found.proof("c"))


@given(raw=nearly(bookmarks()) | st.sampled_from(WILD))
@FEW
def test_the_place_of_a_feed(raw: bytes) -> None:
    found = only_ours(lambda: decode_bookmark(raw, 3))
    assert found is None or isinstance(found, Bookmark)


# Messages of a stream. The interface is that of the library, and so are its errors.

RECORDS: Final = {kind: Records("s", kind) for kind in ("text", "uuid")}
PREFIX: Final = event_prefix("s")


def _sent(originator_id: str) -> Message:
    (message,) = RECORDS["text"].messages([StoredEvent(originator_id, 3, "chatledger.x/1", b"state")], None)
    return message


SUBJECTS: Final = [_sent(one).subject.encode() for one in ("c", "c" * 200, "6ba7b810-9dad-11d1-80b4-00c04fd430c8")]


@given(
    kind=st.sampled_from(["text", "uuid"]),
    subject=st.sampled_from(SUBJECTS) | nearly(SUBJECTS),
    headers=st.fixed_dictionaries(
        {},
        optional={
            TOPIC: nearly([b"chatledger.x/1", b"%ff"]).map(lambda raw: raw.decode("latin-1")),
            VERSION: nearly([b"3"]).map(lambda raw: raw.decode("latin-1")),
            ORIGINATOR_ID: nearly([b"c" * 200]).map(lambda raw: raw.decode("latin-1")),
        },
    ),
)
@FEW
def test_a_message_of_a_stream(kind: str, subject: bytes, headers: dict[str, str]) -> None:
    message = LogMessage(7, subject.decode("latin-1"), headers, b"state")
    foreign = LogMessage(7, PREFIX + subject.decode("latin-1"), headers, b"state")
    for one in (message, foreign):
        only_ours(partial(RECORDS[kind].notification, one), also=(DataError,))
        only_ours(partial(version_of, one), also=(DataError,))
    only_ours(lambda: RECORDS[kind].event(foreign), also=(DataError,))


@given(name=any_text)
@FEW
def test_names_and_tokens(name: str) -> None:
    """Any text is the name of a stream after a change, and any id comes back from its subject."""
    only_ours(lambda: check_stream_name(name), also=(ProgrammingError,))
    assert check_stream_name(stream_name(name))
    only_ours(lambda: raw_id(name, name), also=(DataError,))
    if name:
        made = token(name)
        assert "." not in made
        assert " " not in made


# Configuration

ENDPOINTS: Final = [
    b"nats://user:secret@host:4222/stream?replicas=3",
    b"tls://token@a:1,b:2,c:3/s",
    b"nats://[::1]:4222",
]


@given(
    text=any_text
    | nearly([KEY.encode(), KEY.encode() + b",2:" + KEY[2:].encode()]).map(lambda raw: raw.decode("latin-1"))
)
@FEW
def test_keys(text: str) -> None:
    """And no key is shown, whatever is wrong."""
    found = only_ours(lambda: read_keys(text))
    assert found is None or isinstance(found, Keyring)
    try:
        Encryption(text)
    except ChatledgerError as error:
        assert KEY[2:] not in str(error)  # noqa: PT017 - as above


@given(location=any_text | nearly(ENDPOINTS).map(lambda raw: raw.decode("utf-8", "surrogateescape")))
@FEW
def test_locations_on_servers(location: str) -> None:
    found = only_ours(lambda: read_place(location, stream="s", login=None, replicas=None))
    assert found is None or isinstance(found, Place)
    without_secrets(location)


OTHERS: Final = [b"sqlite:///no/such/folder/file.db", b"postgresql://user:pw@:0/db", b"memory:x", b"ftp://x"]


@given(location=nearly(OTHERS).map(lambda raw: raw.decode("utf-8", "surrogateescape")))
@settings(max_examples=60, deadline=None)
def test_nothing_is_made_for_a_location_that_makes_no_sense(location: str) -> None:
    """What has a `:` and is no location is refused, and not taken for a folder."""
    if "://" not in location or location.startswith(("nats:", "tls:", "postgres", "sqlite")):
        return
    with pytest.raises(ConfigurationError):
        chatledger.open(location)


SETTINGS: Final = (
    "USER",
    "PASSWORD",
    "TOKEN",
    "CREDS",
    "NKEY",
    "TLS_CA",
    "TLS_CERT",
    "TLS_KEY",
    "TLS_FIRST",
    "INBOX_PREFIX",
)


@given(values=st.dictionaries(st.sampled_from(SETTINGS), any_text))
@settings(max_examples=50, deadline=None)
def test_logins_of_an_environment(values: dict[str, str]) -> None:
    only_ours(lambda: Login.from_environment({f"CHATLEDGER_{name}": value for name, value in values.items()}))


@given(raw=nearly([b"-----BEGIN NATS USER JWT-----\neyJ\n------END\n-----BEGIN USER NKEY SEED-----\nSUAB\n---"]))
@settings(max_examples=50, deadline=None)
def test_files_of_credentials(raw: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path: Path = tmp_path_factory.getbasetemp() / "some.creds"
    path.write_bytes(raw)
    for login in (Login(creds=path), Login(nkey=path), Login(tls_ca=path)):
        only_ours(partial(read_place, "nats://host", stream="s", login=login, replicas=None))
