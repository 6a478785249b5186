"""Observers of graph states. They get copies, and nothing that they do reaches the run."""

import contextlib
import copy
import inspect
import logging
import threading
import traceback
from collections.abc import Callable, Generator
from typing import Any

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.graph.reducers import StateDiff, Transition

_logger = logging.getLogger("chatledger.graph_state")

StateObserver = Callable[[Any, Any, str, StateDiff], Any]
"""`(old, new, node, diff)`, a function or a coroutine function. What it returns is not looked at."""


class StateObservers:
    """
    Callbacks invoked after each transition of a graph, in the order in which they were registered.

    The program log has a debug line of each transition, under the name `chatledger.graph_state`. It says which node wrote and
    what `get_state_diff` finds: no content and no user id.

    Args:
        others: Observers whose callbacks are invoked first, for the same transitions.
    """

    def __init__(self, *, others: "StateObservers | None" = None) -> None:
        self._others = others
        self._lock = threading.Lock()
        self._observers: dict[object, StateObserver] = {}

    def on_state_change(self, callback: StateObserver) -> Callable[[], None]:
        """
        Call a function with (old, new, node, diff) after each transition.

        Args:
            callback: Gets copies of its own. If it fails, that is logged, without content, and the run goes on.

        Returns:
            A function that ends it.

        Raises:
            InvalidValueError: `callback` is no function.
        """
        if not callable(callback):
            msg = f"callback must be a function, not {type(callback).__name__}"
            raise InvalidValueError(msg)
        token = object()
        with self._lock:
            self._observers[token] = callback

        def stop() -> None:
            with self._lock:
                self._observers.pop(token, None)

        return stop

    @property
    def is_empty(self) -> bool:
        """Whether nobody watches."""
        return not self._current()

    def notify(self, change: Transition[Any]) -> None:
        """Tell of a transition. A coroutine function is not called to its end here: `notify_async` awaits it."""
        log_transition(change)
        for observer in self._current():
            with _surviving(observer, change.node):
                answer = _tell(observer, change)
                if inspect.iscoroutine(answer):
                    answer.close()
                    _logger.warning(
                        "An observer of state changes is a coroutine function and was not run: %s. "
                        "Tell of transitions with notify_async",
                        _name(observer),
                        extra={"node": change.node},
                    )

    async def notify_async(self, change: Transition[Any]) -> None:
        """Tell of a transition, and await observers that are coroutine functions, one after the other."""
        log_transition(change)
        for observer in self._current():
            with _surviving(observer, change.node):
                answer = _tell(observer, change)
                if inspect.isawaitable(answer):
                    await answer

    def _current(self) -> list[StateObserver]:
        """Return a copy: callbacks may be added and removed while others run."""
        others = [] if self._others is None else self._others._current()  # noqa: SLF001 - of its own class
        with self._lock:
            return [*others, *self._observers.values()]


def log_transition(change: Transition[Any]) -> None:
    """Write the debug line of a transition."""
    _logger.debug("State transition", extra={"node": change.node, "state_changes": copy.deepcopy(change.diff)})


def _tell(observer: StateObserver, change: Transition[Any]) -> Any:
    return observer(copy.deepcopy(change.old), copy.deepcopy(change.new), change.node, copy.deepcopy(change.diff))


@contextlib.contextmanager
def _surviving(observer: StateObserver, node: str) -> Generator[None]:
    """Log a failure by its type and place. Its text and its trace may hold content, so they are left out."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever an observer raises is not the run's business
        _logger.warning(
            "An observer of state changes failed: %s raised %s at %s",
            _name(observer),
            type(error).__qualname__,
            _place(error),
            extra={"node": node},
        )


def _name(observer: StateObserver) -> str:
    """The name of the function, or the type of an object that is called: its `repr` may hold content."""
    name = getattr(observer, "__qualname__", None)
    return name if isinstance(name, str) else type(observer).__qualname__


def _place(error: Exception) -> str:
    """Module and line where it was raised."""
    frames = list(traceback.walk_tb(error.__traceback__))
    frame, line = frames[-1]
    return f"{frame.f_globals.get('__name__', '?')}:{line}"
