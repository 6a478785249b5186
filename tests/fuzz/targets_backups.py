"""Fuzzed: the files of backups, with digests that are made to fit."""

from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec
from tests.fuzz.fuzz_target import Bench, Maker, Target
from tests.support.backup_world import fill

import chatledger
from chatledger.infra.admin.backups import check_backup
from chatledger.infra.store.backup.manifest import HEADS, MANIFEST, SEGMENT, BackupFolder


def make_backup(folder: Path) -> dict[str, bytes]:
    """A small backup, and what its files hold."""
    with chatledger.open("memory:") as ledger:
        fill(ledger, chats="a", messages=2)
        ledger.backup(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def named(files: Mapping[str, bytes], kind: str) -> str:
    return next(name for name in files if name.endswith(kind))


def manifest_in(files: Mapping[str, bytes]) -> bytes:
    """The manifest without its digest."""
    return bytes(msgspec.json.decode(files[MANIFEST], type=dict[str, msgspec.Raw])["manifest"])


def publish(folder: Path, raw: bytes) -> None:
    """A manifest with a right digest."""
    head = b'{"format":1,"sha256":"%s","manifest":' % sha256(raw).hexdigest().encode()
    (folder / MANIFEST).write_bytes(head + raw + b"}")


def republish(folder: Path, files: Mapping[str, bytes], change: Callable[[Any], object]) -> None:
    """The manifest with a change, and a right digest."""
    manifest = msgspec.json.decode(manifest_in(files))
    change(manifest)
    publish(folder, msgspec.json.encode(manifest))


def read_damaged(folder: Path, name: str, raw: bytes) -> None:
    """One file says something else: that is noticed, or it is what was backed up."""
    (folder / name).write_bytes(raw)
    assert check_backup(folder).event_count == 5


def read_segment(folder: Path, files: Mapping[str, bytes], raw: bytes) -> None:
    """A segment whose digest fits."""
    (folder / named(files, SEGMENT)).write_bytes(raw)

    def change(manifest: Any) -> None:
        manifest["segments"][0]["sha256"] = sha256(raw).hexdigest()

    republish(folder, files, change)
    check_backup(folder)


def read_heads(folder: Path, files: Mapping[str, bytes], raw: bytes) -> None:
    """Heads whose digest fits."""
    (folder / named(files, HEADS)).write_bytes(raw)
    republish(folder, files, lambda manifest: manifest["heads"].update(sha256=sha256(raw).hexdigest()))
    home = BackupFolder(folder)
    home.read_heads(home.require())


def read_manifest(folder: Path, raw: bytes) -> None:
    """A manifest whose digest fits."""
    publish(folder, raw)
    check_backup(folder)


def _damaged(kind: str, bench: Bench) -> Target:
    files = make_backup(bench.folder)
    name = named(files, kind)
    return Target([files[name]], partial(read_damaged, bench.folder, name))


def _manifest(bench: Bench) -> Target:
    files = make_backup(bench.folder)
    return Target([manifest_in(files)], partial(read_manifest, bench.folder))


def _segment(bench: Bench) -> Target:
    files = make_backup(bench.folder)
    return Target([files[named(files, SEGMENT)]], partial(read_segment, bench.folder, files))


def _heads(bench: Bench) -> Target:
    files = make_backup(bench.folder)
    return Target([files[named(files, HEADS)]], partial(read_heads, bench.folder, files), msgpack_at=0)


BACKUPS: Final[Mapping[str, Maker]] = {
    "backup-manifest-damaged": partial(_damaged, MANIFEST),
    "backup-manifest": _manifest,
    "backup-segment": _segment,
    "backup-heads": _heads,
}
