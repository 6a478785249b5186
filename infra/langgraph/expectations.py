"""What a saver knows of where threads stand, so that it notices when another writer went on in between."""

import threading
from collections import OrderedDict
from typing import Final

_MAX_KNOWN: Final = 65_536

_Key = tuple[str, str, str | None]


class Expectations:
    """
    Which checkpoints were read as the latest of a thread, or put, and which were asked for by their id.

    Going on from one of the first kind is meant to continue the thread; from one of the second it is a fork.
    """

    def __init__(self) -> None:
        self._latest: OrderedDict[_Key, None] = OrderedDict()
        self._named: OrderedDict[_Key, None] = OrderedDict()
        self._lock = threading.Lock()

    def note_read(self, thread_id: str, namespace: str, asked_id: str | None, found_id: str | None) -> None:
        """A checkpoint was read: by its id, or as the latest; None when the namespace was empty."""
        if asked_id is None:
            self._note(self._latest, (thread_id, namespace, found_id))
        else:
            self._note(self._named, (thread_id, namespace, asked_id))

    def note_put(self, thread_id: str, namespace: str, checkpoint_id: str) -> None:
        """A checkpoint was put, and with that is the one to go on from."""
        self._note(self._latest, (thread_id, namespace, checkpoint_id))

    def is_continuing(self, thread_id: str, namespace: str, parent_id: str | None) -> bool:
        """Whether one that is put below that parent is to continue the thread."""
        key = (thread_id, namespace, parent_id)
        with self._lock:
            return key in self._latest and key not in self._named

    def _note(self, known: "OrderedDict[_Key, None]", key: _Key) -> None:
        with self._lock:
            known[key] = None
            known.move_to_end(key)
            if len(known) > _MAX_KNOWN:
                known.popitem(last=False)
