"""Erasures that were interrupted: what can still be read of deleted chats in the files of a data directory."""

from ..embedded import DataDirectory
from ..embedded.erasures import CHECKED, find_unfinished, interrupted, is_due
from .findings import Findings


def check_erasures(directory: DataDirectory, found: Findings, *, is_in_use: bool) -> None:
    """What erasures that were interrupted left in the files; while a server uses them, whether there were any."""
    left = [] if is_in_use else list(find_unfinished(directory))
    opening = "open the ledger: that overwrites it"
    remedy = opening if is_due(directory) else f"rm {directory.path / CHECKED}, then {opening}"
    for one in left:
        what = (
            f"{len(one.places):,} deleted events can still be read in it: a server died before it had overwritten them"
            if one.places
            else "a copy of a block that a server did not finish, with what was being erased from it"
        )
        found.add("warning", "erasure-unfinished", one.file, what, remedy)
    marks = interrupted(directory)
    if marks and not left:
        what = f"{len(marks):,} erasures were interrupted, and may not be finished"
        found.add(
            "warning",
            "erasure-unfinished",
            marks[0],
            what,
            "close the ledger everywhere and open it: that finishes them",
        )
