"""Checks of a data directory by its files: format, owner, permissions, free space, leftovers."""

import contextlib
import os
import shutil
import time
from pathlib import Path
from typing import Final

import msgspec

from chatledger.domain.errors import DECODE_ERRORS, ChatledgerError, ConfigurationError

from ...log.nats_server.binary import LEAST, TRIED, VARIABLE, ServerBinary, find_nats_server
from ...log.nats_server.directory import FORMAT, FORMAT_FILE, DataDirectory, FormatRecord
from ...log.nats_server.health import get_command, get_server_info
from ...store.quarantine import Quarantine, describe_quarantined
from ...store.temp_folders import Scratch
from .findings import Findings

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
    """Whether the disk has room."""
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
