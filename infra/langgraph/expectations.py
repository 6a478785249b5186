"""What a saver knows of where threads stand, so that it notices when another writer went on in between."""

import threading
from collections import OrderedDict
from enum import Enum
from typing import Final, NamedTuple

_MAX_KNOWN: Final = 65_536

_Key = tuple[str, str, str | None]


class _How(Enum):
    """How a checkpoint was come by last."""

    AS_LATEST = "read as the latest one of its namespace, or found that there is none"
    BY_NAME = "read by its id, or as the latest before another one"
    PUT = "put"


class _Known(NamedTuple):
    how: _How
    was_put: bool


class Expectations:
    """
    How each checkpoint was come by last. None stands for a namespace that was found empty.

    Who goes on from the latest one means to continue the thread, and must not when somebody else did. Who goes on from one
    that was named forks it. And who goes on from what this saver put itself may do so several times, beside what this saver
    put, but not beside what others did.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[_Key, _Known] = OrderedDict()
        self._lock = threading.Lock()

    def note_latest(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> None:
        """A checkpoint was read as the latest one."""
        self._note((thread_id, namespace, checkpoint_id), _How.AS_LATEST)

    def note_named(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> None:
        """A checkpoint was read by its id, or as the latest before another one: whoever did so means to go back."""
        self._note((thread_id, namespace, checkpoint_id), _How.BY_NAME)

    def note_put(self, thread_id: str, namespace: str, checkpoint_id: str) -> None:
        """A checkpoint was put."""
        self._note((thread_id, namespace, checkpoint_id), _How.PUT)

    def is_continuing(self, thread_id: str, namespace: str, parent_id: str | None) -> bool:
        """Whether one that is put below that parent is to continue the thread."""
        known = self._of(thread_id, namespace, parent_id)
        return known is not None and known.how is not _How.BY_NAME

    def may_stand_beside(self, thread_id: str, namespace: str, parent_id: str | None, latest_id: str) -> bool:
        """Whether one that is put below that parent may stand beside what is the latest."""
        parent, latest = self._of(thread_id, namespace, parent_id), self._of(thread_id, namespace, latest_id)
        return parent is not None and parent.how is _How.PUT and latest is not None and latest.was_put

    def _of(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> _Known | None:
        with self._lock:
            return self._known.get((thread_id, namespace, checkpoint_id))

    def _note(self, key: _Key, how: _How) -> None:
        with self._lock:
            before = self._known.get(key)
            self._known[key] = _Known(how, how is _How.PUT or (before is not None and before.was_put))
            self._known.move_to_end(key)
            if len(self._known) > _MAX_KNOWN:
                self._known.popitem(last=False)
