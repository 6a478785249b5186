"""Verifying a log, and the index that was derived from it."""

from collections.abc import Callable
from itertools import chain
from pathlib import Path

from chatledger.domain.proof.anchors import Anchor
from chatledger.domain.proof.verification import Verification
from chatledger.domain.values import Progress

from ..chat.pages import seldom_collected
from ..generations import Generation
from ..graph.items import listed_items
from ..graph.reader import listed_states
from ..index import Index
from ..lmdb.environment import INITIAL_MAP_BYTES
from ..projector import has_remains
from ..thread.reader import listed_threads
from .comparing import IndexComparison
from .walk import AnchorWatch, Walk, WalkedLog


def verify(
    log: WalkedLog,
    index: Index,
    *,
    catch_up: Callable[[], object],
    folder: Path,
    anchor: Anchor | None,
    progress: Progress,
) -> Verification:
    """
    Walk the whole log, and compare the index with its replay.

    Args:
        log: The log.
        index: The index that serves.
        catch_up: Brings the index to the end of the log.
        folder: An empty folder for the replay, which gets about as large as the index without its search index.
        anchor: What the log must still have; its signature and leaves are checked.
        progress: Called with (positions done, positions in all), where each position counts twice: read and compared.

    Raises:
        ChainIntegrityError, CorruptStateError, UnsupportedFormatError: What is wrong, and where.
    """
    total = log.committed_position()
    watch = None if anchor is None else AnchorWatch(anchor)
    scratch = Generation(0, folder, map_bytes=INITIAL_MAP_BYTES)
    try:
        with seldom_collected() as end_part:

            def walked(position: int) -> None:
                progress(min(position, total), 2 * total)
                end_part()

            def has_compared(chat_no: int) -> None:
                progress(total + max(0, min(chat_no, total)), 2 * total)
                end_part()

            walk = Walk(log, scratch, watch=watch, progress=walked)
            walk.to(total)
            catch_up()
            compared = IndexComparison(index, walk, catch_up=catch_up, progress=has_compared)
            compared.run()
            walk.finish()
        progress(2 * total, 2 * total)
        with scratch.env.reading() as txn:
            thread_count = sum(1 for _ in listed_threads(txn, scratch.tables))
            state_count = sum(1 for _ in chain(listed_states(txn, scratch.tables), listed_items(txn, scratch.tables)))
            erasures = scratch.erasures(txn)
        return Verification(
            position=walk.state.position,
            event_count=walk.event_count,
            chat_count=compared.chat_count,
            message_count=compared.message_count,
            deletion_count=walk.tombstone_count,
            erased_since_anchor=() if watch is None else tuple(watch.erased),
            foreign=tuple(walk.foreign),
            foreign_count=walk.foreign_count,
            thread_count=thread_count,
            state_count=state_count,
            erasure_pending=tuple(erasure.stream_id for erasure in erasures if has_remains(log, erasure)),
        )
    finally:
        scratch.env.close()
