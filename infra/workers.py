"""Calls that may wait for the disk, from a task."""

from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread

T = TypeVar("T")


async def in_thread(call: Callable[[], T]) -> T:
    """The answer of a call in a worker thread; what it writes is waited for, also when the task is cancelled."""
    return await anyio.to_thread.run_sync(call)
