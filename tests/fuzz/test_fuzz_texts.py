"""Foreign texts: long queries, locations and settings; `test_fuzz_targets` has all others."""

from functools import partial
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.fuzz_inputs import any_text, nearly, only_ours
from tests.fuzz.targets_texts import QUERIES
from tests.support.soak import examples

import chatledger
from chatledger import ConfigurationError
from chatledger.domain.search.query import MAX_QUERY_TERMS, parse
from chatledger.infra.log.nats.endpoint import Login

# Queries


@pytest.mark.parametrize("part", ["(", ")", '"', "a ", "a*", "NOT ", "(a ", '"a b" OR ', "漢", "e\u0301", "a-", "\0"])
def test_long_queries_end(part: str) -> None:
    query = parse(part * 8_000)
    assert query is None or len(repr(query)) < 400 * MAX_QUERY_TERMS


@given(texts=st.lists(any_text | nearly(QUERIES).map(lambda raw: raw.decode("utf-8", "surrogateescape")), min_size=4))
@settings(max_examples=examples(20), deadline=None)
def test_searching_for_anything(texts: list[str]) -> None:
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "u")
        ledger.append("c", [chatledger.user("salt and pepper, sea salt, 漢字")])
        for text in texts:
            only_ours(partial(ledger.search, text, chat_id="c"))


# Configuration

OTHERS: Final = [b"sqlite:///no/such/folder/file.db", b"postgresql://user:pw@:0/db", b"memory:x", b"ftp://x"]


@given(location=nearly(OTHERS).map(lambda raw: raw.decode("utf-8", "surrogateescape")))
@settings(max_examples=examples(60), deadline=None)
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
@settings(max_examples=examples(50), deadline=None)
def test_logins_of_an_environment(values: dict[str, str]) -> None:
    only_ours(lambda: Login.from_environment({f"CHATLEDGER_{name}": value for name, value in values.items()}))
