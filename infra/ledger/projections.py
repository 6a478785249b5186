"""Projections of users: reading and dropping them."""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from .port import LedgerPart, StorePort, store_of

if TYPE_CHECKING:
    from chatledger.projections.custom.rows import ProjectionView

    from ..store.custom_projections import CustomProjections, ProjectionInfo


class ProjectionMethods(LedgerPart):
    """The part of a ledger that is about custom projections."""

    @contextmanager
    def projection(self, name: str) -> Generator["ProjectionView"]:
        """
        The rows of a projection that the ledger was opened with: use it in a `with`.

        What is read inside belongs to one moment; everything that this ledger wrote before is in it. Where the projection
        lags, because another process wrote without it, it catches up first. Inside, the ledger itself cannot be used.

        Raises:
            NotFoundError: The ledger was not opened with it.
            ProjectionError: It failed, or another process brought another version.
        """
        view, end, inside = begin_view(self, name)
        try:
            with inside():
                yield view
        finally:
            end()

    def projections(self) -> "list[ProjectionInfo]":
        """
        The projections that the index has, by name, also those that this ledger was not opened with.

        Source: the LMDB index at `position`.
        """
        return _of_all_users(self._store).infos()

    def drop_projection(self, name: str) -> bool:
        """
        Remove a projection with its rows; False when there is none. A ledger that is opened with it builds it anew.

        A process that still has it builds it anew as well, when it reads it.
        """
        return _of_all_users(self._store).drop(name)


def begin_view(
    ledger: LedgerPart, name: str
) -> tuple["ProjectionView", Callable[[], None], Callable[[], AbstractContextManager[None]]]:
    """The rows of a projection, what ends them, and what is entered for as long as they are open."""
    projections = _of_all_users(store_of(ledger))
    view = projections.view(name)
    return view, lambda: projections.end_view(view), projections.inside


def _of_all_users(store: StorePort) -> "CustomProjections":
    whole = store.whole("projections")
    whole.check_open()
    return whole.projections
