"""Computing the context of one engine: one evaluation at a time, and what succeeded is kept where another value fails."""

import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

import anyio

from chatledger.domain.context.builder_codecs import check_holds_no_message
from chatledger.domain.context.fragments import Fragment
from chatledger.domain.errors import InvalidValueError

from .computed import KeptResults, compute, compute_again, has_computed, run_now
from .computed_tree import LoadContext

_under_way: Final[ContextVar[tuple[object, ...]]] = ContextVar("chatledger_computing", default=())
"""The tokens of the evaluations that the value which runs here is part of; they may run in other tasks or threads."""


class Computing:
    """
    The evaluations of one engine.

    Args:
        is_blocking: Whether nothing may be awaited, because the caller is synchronous.
    """

    def __init__(self, *, is_blocking: bool) -> None:
        self._is_blocking = is_blocking
        self._thread_lock, self._task_lock = threading.Lock(), anyio.Lock()
        self._kept = KeptResults()
        self._token: object | None = None

    @asynccontextmanager
    async def alone(self) -> AsyncGenerator[None]:
        """
        Wait for the evaluation that is under way in another thread or task, and let none begin until this block ends.

        Raises:
            InvalidValueError: A value that is being computed asks for what it is part of.
        """
        outer = _under_way.get()
        # It would wait for itself for ever. By the context, as a value may ask from a task or thread that it started.
        if self._token in outer:
            msg = "a computed value cannot ask for the context that it is part of; it may read messages"
            raise InvalidValueError(msg)
        async with nullcontext() if self._is_blocking else self._task_lock:
            with self._thread_lock if self._is_blocking else nullcontext():
                self._token = object()
                before = _under_way.set((*outer, self._token))
                try:
                    yield
                finally:
                    self._token = None
                    _under_way.reset(before)

    async def compute(self, fragments: Sequence[Fragment], load: LoadContext) -> list[Fragment]:
        """
        Evaluate the computed values in context fragments; to be called alone. After a failure it goes on where that one ended.

        Raises:
            ResolverError: As of `chatledger.fragments.compute`.
            InvalidValueError: A value gave a message.
        """
        if not has_computed(fragments):
            return list(fragments)
        call = partial(compute_again, fragments, load, self._kept)
        computed = run_now(call) if self._is_blocking else await call()
        for fragment in computed:
            check_holds_no_message(fragment)
        self._kept = KeptResults()
        return computed

    async def ask(self, function: Callable[[], Any], *, name: str) -> Any:
        """
        Return the result of a function that is no part of the context. What earlier evaluations kept stays; others may run beside.

        Raises:
            ResolverError: The function failed; `name` is its path.
        """
        call = partial(compute, [Fragment(name, function)])
        (fragment,) = run_now(call) if self._is_blocking else await call()
        return fragment.data
