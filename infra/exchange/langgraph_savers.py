"""
Threads out of the databases of LangGraph's own savers: what SqliteSaver's and PostgresSaver's tables have in common.

Nothing is decoded beyond msgpack: values of classes stay the bytes that they are, so no code that the data name is run, no
class is needed, and LangGraph is not either.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any, Final, cast

import msgspec

from chatledger.domain.errors import DECODE_ERRORS, ChatledgerError, InvalidValueError
from chatledger.domain.limits import check_id
from chatledger.domain.versioned.content import Serial, Tree, dict_tree, leaf_tree, list_tree
from chatledger.domain.versioned.decide import PutVersion
from chatledger.domain.versioned.serials import bare, is_plain

from ..ledger.threads import Threads, is_cut

FORMAT: Final = "langgraph"
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder().decode


class ThreadsImport(msgspec.Struct, frozen=True):
    """
    The result of an import of threads.

    Args:
        threads: How many threads the database has.
        checkpoints: How many checkpoints were added.
        writes: For how many tasks pending writes were added.
        known: How many checkpoints were here already; they stay as they are.
    """

    threads: int
    checkpoints: int
    writes: int
    known: int


@contextmanager
def explained(where: str) -> Generator[None]:
    """Say where a row is that cannot be read."""
    try:
        yield
    except ChatledgerError:
        raise
    except (*DECODE_ERRORS, TypeError, ValueError, AttributeError, OverflowError) as error:
        msg = f"{where} cannot be read: {error}"
        raise InvalidValueError(msg) from error


def check_ids(thread_id: Any, namespace: Any, checkpoint_id: Any) -> None:
    """Raise `InvalidValueError` when an id breaks a rule."""
    check_id(thread_id, "thread_id")
    check_id(namespace, "checkpoint_ns", empty=True)
    check_id(checkpoint_id, "checkpoint_id")


def checkpoint_of(
    namespace: str,
    checkpoint_id: str,
    parent_id: str | None,
    checkpoint: Mapping[str, Any],
    metadata: Mapping[str, Any],
    values: Mapping[str, Tree | Serial],
) -> PutVersion:
    """Return the checkpoint of a row, whose values are in pieces."""
    run_id = metadata.get("run_id")
    return PutVersion(
        line=namespace,
        id=checkpoint_id,
        parent=parent_id,
        frames=(("msgpack", _encode(checkpoint)), ("msgpack", _encode(metadata))),
        values=values,
        run_id=run_id if isinstance(run_id, str) else None,
    )


def import_writes(threads: Threads, rows: Iterable[Sequence[Any]], place: str) -> int:
    """
    Store pending writes, as far as they are not here; returns for how many tasks some were added.

    `rows` are (thread, namespace, checkpoint, task, path of the task, index, channel, type, value), those of a task together.
    """
    added = 0
    for (thread_id, namespace, checkpoint_id, task_id, task_path), of_task in groupby(rows, key=lambda row: row[:5]):
        with explained(f"the writes of task {task_id!r} of thread {thread_id!r} in {place}"):
            check_ids(thread_id, namespace, checkpoint_id)
            writes = [
                (index, channel, stored_value(type_name, data)) for *_, index, channel, type_name, data in of_task
            ]
            added += threads.put_writes(
                thread_id,
                namespace,
                checkpoint_id,
                task_id=task_id,
                task_path=task_path,
                writes=writes,
                written_at=0,
            )
    return added


def value_tree(type_name: str, data: bytes) -> Tree:
    """A value as its saver stored it, in pieces; one of another form than msgpack is one piece."""
    return plain_tree(_decode(data)) if type_name == "msgpack" else leaf_tree(type_name, data or b"")


def stored_value(type_name: str, data: bytes) -> Tree | Serial:
    """A value as its saver stored it, as a whole where it is plain."""
    return plain_value(_decode(data)) if type_name == "msgpack" else leaf_tree(type_name, data or b"")


def plain_value(value: Any) -> Tree | Serial:
    """A value as a whole where it is plain, else in pieces."""
    if isinstance(value, list | dict) and is_plain(value):
        return Serial(*bare("msgpack", _encode(value)))
    return plain_tree(value)


def plain_tree(value: Any, depth: int = 0) -> Tree:
    """A value in pieces; what msgpack calls an extension, such as a message, is one piece."""
    if is_cut(value, depth):
        if isinstance(value, dict):
            return dict_tree({key: plain_tree(item, depth + 1) for key, item in cast("dict[str, Any]", value).items()})
        return list_tree([plain_tree(element, depth + 1) for element in value])
    if value is None:
        return leaf_tree("null", b"")
    return leaf_tree("bytes", value) if isinstance(value, bytes) else leaf_tree("msgpack", _encode(value))
