"""Findings of fuzzers, and inputs like them: each raised an undocumented error, or was read for ever."""

import pytest
from tests.fuzz.fuzz_targets import ready


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("server-line", b"INFO {}\r\n"),
        ("server-line", b'INFO {"max_payload": null}\r\n'),
        ("server-line", b"INFO " + b'{"a":' * 5000 + b"\r\n"),
        ("server-introduction", b"INFO " + b'{"a":' * 5000 + b"\r\n"),
        ("server-line", b"MSG _INBOX.x.1 1 -24\r\n"),
        ("server-line", b"HMSG _INBOX.x.1 1 -9 0\r\n\r\n"),
        ("server-line", b"HMSG _INBOX.x.1 1 9 2\r\nab\r\n"),
    ],
    ids=[
        "no limit",
        "odd limit",
        "nested",
        "nested introduction",
        "negative size",
        "negative headers",
        "headers beyond the end",
    ],
)
def test_found_once(name: str, raw: bytes) -> None:
    with ready(name) as target:
        target.check(raw)


@pytest.mark.parametrize(("offset", "value"), [(6, b"\xff"), (9, b"\x08"), (46, b"\xff"), (10, b"\x0e")])
def test_a_damaged_archive(offset: int, value: bytes) -> None:
    """An unknown version, a name in UTF-8 that is none, an unknown compression; in the list at the end of the archive."""
    with ready("import-chatgpt-zip") as target:
        damaged = bytearray(target.seeds[0])
        at = damaged.index(b"PK\1\2")
        damaged[at + 9] = 0x08  # the name is UTF-8
        damaged[at + offset : at + offset + len(value)] = value
        target.check(bytes(damaged))


@pytest.mark.parametrize("name", ["import-deepagents", "import-saver"])
def test_a_schema_with_bytes_that_are_no_text(name: str) -> None:
    """SQLite quotes it in what it says of it, and Python's module fails to read that."""
    with ready(name) as target:
        damaged = target.seeds[0].replace(b"CREATE TABLE", b"CREATE \xc1ABLE")
        assert damaged != target.seeds[0]
        target.check(damaged)


def test_a_file_with_the_same_transaction_twice() -> None:
    """What checks the pages and what cleans them take the same snapshot then, which is the one that LMDB opens."""
    with ready("index-scrub") as target:
        snapshots = target.seeds[-2]  # the record of the snapshot on page 0
        target.check(bytes([*snapshots[:132], snapshots[132] ^ 1, *snapshots[133:]]))
