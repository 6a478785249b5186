"""Keys of the rows of threads."""

from typing import Final

from chatledger.domain.content import DIGEST_BYTES

from ..lmdb.keys import id_key, number

RECORD, NAMESPACE, NAMESPACE_TEXT, CHECKPOINT, WRITES, USE, COPY, AWAITED = (bytes((kind,)) for kind in range(1, 9))
"""The kinds of rows that a thread has, after its number."""
OF_A_LIVING_THREAD: Final = (RECORD, NAMESPACE, NAMESPACE_TEXT, CHECKPOINT, WRITES, USE, AWAITED)
"""The kinds of rows that go with a deleted thread. Its copies stay known until its events are erased."""

_END: Final = b"\0"
"""Ends a checkpoint id in a key; no id contains it."""
_TASK_BYTES: Final = 12

PAYLOAD, COUNT = b"p", b"c"
"""The two rows of a piece of content, before its digest."""

BY_ID, BY_RUN, BY_NAME = b"z", b"r", b"n"
"""The lists over all threads. The longest one is the last, as pages get full only where all that comes goes last."""


def checkpoint_key(thread_no: int, namespace_no: int, checkpoint_id: str) -> bytes:
    """A checkpoint. Within a namespace the order is that of ids."""
    return namespace_key(thread_no, CHECKPOINT, namespace_no) + checkpoint_id.encode()


def awaited_key(thread_no: int, namespace_no: int, checkpoint_id: str = "") -> bytes:
    """A checkpoint that is not there, though others name it as their parent."""
    return namespace_key(thread_no, AWAITED, namespace_no) + checkpoint_id.encode()


def writes_key(thread_no: int, namespace_no: int, checkpoint_id: str, task: bytes = b"") -> bytes:
    """The writes of one task of a checkpoint; without a task what those of all tasks begin with."""
    return namespace_key(thread_no, WRITES, namespace_no) + checkpoint_id.encode() + _END + task


def task_key(task_id: str) -> bytes:
    """A task as part of a key."""
    from hashlib import blake2b

    return blake2b(task_id.encode(), digest_size=_TASK_BYTES).digest()


def checkpoint_of_writes(key: bytes) -> str:
    """The checkpoint id in such a key."""
    return key[13 : -_TASK_BYTES - 1].decode()


def namespace_key(thread_no: int, kind: bytes, namespace_no: int) -> bytes:
    """Return the prefix of rows of one kind within a namespace."""
    return number(thread_no) + kind + namespace_no.to_bytes(4, "big")


def use_key(thread_no: int, digest: bytes) -> bytes:
    """Return the key of a thread's use count of a piece."""
    return number(thread_no) + USE + digest


def digest_of_use(key: bytes) -> bytes:
    """The digest in such a key."""
    return key[-DIGEST_BYTES:]


def by_id(checkpoint_id: str, thread_no: int, namespace_no: int) -> bytes:
    """A checkpoint in the list of all, by id."""
    return BY_ID + checkpoint_id.encode() + _END + number(thread_no) + namespace_no.to_bytes(4, "big")


def by_run(run_id: str, thread_no: int, namespace_no: int, checkpoint_id: str) -> bytes:
    """A checkpoint in the list of a run."""
    return runs_prefix(run_id) + number(thread_no) + namespace_no.to_bytes(4, "big") + checkpoint_id.encode()[:60]


def runs_prefix(run_id: str) -> bytes:
    """Return the prefix of the keys of one run."""
    return BY_RUN + id_key(run_id)[:380] + _END


def by_name(thread_no: int) -> bytes:
    """A thread in the list of all."""
    return BY_NAME + number(thread_no)
