"""The command line on a directory that nobody has open: what it prints, starts and imports."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest
from tests.support.cli_world import run

import chatledger
from chatledger import user
from chatledger.infra.store.opening.at_rest import NOTE_FILE

READS: Final = [
    ("chats",),
    ("chats", "--user", "ada", "--limit", "1"),
    ("chats", "--json"),
    ("--as-user", "ada", "chats"),
    ("--as-user", "nobody", "show", "c"),
    ("show", "c"),
    ("show", "c", "--messages"),
    ("show", "c", "--json"),
    ("show", "nothing"),
    ("branches", "c"),
    ("checkpoints", "c"),
    ("runs", "c"),
    ("cache-report", "c"),
    ("threads",),
    ("diff", "c", "main", "main-2"),
    ("search", "hello"),
    ("search", "no such word", "--json"),
]
OTHERS: Final = [("log", "c"), ("show", "c", "--at", "2"), ("verify",), ("edit", "c", "--title", "new")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "data"
    with chatledger.open(path, durability="fast") as ledger:
        ledger.create_chat("c", "ada")
        ledger.create_chat("d", "bob")
        ledger.append("c", [user("hello", id="q")])
        ledger.set_checkpoint("c", "begin", "q")
        ledger.record_run("c", "r", thread_id="t", assistant_id="a", trigger_message_id="q")
        ledger.fork("c", "q")
        ledger.append("c", [user("hello again")])
    return path


def printed(args: tuple[str, ...], place: Path) -> tuple[int, str, str]:
    result = run(*args, at=place)
    return result.exit_code, result.stdout, result.stderr


def is_served(args: tuple[str, ...], place: Path) -> tuple[bool, tuple[int, str, str]]:
    """Whether a server was started for a command, which writes the seals anew; and what it printed."""
    before = (place / "seals").stat().st_ctime_ns
    found = printed(args, place)
    return before != (place / "seals").stat().st_ctime_ns, found


@pytest.mark.matrix
@pytest.mark.parametrize("args", READS, ids=" ".join)
def test_reads_print_the_same_without_a_server(place: Path, args: tuple[str, ...]) -> None:
    """As with one, which leaves the directory at rest again."""
    was_served, found = is_served(args, place)
    (place / NOTE_FILE).unlink()
    is_served_now, again = is_served(args, place)

    assert (False, True) == (was_served, is_served_now)
    assert again == found


@pytest.mark.matrix
@pytest.mark.parametrize("args", OTHERS, ids=" ".join)
def test_other_verbs_start_one(place: Path, args: tuple[str, ...]) -> None:
    """What is about the log, or writes, is as ever."""
    was_served, found = is_served(args, place)

    assert was_served
    assert 0 == found[0], found


NEEDLESS: Final = {
    *("anyio", "asyncio", "eventsourcing", "nats", "numpy", "pydantic", "regex", "sqlite3", "ssl", "Stemmer"),
    *("chatledger.infra.admin", "chatledger.infra.exchange", "chatledger.infra.log.nats", "chatledger.domain.render"),
    *("chatledger.projections.index", "chatledger.projections.chat.writer", "chatledger.projections.search.indexer"),
}
PROGRAM: Final = """
import json, sys
from chatledger.infra.entrypoints.cli import cli
code = cli.main(sys.argv[1:], standalone_mode=False)
json.dump(sorted(sys.modules), sys.stderr)
sys.exit(code)
"""


def test_a_list_of_chats_imports_what_it_needs(place: Path) -> None:
    """No server is asked, nothing is searched or written: what does that is not imported."""
    args = ("--location", str(place), "chats")
    process = subprocess.run([sys.executable, "-c", PROGRAM, *args], capture_output=True, text=True, check=True)
    found = set(json.loads(process.stderr))

    assert all(map(find_spec, NEEDLESS)), "these are modules"
    assert {"lmdb", "chatledger.projections.snapshot", "chatledger.infra.ledger.ledger"} <= found
    assert set() == NEEDLESS & found
