"""Short programs: the command line on a directory that nobody has open, and what the package takes to import."""

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import chatledger
from chatledger.infra.store.opening.at_rest import NOTE_FILE

from ..measure import Row, check_equal, take_turns
from ..prose import Prose
from ..world import World

_PER_CHAT: Final = 4
_LIBRARIES: Final = "import click, lmdb, msgspec, rich.console, rich.text"
_OURS: Final = "import sys, chatledger; chatledger.open(sys.argv[1]).close()"
_SAVER: Final = """
import sys
from langgraph.checkpoint.sqlite import SqliteSaver
with SqliteSaver.from_conn_string(sys.argv[1]) as saver:
    saver.setup()
"""
_NOTE: Final = "whole processes, from their start to their end; the system's file cache is warm"


def starting(world: World) -> Iterator[Row]:
    """`chatledger chats`, without a server and with one; a new ledger; and importing what it stands on, and what opens a ledger."""
    place = world.folder() / "data"
    talk = Prose(31)
    with chatledger.open(place, durability="fast") as ledger:
        for number in range(world.sizes.chats):
            ledger.append(ledger.create_chat(f"chat {number}", "ada").id, list(talk.messages(_PER_CHAT)))
    chats = partial(_list, place)
    check_equal("the chats of a directory", chats(), _with_server(place))
    for name, peer, ours, theirs in (
        ("`chatledger chats`, a directory at rest", "ours, with a server", chats, partial(_with_server, place)),
        ("`chatledger chats`, a directory at rest", "its libraries, imported", chats, partial(_run, "-c", _LIBRARIES)),
        (
            "open a new directory, in a process of its own",
            "LangGraph's SqliteSaver on a new file",
            partial(_open_new, world, _OURS),
            partial(_open_new, world, _SAVER),
        ),
        (
            "import of `chatledger.open`",
            "its libraries, imported",
            partial(_run, "-c", "import chatledger; chatledger.open"),
            partial(_run, "-c", "import eventsourcing.persistence, lmdb, msgspec, nats, regex"),
        ),
    ):
        world.report(f"{name}, {peer}")
        samples = take_turns({"ours": ours, "theirs": theirs}, repeats=world.sizes.repeats)
        yield Row(subject="starting", name=name, peer=peer, ours=samples["ours"], theirs=samples["theirs"], note=_NOTE)


def _run(*args: str) -> str:
    return subprocess.run([sys.executable, *args], check=True, capture_output=True, text=True).stdout


def _open_new(world: World, program: str) -> str:
    """Run a program that opens a ledger, or another's file, which is not there yet."""
    return _run("-c", program, str(world.folder() / "new"))


def _list(place: Path) -> str:
    return _run("-m", "chatledger", "--location", str(place), "chats", "--limit", "50")


def _with_server(place: Path) -> str:
    """The same where nothing says that the directory is at rest; a server that ends cleanly says so again."""
    (place / NOTE_FILE).unlink()
    return _list(place)
