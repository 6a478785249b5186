"""The projections of users in a store: attaching, catching up, reading, building anew and dropping them."""

import contextlib
import logging
from collections.abc import Generator, Iterable, Sequence
from typing import Any

import lmdb

from chatledger.domain.errors import (
    DECODE_ERRORS,
    ConfigurationError,
    CorruptStateError,
    InvalidValueError,
    NotFoundError,
    ProjectionError,
)
from chatledger.domain.values import Progress
from chatledger.domain.wire import Value
from chatledger.projections.custom.catching_up import CatchingUp
from chatledger.projections.custom.records import (
    ALL_STORES,
    BUILDING,
    SERVING,
    Entry,
    Projection,
    ProjectionRecord,
    barred,
    check_projection,
    drop_record,
    load_record,
    load_records,
    new_record,
    save_record,
)
from chatledger.projections.custom.rows import ProjectionView, Reach
from chatledger.projections.generations import Generation
from chatledger.projections.index import Index, ReadLog
from chatledger.projections.lmdb.environment import Transaction

_logger = logging.getLogger(__name__)


class ProjectionInfo(Value, frozen=True):
    """
    The state of a projection: `position` is how far it is on the log, `error` where it failed, if it did.

    `is_attached` says whether this process was opened with it, and keeps it up to date.
    """

    name: str
    version: int
    position: int
    is_attached: bool
    error: str | None = None
    error_position: int | None = None


def check_projections(projections: Any) -> tuple[Projection, ...]:
    """Projections with different names. Raises `ConfigurationError`."""
    if isinstance(projections, str) or not isinstance(projections, Iterable):
        msg = f"projections must be a list of projections, not {type(projections).__name__}"
        raise ConfigurationError(msg)
    by_name = dict[str, Projection]()
    for projection in projections:  # pyright: ignore[reportUnknownVariableType] - it is checked
        try:
            checked = check_projection(projection)
        except InvalidValueError as error:
            raise ConfigurationError(str(error)) from error
        if checked.name in by_name:
            msg = f"two projections have the name {checked.name!r}; give each its own"
            raise ConfigurationError(msg)
        by_name[checked.name] = checked
    return tuple(by_name.values())


class CustomProjections:
    """The custom projections of one store. Its methods are safe for threads."""

    def __init__(self, index: Index, read: ReadLog) -> None:
        self._index, self._read = index, read
        self._views: set[Reach] = set()

    def attach(self, projections: Sequence[Projection], progress: Progress) -> None:
        """
        Attach projections, and build those that are new.

        Raises:
            ConfigurationError: Another one has the name of one of them in this process.
        """
        for projection in projections:
            attached = self._index.custom.get(projection.name)
            if attached is not None and (type(attached.projection), attached.version) != (
                type(projection),
                projection.version,
            ):
                msg = (
                    f"projection {projection.name!r} is open in this process as another class, or with version "
                    f"{attached.version}; close that ledger first"
                )
                raise ConfigurationError(msg)
        for projection in projections:
            if self._index.custom.get(projection.name) is None:
                self._index.custom.add(projection)
        self.build(progress)

    def build(self, progress: Progress) -> None:
        """Bring all to where the index is, also those that have to be built first."""
        for entry in list(self._index.custom):
            record = self._bring(entry, progress)
            if record.error:
                _logger.warning("%s", _broken(record))

    def catch_up(self) -> None:
        """Bring those that lag, as others wrote without them, to where the index is; building is left to their readers."""
        for entry in list(self._index.custom):
            if not entry.is_replaced:
                with contextlib.suppress(ProjectionError):  # reading it says so
                    CatchingUp(self._index, entry, self._read).run(can_build=False)

    def has(self, name: str) -> bool:
        return self._index.custom.get(name) is not None

    def rebuild(self, name: str, progress: Progress) -> None:
        """Build one anew from the log while the old rows serve, and go over to it."""
        entry = self._entry(name)
        progress(0, self._index.state.position)
        with self._index.building():

            def begin(generation: Generation, txn: Transaction) -> int:
                drop_record(txn, generation.tables, BUILDING, name)
                record = new_record(txn, generation.tables, name, entry.version)
                save_record(txn, generation.tables, BUILDING, record)
                return record.number

            wanted = self._index.update(begin)
            record = self._catching_up(entry, wanted=wanted).run(can_build=True, report=progress)
        assert record is not None, "it could build"
        progress(record.position, record.position)
        if record.error:
            raise _broken(record)
        entry.is_replaced = False

    def drop(self, name: str) -> bool:
        """Forget one, with its rows; False when there is none."""
        was_attached = self._index.custom.get(name) is not None
        self._index.custom.remove(name)

        def change(generation: Generation, txn: Transaction) -> bool:
            dropped = [drop_record(txn, generation.tables, slot, name) for slot in (SERVING, BUILDING)]
            return any(dropped)

        return self._index.update(change) or was_attached

    def infos(self) -> list[ProjectionInfo]:
        """Return the state of each projection, by name; of one that is being rebuilt, that of the rows that serve."""
        with self._index.snapshot() as snapshot:
            records = load_records(snapshot.txn, snapshot.tables)
        by_name: dict[str, ProjectionRecord] = {}
        for slot, record in records:
            if slot == SERVING or record.error or record.name not in by_name:
                by_name[record.name] = record
        return [self._info(by_name[name]) for name in sorted(by_name)]

    def _info(self, record: ProjectionRecord) -> ProjectionInfo:
        return ProjectionInfo(
            record.name,
            record.version,
            record.position,
            is_attached=self._index.custom.get(record.name) is not None,
            error=record.error,
            error_position=record.error_position or None,
        )

    def view(self, name: str) -> ProjectionView:
        """
        The rows of one as they are now, with everything in them that the index has; `end_view` must follow.

        Raises:
            NotFoundError: It is not attached.
            ProjectionError: It is broken, or was replaced by another version.
        """
        entry = self._entry(name)
        target = self._index.state.position
        while True:
            record = self._bring(entry, lambda done, total: None)
            if record.error:
                raise _broken(record)
            stack = contextlib.ExitStack()
            snapshot = stack.enter_context(self._index.snapshot())
            serving = load_record(snapshot.txn, snapshot.tables, SERVING, name)
            if (
                serving is not None
                and serving.version == entry.version
                and serving.position >= target
                and not serving.error
            ):
                reach = Reach(snapshot.txn, snapshot.tables.custom, stack.close)
                self._views.add(reach)
                return ProjectionView(reach, serving.number, position=serving.position)
            stack.close()

    def end_view(self, view: ProjectionView) -> None:
        reach = view._reach  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - nothing for users
        self._views.discard(reach)
        reach.end()

    def close(self) -> None:
        """End all views: the files cannot be closed under them."""
        for reach in list(self._views):
            reach.end()

    @contextlib.contextmanager
    def inside(self) -> Generator[None]:
        """Refuse to use the store here, where a view is open: growing the index waits until it ends."""
        before = barred.get()
        barred.set((*before, id(self)))
        try:
            yield
        except (lmdb.Error, *DECODE_ERRORS) as error:
            msg = f"the rows of a projection are damaged: {error}; rebuild the index, the log is not affected"
            raise CorruptStateError(msg) from error
        finally:
            barred.set(before)

    def check_outside(self) -> None:
        """Raise `InvalidValueError` where the store cannot be used: in `Projection.apply`, or while a view is open."""
        if ALL_STORES in barred.get():
            msg = "a projection must not use a ledger while it applies an event: only its rows and the event"
            raise InvalidValueError(msg)
        if id(self) in barred.get():
            msg = (
                "inside `with ledger.projection(...)` only its rows can be read, as they are of one moment; take from them "
                "what you need, and use the ledger after the `with`"
            )
            raise InvalidValueError(msg)

    def _entry(self, name: str) -> Entry:
        entry = self._index.custom.get(name)
        if entry is None:
            msg = f"no projection {name!r} in this process; give it to chatledger.open(projections=[...])"
            raise NotFoundError(msg)
        return entry

    def _catching_up(self, entry: Entry, *, wanted: int = 0) -> CatchingUp:
        return CatchingUp(self._index, entry, self._read, wanted=wanted)

    def _bring(self, entry: Entry, progress: Progress) -> ProjectionRecord:
        try:
            record = self._catching_up(entry).run(can_build=False)
            if record is None:
                with self._index.building():
                    record = self._catching_up(entry).run(can_build=True, report=progress)
        except lmdb.Error as error:
            msg = f"projection {entry.name!r} cannot be written: {error}; rebuild the index, the log is not affected"
            raise CorruptStateError(msg) from error
        assert record is not None, "it could build"
        return record


def _broken(record: ProjectionRecord) -> ProjectionError:
    return ProjectionError(
        record.name,
        f"(version {record.version}) failed at position {record.error_position}: {record.error}. Correct its apply, and raise "
        f"its version, or call rebuild(only={record.name!r})",
        position=record.error_position,
    )
