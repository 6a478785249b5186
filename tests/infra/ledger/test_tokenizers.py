"""Exact token counts, without a network."""

import base64
import functools
import gzip
import hashlib
import random
import subprocess
import sys
from importlib import import_module
from importlib.resources import files
from typing import Any

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from chatledger.domain.errors import ConfigurationError, InvalidValueError
from chatledger.infra.ledger import tokenizers
from chatledger.infra.ledger.tokenizers import ENCODINGS, tokenizer, tokens_of

# bpe-openai says so when it is imported, which these tests may do before chatledger, which silences it.
pytestmark = pytest.mark.filterwarnings("ignore:open_binary is deprecated:DeprecationWarning")


def ranks_of(path: str, expected_hash: str) -> dict[bytes, int]:
    """The tables that tiktoken downloads, from where bpe-openai keeps them, if they are what OpenAI says they are."""
    name = path.rpartition("/")[2] + ".gz"
    table = gzip.decompress((files("bpe_openai") / "data" / name).read_bytes())
    assert expected_hash == hashlib.sha256(table).hexdigest()
    lines = table.splitlines()
    return {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, lines)}


@functools.cache
def reference(name: str) -> tiktoken.Encoding:
    """OpenAI's own implementation of the encoding."""
    openai_public: Any = import_module("tiktoken_ext.openai_public")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openai_public, "load_tiktoken_bpe", ranks_of)
        return tiktoken.Encoding(**getattr(openai_public, name)())


# For cl100k_base, but for the first and the last row: OpenAI's cookbook, "How to count tokens with tiktoken".
@pytest.mark.soak
@pytest.mark.parametrize(
    ("text", "cl100k_base", "o200k_base"),
    [
        ("hello world", 2, 2),
        ("tiktoken is great!", 6, 6),
        ("antidisestablishmentarianism", 6, 6),
        ("2 + 2 = 4", 7, 7),
        ("お誕生日おめでとう", 9, 8),
        ("", 0, 0),
    ],
)
def test_known_counts(text: str, cl100k_base: int, o200k_base: int) -> None:
    """Counts that were published, or are what tiktoken gives."""
    assert (cl100k_base, o200k_base) == (tokenizer("cl100k_base")(text), tokenizer("o200k_base")(text))


@pytest.mark.soak
@pytest.mark.parametrize("name", ENCODINGS)
@given(
    text=st.text(st.sampled_from(" \n\t\rabcdeAZ'sé你好🎉🇱🇻0123456789.,;<>|_-\u0301\u00a0\u2028\0"), max_size=60)
    | st.text(max_size=20)
)
def test_counts_are_those_of_tiktoken(name: str, text: str) -> None:
    """For any text, white space and marks included."""
    assert len(reference(name).encode_ordinary(text)) == tokenizer(name)(text)


@pytest.mark.guard
def test_the_default_is_that_of_current_models() -> None:
    assert tokenizer("o200k_base")("お誕生日おめでとう") == tokenizer()("お誕生日おめでとう")


@pytest.mark.parametrize("name", ENCODINGS)
def test_names_of_special_tokens_are_text(name: str) -> None:
    """What a user writes is no command, and no error."""
    assert tokenizer(name)("<|endoftext|>") > 1


@pytest.mark.matrix
@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("size", [3, 7, 20])
def test_long_texts_are_counted_in_pieces(name: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pieces take as many tokens as the whole, for they are cut where no token spans."""
    drawn = random.Random(7)
    text = " ".join(drawn.choice(["town", "Old", "12,5", "it's", "e\u0301\n\nx", "a  b", "\n  c"]) for _ in range(300))
    whole = tokenizer(name)(text)
    monkeypatch.setattr(tokenizers, "_MAX_CHARACTERS", size * 10)

    assert len(text) > 2 * size * 10
    assert whole == tokenizer(name)(text)


def test_a_very_long_text_is_counted() -> None:
    """The library refuses a million characters at once; text without any blank is cut all the same."""
    assert 240_001 == tokenizer()("word " * 240_000)
    assert tokenizer()("x" * 1_200_000) >= 1_200_000 / 10


@pytest.mark.soak
def test_nothing_is_downloaded() -> None:
    """Counting works where every connection fails."""
    program = """
import socket
def refuse(*args, **kwargs):
    raise OSError("no network")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
from chatledger.tokens import tokenizer
print(tokenizer("o200k_base")("hello world"), tokenizer("cl100k_base")("hello world"))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "2 2" == done.stdout.strip()


@pytest.mark.soak
def test_nothing_is_imported_before_it_is_used() -> None:
    """Tables take time and memory: only who counts exactly pays for them."""
    program = "import sys, chatledger.tokens; print(sorted({'bpe_openai', 'tiktoken'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "[]" == done.stdout.strip()


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra the error says what to install."""

    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(tokenizers, "import_module", missing)

    with pytest.raises(ConfigurationError, match=r"pip install 'chatledger\[tokens\]'"):
        tokenizer()


@pytest.mark.parametrize("name", ["gpt-4o", "", "O200K_BASE"])
def test_an_unknown_encoding_is_refused(name: str) -> None:
    with pytest.raises(InvalidValueError, match="cl100k_base, o200k_base"):
        tokenizer(name)


def test_an_encoding_of_tiktoken_is_a_tokenizer() -> None:
    """Also one of one's own, with names of special tokens as ordinary text."""
    ranks = {bytes([byte]): byte for byte in range(256)} | {b"he": 256, b"ll": 257, b"hell": 258}
    own = tiktoken.Encoding("own", pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens={"<|end|>": 300})

    assert 2 == tokens_of(own)("hello")
    assert 7 == tokens_of(own)("<|end|>")


@pytest.mark.parametrize("wrong", [len, "o200k_base", None], ids=["function", "name", "none"])
def test_what_is_no_encoding_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidValueError, match="encode_ordinary"):
        tokens_of(wrong)
