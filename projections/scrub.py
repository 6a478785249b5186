"""
Scrubbing: what was deleted leaves the index's file too.

Its bytes are in free pages, and in unused parts and keys of pages in use (see `scrub_pages`). The unused parts also get new
ones as long as a process has memory of pages from before the deletion, so each process frees that memory before its next
write: see `Environment.forget_memory_when`. That a scrub is due is a row, written with the deletion, so a crash postpones it only.
"""

from collections.abc import Callable
from typing import Final

import lmdb

from chatledger.domain.errors import CorruptStateError

from .custom.stale import wipe_stale
from .environment import Transaction
from .generation import Generation
from .generations import Generations
from .scrub_pages import Meta, PageFile

_LOOKS: Final = 20


def scrub_files(generations: Generations, current: Callable[[], Generation]) -> bool:
    """
    Scrub the current generation, and remove the others. Returns whether nothing is left that was deleted before.

    It does nothing while another process scrubs or builds.

    Raises:
        UnknownFormatError: The file is not of the known format; a new generation has to be built instead.
        CorruptStateError: It can not be written.
    """
    with generations.building(is_waiting=False) as is_free:
        if not is_free:
            return False
        is_last = generations.remove_others()
        live = current()
        try:
            return scrub(live, is_last=is_last)
        except (lmdb.Error, OSError) as error:
            msg = f"the index at {live.env.path} can not be cleaned of what was deleted: {error}"
            raise CorruptStateError(msg) from error


def scrub(generation: Generation, *, is_last: bool) -> bool:
    """
    Overwrite everything in the file that no reader of its present snapshot can see.

    Returns whether nothing is left that was deleted before; else a reader still has it, or it was written again meanwhile.
    That is noted for good if `is_last`: if it is not in other files either.

    Raises:
        UnknownFormatError: The file is not of the known format; a new generation has to be built instead.
    """
    with generation.env.reading() as txn:
        if generation.scrub_due(txn) is None:
            return is_last
    if not wipe_stale(generation):
        return False
    pages = PageFile(generation.env.file)
    try:
        due = _scrub_trees(generation, pages)
        if due is None:
            return False

        def finish(txn: Transaction) -> bool:
            meta = pages.meta(generation.env.last_txn_id)
            assert meta is not None, "nobody else writes"
            pages.clean_trees(meta)  # those written since
            is_whole = pages.clean_free(meta, oldest_reader=generation.env.oldest_reader())
            # Who wrote with old memory since then has noted that it is due again.
            if not (is_whole and is_last) or generation.scrub_due(txn) != due:
                return False
            generation.note_scrubbed(txn, due)
            return True

        return generation.env.update(finish)
    finally:
        pages.close()


def _scrub_trees(generation: Generation, pages: PageFile) -> bytes | None:
    """Clean the pages in use, while others write; returns what is done by it. None when others write too fast."""
    for _ in range(_LOOKS):
        with generation.env.reading() as txn:
            meta = _meta(generation, pages, txn)
            if meta is not None:
                due = generation.scrub_due(txn)
                pages.clean_trees(meta)
                return due
    return None


def _meta(generation: Generation, pages: PageFile, txn: Transaction) -> Meta | None:
    """Where the snapshot of a transaction begins; None when it may have been overwritten while it was read."""
    meta = pages.meta(txn.id())
    return meta if generation.env.last_txn_id == txn.id() else None
