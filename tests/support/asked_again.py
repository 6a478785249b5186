"""
Decisions that are asked again on other states, which holds them to the contract of `Store.execute`.

With `-p tests.support.asked_again` all tests that are run ask so; `asking_again` does it for some.
"""

import contextlib
import copy
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CellType, FunctionType, MethodType
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from tests.support.ledger_world import ROOT

from chatledger.domain.chat.events import Body
from chatledger.domain.errors import ChatledgerError
from chatledger.infra.store.commands import View
from chatledger.infra.store.store import Store
from chatledger.projections.index import Index
from chatledger.projections.log.kinds import CHATS, StreamKind
from chatledger.projections.projector import Projector
from chatledger.projections.snapshot import Snapshot

Decide = Callable[[Any, int], list[Body]]
_PASSING = {"asked_again.py", "store.py", "user_store.py", "at_rest.py", "shares.py"}


class Asked:
    """Stores whose decisions are asked again. `sites` are the functions that handed them over: `file:function`."""

    def __init__(self, folder: Path) -> None:
        self.sites = set[str]()
        self._folder = folder
        self._lock = threading.RLock()
        self._stack = contextlib.ExitStack()
        self._behind: WeakKeyDictionary[Store, tuple[Index, Projector | None]] = WeakKeyDictionary()
        self._empty = self._new_index("empty")

    def close(self) -> None:
        """Close the indexes."""
        self._stack.close()

    def _new_index(self, name: str) -> Index:
        index = self._stack.enter_context(contextlib.closing(Index(self._folder / name, identity=name)))
        index.open()
        index.rebuild(lambda _after: ())
        return index

    def again(
        self, store: Store, streams: StreamKind[Any], key: str, decide: Decide, view: View | None
    ) -> tuple[Decide, View]:
        """Return a decision that is asked on an empty stream, on an earlier state, and then twice on the present one; and its view."""
        self.sites.add(_site())
        position = 0

        def seen(snapshot: Snapshot) -> Any:
            return snapshot if view is None else view(snapshot)

        def noting(snapshot: Snapshot) -> Any:
            nonlocal position
            position = snapshot.state.position
            return seen(snapshot)

        def decide_again(state: Any, now: int) -> list[Body]:
            expected = _outcome(_fresh(decide, {}), state, now)
            with self._lock:
                for index in (self._empty, self._older(store)):
                    with contextlib.suppress(ChatledgerError), index.snapshot() as snapshot:
                        _outcome(decide, seen(snapshot).stream(streams, key), now)
                self._follow(store, position)
            for _ in range(2):  # others may have written elsewhere
                outcome = _outcome(decide, state, now)
                if _comparable(outcome) != _comparable(expected):
                    pytest.fail(
                        f"{_name(decide)} keeps something between two calls: after others it decides {outcome!r:.800} on "
                        f"{key!r}, at first {expected!r:.800}"
                    )
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        return decide_again, noting

    def _older(self, store: Store) -> Index:
        """An index that stands where the one of a store stood at its decision before."""
        if store not in self._behind:
            index = self._new_index(f"{len(self._behind)} {id(store)}")
            self._behind[store] = index, Projector(index, store.log)
        return self._behind[store][0]

    def _follow(self, store: Store, position: int) -> None:
        index, projector = self._behind[store]
        try:
            if projector is not None:
                projector.catch_up(position)
        except ChatledgerError:  # damage of which the test may know
            self._behind[store] = index, None


@contextlib.contextmanager
def asking_again() -> Generator[Asked]:
    """Ask each decision of each store again."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as monkeypatch:
        asked = Asked(Path(folder))
        execute, begin, submit = Store.execute, Store.begin, Store.submit

        def execute_again(
            store: Store,
            streams: StreamKind[Any],
            key: str,
            decide: Decide,
            *,
            view: View | None = None,
            **options: Any,
        ) -> Any:
            again, noting = asked.again(store, streams, key, decide, view)
            return execute(store, streams, key, again, view=noting, **options)

        def begin_again(
            store: Store,
            streams: StreamKind[Any],
            decisions: Iterable[tuple[str, Decide]],
            *,
            view: View | None = None,
        ) -> Any:
            waits: list[Callable[[], Any]] = []
            for key, decide in decisions:
                again, noting = asked.again(store, streams, key, decide, view)
                waits += begin(store, streams, [(key, again)], view=noting)
            return waits

        def submit_again(store: Store, chat_id: str, decide: Decide, *options: Any) -> Any:
            again, _ = asked.again(store, CHATS, chat_id, decide, None)
            return submit(store, chat_id, again, *options)

        monkeypatch.setattr(Store, "execute", execute_again)
        monkeypatch.setattr(Store, "begin", begin_again)
        monkeypatch.setattr(Store, "submit", submit_again)
        with contextlib.closing(asked):
            yield asked


@pytest.fixture(autouse=True)
def _asking_again() -> Iterator[None]:
    with asking_again():
        yield


def _outcome(decide: Decide, state: Any, now: int) -> list[Body] | Exception:
    try:
        return decide(state, now)
    except Exception as error:  # noqa: BLE001 - it is compared and raised again, or the state was not the one to decide on
        return error


def _comparable(outcome: list[Body] | Exception) -> object:
    return (type(outcome), str(outcome)) if isinstance(outcome, Exception) else outcome


def _site() -> str:
    """The function that handed a decision to a store, behind the stores that pass it on."""
    frame = sys._getframe(1)
    while frame.f_back is not None and Path(frame.f_code.co_filename).name in _PASSING:
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).resolve()}:{frame.f_code.co_name}".removeprefix(f"{ROOT}/")


def _name(decide: Any) -> str:
    while isinstance(decide, partial):
        decide = decide.func
    return f"{decide.__module__}:{decide.__qualname__}"


def _fresh(value: Any, copies: dict[int, Any]) -> Any:
    """
    Return a function, or what it keeps, as a copy that shares nothing with it that a call may change.

    What is not the decision's own, such as a ledger that it asks, stays as it is.
    """
    if id(value) in copies:
        return copies[id(value)]
    if isinstance(value, partial):
        keywords = {name: _fresh(argument, copies) for name, argument in value.keywords.items()}
        return partial(_fresh(value.func, copies), *(_fresh(one, copies) for one in value.args), **keywords)
    if isinstance(value, MethodType):
        return MethodType(value.__func__, _fresh(value.__self__, copies))
    if isinstance(value, FunctionType) and value.__closure__:
        cells = tuple(CellType() for _ in value.__closure__)
        function = FunctionType(value.__code__, value.__globals__, value.__name__, value.__defaults__, cells)
        function.__kwdefaults__ = value.__kwdefaults__
        copies[id(value)] = function
        for cell, own in zip(value.__closure__, cells, strict=True):
            with contextlib.suppress(ValueError):  # nothing is in it yet
                own.cell_contents = _fresh(cell.cell_contents, copies)
        return function
    if isinstance(value, Iterator):
        pytest.fail(f"a decision keeps {value!r}, which is another one after each call")
    if isinstance(value, (list, dict, set, deque)):
        copies[id(value)] = copy.copy(value)
        return copies[id(value)]
    is_own = type(value).__module__.startswith("chatledger.") and not isinstance(value, type)
    if not is_own or any(hasattr(value, name) for name in ("close", "snapshot", "_store", "_ledger")):
        return value
    own = copies[id(value)] = copy.copy(value)
    for name, attribute in getattr(own, "__dict__", {}).items():
        own.__dict__[name] = _fresh(attribute, copies)
    return own
