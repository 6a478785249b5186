"""Checks of what is beside the log: an index, which knows what was lost, and erasures that were interrupted."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import lmdb
import msgspec

from chatledger.domain.errors import ChatledgerError, CorruptStateError
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.generations import Generation, Generations, IndexState
from chatledger.projections.lmdb.environment import INITIAL_MAP_BYTES, UncleanStopError
from chatledger.projections.lmdb.page_check import find_damage
from chatledger.projections.snapshot import Snapshot

from ...log.nats_server.directory import CHECKED, DataDirectory
from ...log.nats_server.erasures import find_unfinished, interrupted, is_due
from .findings import Findings, Severity


def check_erasures(directory: DataDirectory, findings: Findings, *, is_in_use: bool) -> None:
    """Report the leftovers of interrupted erasures in the files; while a server uses them, only whether there are any."""
    left = [] if is_in_use else list(find_unfinished(directory))
    opening = "open the ledger: that overwrites it"
    remedy = opening if is_due(directory) else f"rm {directory.path / CHECKED}, then {opening}"
    for remains in left:
        what = (
            f"{len(remains.places):,} deleted events can still be read in it: a server died before it had overwritten them"
            if remains.places
            else "a copy of a block that a server did not finish, with what was being erased from it"
        )
        findings.add("warning", "erasure-unfinished", remains.file, what, remedy)
    marks = interrupted(directory)
    if marks and not left:
        what = f"{len(marks):,} erasures were interrupted, and may not be finished"
        remedy = "close the ledger everywhere and open it: that finishes them"
        findings.add("warning", "erasure-unfinished", marks[0], what, remedy)


_REBUILT = "nothing: it is built anew from the log at the next open"


class IndexWitness(NamedTuple):
    """
    The facts that an index has about the log.

    Args:
        state: How far it is.
        heads: Version and hash of the last event of each chat, by id.
    """

    state: IndexState
    heads: Mapping[str, tuple[int, bytes]]


def read_index(root: Path, identity: str | None, findings: Findings) -> IndexWitness | None:
    """Return the facts that the index in a folder has about the log with an identity; None when it cannot serve."""
    if not (root / "CURRENT").exists():
        findings.add("note", "index-missing", root, "there is no index", _REBUILT)
        return None
    generations = Generations(root)
    number = generations.current
    if number is None or not generations.path(number).is_dir():
        findings.add("warning", "index-damaged", root / "CURRENT", "it names no generation that is there", _REBUILT)
        return None
    # A build writes beside the generation that serves, and what it replaced is removed when its last reader has gone.
    if generations.has_others:
        what = "it has generations besides the current one: of an interrupted build, or still in use"
        findings.add("note", "index-leftover", root, what, "nothing: they are removed when nobody uses them")
    damage = page_damage(root)
    if damage is not None:
        findings.add("warning", "index-damaged", generations.path(number), damage, _remedy(root))
        return None
    try:
        generation = Generation(number, generations.path(number), map_bytes=INITIAL_MAP_BYTES)
        with closing(generation.env):
            reason = None if identity is None else generation.mismatch(identity)
            if reason is not None:
                is_old = reason.startswith("it has schema")
                severity: Severity = "note" if is_old else "warning"
                kind = "index-outdated" if is_old else "index-foreign"
                findings.add(severity, kind, generations.path(number), reason, _REBUILT)
                return None
            return _read(generation, findings)
    except UncleanStopError:
        what = "the machine went down while it was open, so it cannot be trusted"
        findings.add("note", "index-unclean", generations.path(number), what, _REBUILT)
    except (ChatledgerError, OSError, ValueError) as error:
        # LMDB opens an environment once in a process: a second one would lose the locks of the first when it is closed.
        if "already open in this process" in str(error):
            what = "this process has it open, so it is in use and is not looked at again"
            findings.add("note", "index-in-use", generations.path(number), what, "nothing")
            return None
        findings.add("warning", "index-damaged", generations.path(number), str(error), _remedy(root))
    return None


def page_damage(root: Path) -> str | None:
    """Return a description of damaged pages in the current generation, on which LMDB would end this process."""
    number = Generations(root).current if (root / "CURRENT").exists() else None
    if number is None:
        return None
    try:
        return find_damage(Generations(root).path(number) / "data.mdb")
    except OSError as error:
        return f"its pages cannot be read: {error}"


def _remedy(root: Path) -> str:
    return (
        f"close the ledger everywhere; 'chatledger doctor --repair' sets the index of a directory aside, else rm -r {root}; "
        "it is built anew from the log"
    )


def _read(generation: Generation, findings: Findings) -> IndexWitness:
    try:
        with generation.env.reading() as txn:
            snapshot = Snapshot(generation, txn)
            erasures, large = snapshot.erasures(), snapshot.dropped_large()
            if erasures or large:
                what = (
                    f"{len(erasures):,} deletions, and {len(large):,} pieces of large data, are not erased from the log yet: "
                    "that was interrupted"
                )
                findings.add(
                    "warning", "erasure-pending", generation.env.path, what, "open the ledger: that finishes it"
                )
            elif snapshot.is_scrub_due:
                what = "its file still has content of what was deleted"
                findings.add("note", "erasure-pending", generation.env.path, what, "nothing: the next open cleans it")
            return IndexWitness(snapshot.state, heads_in(snapshot))
    except (lmdb.Error, msgspec.MsgspecError, ValueError) as error:
        raise CorruptStateError(str(error)) from error


def heads_in(snapshot: Snapshot) -> dict[str, tuple[int, bytes]]:
    """Return version and hash of the last event of each chat, as an index has seen it, by id."""
    heads: dict[str, tuple[int, bytes]] = {}
    for chat_no in snapshot.chat_nos():
        chat = IndexedChat(snapshot.tables, snapshot.txn, "", chat_no)
        if chat.profile is not None and chat.record is not None:
            heads[chat.profile.id] = chat.record.head.version, chat.record.head.hash
    return heads
