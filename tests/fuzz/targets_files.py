"""Fuzzed: the files of a data directory, read without LMDB and without a server."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from random import Random
from struct import Struct
from typing import Final

import lmdb
from tests.fuzz.fuzz_target import Bench, Maker, Target, chosen

import chatledger
from chatledger import user
from chatledger.infra.admin.doctor.store_files import StoreFiles, stream_folder
from chatledger.infra.log.nats_server.directory import DataDirectory
from chatledger.infra.store.quarantine import Note, Quarantine
from chatledger.projections.lmdb.page_check import PageError, find_damage, newest_snapshot
from chatledger.projections.lmdb.scrub import PageFile

PAGE: Final = 4096
_PATCH: Final = Struct("<BHB")
"""A page, an offset on it, and how many bytes follow that are put there."""


def patched(sound: bytes, patches: bytes) -> bytes:
    """A file of pages with some bytes replaced."""
    file, at = bytearray(sound), 0
    while at + _PATCH.size < len(patches):
        page, offset, size = _PATCH.unpack_from(patches, at)
        at += _PATCH.size
        place = (page * PAGE + offset % PAGE) % len(file)
        content = patches[at : at + min(size, len(file) - place)]
        file[place : place + len(content)] = content
        at += len(content)
    return bytes(file)


def make_pages(folder: Path) -> bytes:
    """An LMDB file with all kinds of rows, with branches, values on pages of their own and free pages."""
    random = Random(3)
    with closing(lmdb.open(str(folder), map_size=2**27, max_dbs=8, sync=False, metasync=False)) as environment:
        plain, several = (environment.open_db(name, dupsort=name == b"several") for name in (b"plain", b"several"))
        for _ in range(3):
            with environment.begin(write=True) as txn:
                for key in random.sample(range(24), 12):
                    name = b"%d" % key * random.choice([1, 20])
                    txn.put(name, bytes(random.choice([0, 3, 700, 5000])), db=plain)
                    for _ in range(random.choice([1, 3, 40])):
                        txn.put(name, random.randbytes(16), db=several)
                for key in random.sample(range(24), 6):
                    txn.delete(b"%d" % key, db=plain)
    return (folder / "data.mdb").read_bytes()


def patches_of(sound: bytes) -> list[bytes]:
    """For each page a patch that changes nothing: its header and its first offsets; and the records of the snapshots."""
    found = [
        _PATCH.pack(number, 0, 40) + sound[number * PAGE : number * PAGE + 40]
        for number in range(min(len(sound) // PAGE, 256))
    ]
    return [*found, *(_PATCH.pack(number, 16, 136) + sound[number * PAGE + 16 :][:136] for number in (0, 1))]


def _pages(bench: Bench) -> Target:
    """Patches of an index file, whose pages are then looked at."""
    sound = make_pages(bench.folder)
    file = bench.folder / "data.mdb"

    def read(raw: bytes) -> None:
        file.write_bytes(patched(sound, raw))
        damage = find_damage(file)
        assert damage is None or damage

    return Target(patches_of(sound), read)


def _scrub(bench: Bench) -> Target:
    """Patches of an index file, which is then cleaned of what was deleted: a sound file stays one, and none grows."""
    sound = make_pages(bench.folder)
    file = bench.folder / "data.mdb"

    def read(raw: bytes) -> None:
        file.write_bytes(patched(sound, raw))
        is_sound = find_damage(file) is None
        with file.open("rb") as opened:
            newest = newest_snapshot(opened.fileno())
        with closing(PageFile(file)) as pages:
            snapshot = pages.snapshot(newest.txn_id)
            assert snapshot == newest  # the one that was checked is cleaned
            pages.clean_trees(snapshot)
            pages.clean_free(snapshot, oldest_reader=None)
        assert file.stat().st_size == len(sound)
        assert not is_sound or find_damage(file) is None

    return Target(patches_of(sound), read, errors=(PageError,))


def _blocks(bench: Bench) -> Target:
    """Which file of a log (the events, the feeds, what the server says of the stream), and its bytes."""
    place = bench.folder / "data"
    with chatledger.open(place) as ledger:
        ledger.create_chat("a", "u")
        ledger.append("a", [user("one")])
        ledger.append("a", [user("two")])
        ledger.delete_chat("a")
    directory = DataDirectory(place)
    folder = stream_folder(directory)
    block = next((folder / "msgs").glob("*.blk"))
    feeds = folder.with_name(f"KV_{folder.name}-feeds") / "msgs" / "1.blk"
    feeds.parent.mkdir(parents=True, exist_ok=True)
    files = [block, feeds, folder / "meta.inf"]
    sound = [
        block.read_bytes(),
        block.read_bytes().replace(b"chatledger.", b"$KV.chatledger-feeds."),
        files[2].read_bytes(),
    ]

    def read(raw: bytes) -> None:
        file, content = chosen(raw, files)
        file.write_bytes(content)
        store = StoreFiles(directory)
        assert all(0 < one.id <= store.last for one in store.stored())
        assert store.identity is None or store.identity
        list(store.bookmarks)

    return Target([bytes([number]) + content for number, content in enumerate(sound)], read)


def _note(bench: Bench) -> Target:
    """The note of what a repair set aside."""
    quarantine = Quarantine(bench.folder)
    file = quarantine.add("1", Note(made_at=1, why="w", kept_as="k", log_id="l"))
    file = file if file.is_file() else file / "note.json"
    sound = file.read_bytes()

    def read(raw: bytes) -> None:
        file.write_bytes(raw)
        quarantine.notes()

    return Target([sound], read)


FILES: Final[Mapping[str, Maker]] = {
    "index-pages": _pages,
    "index-scrub": _scrub,
    "log-files": _blocks,
    "quarantine-note": _note,
}
