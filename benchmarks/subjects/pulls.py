"""Pulls of what another ledger went on with, next to `git fetch` of the same texts."""

import json
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import IO, Final

import chatledger
from chatledger import NewMessage
from chatledger.admin import check_bundle
from chatledger.infra.ledger.peers import LedgerPeer

from ..measure import Row, check_equal, take_turns
from ..prose import Prose
from ..world import World

_PER_CHAT: Final = 100
_SHARE: Final = 10
"""Of `many_chats` this part are chats, each of which gets one more message: 10,000 among 1,000,000 in a full run."""


def pulls(world: World) -> Iterator[Row]:
    """One message more in each of many chats, where the other side has all before it; and where nothing changed."""
    chats, folder = world.sizes.many_chats // _SHARE, world.folder()
    world.report(f"pulls: {chats:,} chats of {_PER_CHAT} messages")
    prose = Prose(1)
    theirs = folder / "theirs"
    theirs.mkdir()
    _git(theirs, "init", "--quiet")
    with chatledger.open(folder / "laptop", durability="fast") as laptop, chatledger.open(folder / "office") as office:
        for number in range(chats):
            messages = [_message(prose, number * _PER_CHAT + at) for at in range(_PER_CHAT)]
            laptop.create_chat(f"chat-{number}", "ada")
            laptop.append(f"chat-{number}", messages)
            with (theirs / f"chat-{number}.jsonl").open("w") as file:
                file.writelines(_line(message) for message in messages)
        _commit(theirs)
        _git(folder, "clone", "--quiet", "--bare", theirs.as_uri(), "copy")
        office.pull(laptop, name="laptop")
        for number in range(chats):
            message = _message(prose, chats * _PER_CHAT + number)
            laptop.append(f"chat-{number}", [message])
            with (theirs / f"chat-{number}.jsonl").open("a") as file:
                file.write(_line(message))
        _commit(theirs)
        laptop_as_peer, old = _Counting(laptop), _git(folder / "copy", "rev-parse", "HEAD")
        pack = _git(theirs, "pack-objects", "--revs", "--thin", "--stdout", "--quiet", given=b"HEAD\n^" + old)
        for name in (f"pull of {chats:,} among {chats * _PER_CHAT:,} messages", "pull where nothing changed"):
            began = time.perf_counter()
            pulled = office.pull(laptop_as_peer, name="laptop").chats
            between = time.perf_counter()
            _git(folder / "copy", "fetch", "--quiet", "origin", "+refs/heads/*:refs/heads/*")
            ended = time.perf_counter()
            check_equal(name, sum(chat.messages for chat in pulled), 0 if "nothing" in name else chats)
            yield Row(
                subject="pulls",
                name=name,
                peer="git fetch",
                ours=[between - began],
                theirs=[ended - between],
                note=(
                    "a file of JSON lines for each chat, in a repository on the same disk; ours checks each event against its chat and "
                    "has it on the disk, in the index and in the search when it returns"
                ),
            )
        yield Row(
            subject="pulls",
            name=f"bytes of a pull of {chats:,} among {chats * _PER_CHAT:,} messages",
            peer="git pack",
            show="bytes",
            ours=[float(laptop_as_peer.size)],
            theirs=[float(len(pack))],
            note="the events as they travel, not compressed, next to the thin pack that git sends",
        )
        yield from _bundles(laptop, folder, [f"chat-{number}" for number in range(max(chats // _SHARE, 1))])


def _bundles(ledger: chatledger.Ledger, folder: Path, chat_ids: Sequence[str]) -> Iterator[Row]:
    """Writing chats to a file that proves itself, and checking it, where `sha256sum` tells only that its bytes are the same."""
    bundle, others = folder / "trip.clb", (folder / f"{number}.clb" for number in count())
    report = ledger.bundle(chat_ids, bundle)
    samples = take_turns(
        {
            "created": lambda: ledger.bundle(chat_ids, next(others)),
            "verified": lambda: check_bundle(bundle),
            "summed": lambda: subprocess.run(["sha256sum", str(bundle)], check=True, stdout=subprocess.DEVNULL),
        },
        repeats=3,
    )
    messages = len(chat_ids) * (_PER_CHAT + 1)
    check_equal("messages of a bundle", sum(chat.messages for chat in report.chats), messages)
    size = f"{messages:,} messages, {bundle.stat().st_size / 1e6:.1f} MB"
    for name, what in (("created", "create a bundle"), ("verified", "verify a bundle")):
        yield Row(
            subject="pulls",
            name=f"{what} of {size}",
            peer="sha256sum",
            ours=samples[name],
            theirs=samples["summed"],
            note=(
                "ours checks every event against its chat and its hash chain, when it writes too, and needs no ledger for it; "
                "`sha256sum` of the same file tells whether its bytes are those of a sum that came by another way"
            ),
        )


class _Counting(LedgerPeer):
    """A ledger that counts the bytes that it gives."""

    size = 0

    def write_bundle(self, known: Mapping[str, int], stream: IO[bytes], most: int) -> bool:
        is_there = super().write_bundle(known, stream, most)
        self.size += stream.tell()
        return is_there


def _message(prose: Prose, number: int) -> NewMessage:
    return NewMessage("user", prose.text(number), id=f"m{number}", created_at=number)


def _line(message: NewMessage) -> str:
    return (
        json.dumps({"id": message.id, "role": message.name, "content": message.data, "created_at": message.created_at})
        + "\n"
    )


def _commit(folder: Path) -> None:
    _git(folder, "add", "--all")
    _git(folder, "-c", "user.name=ada", "-c", "user.email=ada@example.com", "commit", "--quiet", "--message", "more")


def _git(folder: Path, *arguments: str, given: bytes | None = None) -> bytes:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, input=given, stdout=subprocess.PIPE).stdout
