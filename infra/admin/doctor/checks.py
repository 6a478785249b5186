"""The findings of a diagnosis, and checks of a data directory by its files: format, owner, permissions, room, leftovers, index, erasures."""

import contextlib
import os
import shutil
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final, Literal, NamedTuple

import lmdb
import msgspec

from chatledger.domain.errors import DECODE_ERRORS, ChatledgerError, ConfigurationError, CorruptStateError
from chatledger.domain.wire import Value
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.generations import Generation, Generations, IndexState
from chatledger.projections.lmdb.environment import INITIAL_MAP_BYTES, UncleanStopError
from chatledger.projections.lmdb.page_check import find_damage
from chatledger.projections.snapshot import Snapshot

from ...log.nats_server.directory import CHECKED, FORMAT, FORMAT_FILE, DataDirectory, FormatRecord
from ...log.nats_server.erasures import find_unfinished, interrupted, is_due
from ...log.nats_server.launcher import (
    LEAST,
    TRIED,
    VARIABLE,
    ServerBinary,
    find_nats_server,
    get_command,
    get_server_info,
)
from ...store.quarantine import Quarantine, describe_quarantined
from ...store.temp_folders import Scratch

Severity = Literal["error", "warning", "note"]


class Finding(Value, frozen=True, kw_only=True):
    """
    One thing that was found.

    Args:
        severity: `error`: data are lost or damaged, or the ledger does not open; `warning`: they may be soon; `note`: nothing
            has to be done.
        kind: A stable name for programs, e.g. `chain-broken`.
        where: A file, a position, or the id of a chat.
        what: What is so.
        remedy: What to do.
    """

    severity: Severity
    kind: str
    where: str
    what: str
    remedy: str


class Diagnosis(Value, frozen=True, kw_only=True):
    """
    The findings at a location.

    Args:
        location: Where it was looked, without secrets.
        findings: The worst first.
        event_count: How many events could be read.
        stream_count: How many chats, threads of agents and states of graphs they are of, deleted ones included.
        thread_count, state_count: How many of these are threads and states.
        position: The highest log position known to have been assigned.
        key_ids: The ids of the keys that are needed to read its events; empty where they are in clear.
        server: Of a directory: the nats-server that has it open, or would be started for it. None elsewhere, and where it is not
            known.
    """

    location: str
    findings: tuple[Finding, ...]
    event_count: int = 0
    stream_count: int = 0
    position: int = 0
    thread_count: int = 0
    state_count: int = 0
    key_ids: tuple[str, ...] = ()
    server: ServerBinary | None = None

    @property
    def is_healthy(self) -> bool:
        """Whether there is nothing to do: no error and no warning."""
        return all(finding.severity == "note" for finding in self.findings)


class Findings:
    """A list that grows."""

    def __init__(self) -> None:
        self._findings: list[Finding] = []

    def add(self, severity: Severity, kind: str, where: object, what: str, remedy: str) -> None:
        self._findings.append(Finding(severity=severity, kind=kind, where=str(where), what=what, remedy=remedy))

    def sorted(self) -> tuple[Finding, ...]:
        """All, the worst first."""
        order = ("error", "warning", "note")
        return tuple(sorted(self._findings, key=lambda finding: order.index(finding.severity)))


_LOW_BYTES: Final = 1024**3
_FULL_BYTES: Final = 64 * 1024**2
_OLD_S: Final = 24 * 3600


def check_format(directory: DataDirectory, findings: Findings) -> bool:
    """Whether it is a directory of ours that this version reads."""
    file = directory.path / FORMAT_FILE
    try:
        number = msgspec.json.decode(file.read_bytes(), type=FormatRecord).format
    except FileNotFoundError:
        findings.add(
            "error", "not-a-ledger", directory.path, f"it has no {FORMAT_FILE}", "give the directory of a ledger"
        )
        return False
    except (OSError, *DECODE_ERRORS) as error:
        what, remedy = f"it cannot be read: {error}", f'write {{"format":{FORMAT}}} into it, if the rest is in order'
        # The number is all that it holds, so the rest is looked at all the same.
        findings.add("error", "format-damaged", file, what, remedy)
        return True
    if number > FORMAT:
        what = f"it has format {number}, this version reads up to {FORMAT}"
        findings.add("error", "format-newer", file, what, "upgrade chatledger")
        return False
    if number < FORMAT:
        what = f"it has format {number}, which a version before 0.1 wrote and this version does not read"
        remedy = "export its chats with 'chatledger export' of that version, and import them into a new directory"
        findings.add("error", "format-older", file, what, remedy)
        return False
    return True


def check_permissions(directory: DataDirectory, findings: Findings) -> None:
    """Check who else may read the directory, and whether we may."""
    mode = directory.path.stat().st_mode & 0o777
    if mode & 0o077:
        what, remedy = f"other users may enter it (mode {mode:04o})", f"chmod 700 {directory.path}"
        findings.add("warning", "readable-by-others", directory.path, what, remedy)
    refused: list[Path] = []
    for folder, _, names in os.walk(directory.path):
        for path in (Path(folder), *(Path(folder) / name for name in names)):
            needed = os.R_OK | os.W_OK | (os.X_OK if path.is_dir() else 0)
            if path.exists() and not os.access(path, needed):
                refused.append(path)
    if refused:
        what = f"this user may not read and write it, nor {len(refused) - 1:,} others" if refused[1:] else "no access"
        findings.add("error", "no-access", refused[0], what, f"chown -R the user of the ledger {directory.path}")


def check_room(path: Path, findings: Findings) -> None:
    free = shutil.disk_usage(path).free
    if free < _LOW_BYTES:
        what = f"the disk has {free / 1024**2:,.0f} MiB left"
        remedy = "free space; a full log refuses appends, and a full index cannot be written"
        findings.add("error" if free < _FULL_BYTES else "warning", "disk-full", path, what, remedy)


def check_leftovers(directory: DataDirectory, findings: Findings, *, is_in_use: bool) -> None:
    """Report the leftovers of earlier processes."""
    # Kill -9 of an owner leaves them; one that ends well does not.
    ports = list(directory.path.glob("*.ports"))
    if not is_in_use and (ports or directory.endpoint_file.exists()):
        what = "the last process that used it was killed, or the machine went down"
        findings.add("note", "unclean-stop", directory.path, what, "nothing: the next one to open it tidies up")
    for suffix in (".restoring", ".repairing"):
        beside = directory.path.with_name(directory.path.name + suffix)
        if beside.exists():
            what, remedy = "an interrupted restore or repair left it", f"rm -r {beside}, when none is running"
            findings.add("note", "leftover", beside, what, remedy)
    # Folders of `verify` and of ledgers in memory go with their process, unless that is killed. A young one may be in use.
    oldest = time.time() - _OLD_S
    left: list[Path] = []
    for path in Scratch().abandoned():
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime < oldest:
                left.append(path)
    if left:
        what = f"{len(left):,} scratch folders of killed processes are older than a day"
        findings.add("note", "scratch", left[0], what, "'chatledger verify' removes them, of any ledger")


def check_quarantine(directory: DataDirectory, findings: Findings) -> None:
    """Report quarantined files, and the chats that are refused since."""
    quarantine = Quarantine(directory.path)
    try:
        notes, refused = quarantine.notes(), quarantine.refused()
    except ChatledgerError as error:
        findings.add("error", "quarantine-damaged", quarantine.folder, str(error), "as it says")
        return
    for stream_id, (folder, stream) in sorted(refused.items()):
        remedy = "'chatledger doctor --repair --backup FOLDER' with a backup that has them, or --give-up to serve what is left"
        findings.add("error", "quarantined", f"chat {stream_id!r}", describe_quarantined(folder, stream), remedy)
    for folder, note in notes.items():
        if note.kept_as and Path(note.kept_as).exists():
            what = f"{note.why}; what was damaged is kept as {note.kept_as}, also conversations that were deleted since"
            findings.add("note", "set-aside", folder, what, "remove that when you need it no more")


def check_server(directory: DataDirectory, findings: Findings, *, is_in_use: bool) -> ServerBinary | None:
    """Return the program that keeps the directory, or would be started for it, and report one that is missing, too old or too new."""
    record = directory.read_endpoint() if is_in_use else None
    try:
        if not is_in_use:
            server = ServerBinary.at(find_nats_server())
        # The number of a process is given out again, so its command has to name the server.
        elif record is not None and record.server_name in (get_command(record.server_pid) or ""):
            server = ServerBinary.at(str(Path(f"/proc/{record.server_pid}/exe").readlink()))
        else:
            return None
    except ConfigurationError as error:
        findings.add("error", "no-server", "nats-server", str(error), "as it says")
        return None
    except OSError:  # it was replaced or removed since it was started, or this is another system
        return None
    if not server.is_tried:
        what = f"its version {server.version} is none of those that this version of chatledger was tried with"
        remedy = f"nothing, if all else is in order; else let {VARIABLE} name one of {LEAST[0]}.{LEAST[1]} to {TRIED[0]}.{TRIED[1]}"
        findings.add("note", "server-untried", server.path, what, remedy)
    return server


def check_owner(directory: DataDirectory, findings: Findings) -> bool:
    """The lock is held: say by whom. Whether a server answers."""
    record = directory.read_endpoint()
    if record is None:
        what = "another process holds it and has not published a server: it is starting, or not ours"
        findings.add("error", "locked", directory.lock_file, what, f"try again; 'fuser {directory.lock_file}' names it")
        return False
    info = get_server_info(record.url)
    if info is not None and info.server_name == record.server_name:
        who = f"{record.owner} has it open"
        if record.has_our_pids and get_command(record.owner_pid) is None:
            who = f"its owner, {record.owner}, is gone; the server {record.server_pid} lives"
        findings.add("note", "in-use", directory.lock_file, who, "nothing")
        return True
    what = f"{record.owner} holds it, and its server does not answer"
    findings.add("error", "server-silent", directory.lock_file, what, "end that process, then open the ledger again")
    return False


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
    """How far an index is, and the version and hash of the last event of each chat by its id."""

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
        with closing(generation):
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
        with generation.reading() as txn:
            snapshot = Snapshot(generation, txn)
            erasures, large = snapshot.erasures(), snapshot.dropped_large()
            if erasures or large:
                what = (
                    f"{len(erasures):,} deletions, and {len(large):,} pieces of large data, are not erased from the log yet: "
                    "that was interrupted"
                )
                findings.add("warning", "erasure-pending", generation.path, what, "open the ledger: that finishes it")
            elif snapshot.is_scrub_due:
                what = "its file still has content of what was deleted"
                findings.add("note", "erasure-pending", generation.path, what, "nothing: the next open cleans it")
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
