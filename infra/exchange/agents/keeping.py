"""Keeping the transcripts of all agents that are here: once, or on and on while they grow."""

import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from chatledger.domain.errors import InvalidValueError, PayloadTooLargeError
from chatledger.projections.chat.pages import only_new_collected
from chatledger.projections.chat.reader import read_metadata

from ...ledger.ledger import Ledger
from ...ledger.port import store_of
from ...store.commands import ChatsToRead
from .agent import Agent, SessionFile
from .following import FileKeeping, FilePlace, Kept, PlaceKept, is_seen, place_now, stamp_of

_LIVE_S, _FOLDERS_S, _ALL_S, _LIVE_FOR_S, _LIST_S = 1.0, 5.0, 60.0, 600.0, 600.0
"""Files that grew of late are looked at each second, folders each 5, all files each minute; they are listed where a folder changed."""
_QUIET_S: Final = 60.0
"""After so long without a turn, lines at the end of a file that say nothing are kept too."""
_THREADS: Final = 64
_MUCH_BYTES: Final = 16 * 1024 * 1024
"""Of so much the search index is made together, by a process of its own: that starts in half a second, and takes less time and bytes."""
_CLOSE_S: Final = 30.0
"""An open ledger takes memory and 1.5 % of a core, also when nothing comes."""


class AgentFiles(NamedTuple):
    """Transcripts to keep: an agent and the folders where it has them."""

    agent: Agent
    roots: list[Path]

    def files(self) -> Iterator[SessionFile]:
        """Yield the transcripts, one for each session."""
        for root in self.roots:
            if root.exists():
                yield from self.agent.sessions(root)


class Round(NamedTuple):
    """
    Counts of one round, by agent, and what is to be said of single files.

    Args:
        counts: `(agent, what)`: `sessions`, `new`, `grown`, `lines`.
        problems: Lines that are kept as text.
        failures: Files that could not be read.
        changed: When each file was changed, in ns since the epoch, by agent.
    """

    counts: Counter[tuple[str, str]]
    problems: list[str]
    failures: list[str]
    changed: defaultdict[str, list[int]]


class Keeper:
    """
    The keeper of transcripts in one ledger.

    Args:
        sources: Whose transcripts.
        open_ledger: Opens the ledger.
        user: The owner of chats that are made.
        redact: Takes out of the text of a line what is not to be kept.
        takes: Whether a file is one to keep.
    """

    def __init__(
        self,
        sources: list[AgentFiles],
        open_ledger: Callable[[], AbstractContextManager[Ledger]],
        *,
        user: str,
        redact: Callable[[str], str] | None = None,
        takes: Callable[[SessionFile], bool] = lambda _: True,
    ) -> None:
        self._sources, self._open_ledger, self._takes = sources, open_ledger, takes
        self._user, self._redact = user, redact
        self._places: dict[str, FilePlace] | None = None
        self._deleted: set[str] = set()
        self._seen: dict[Path, tuple[int, int]] = {}
        self._changed: dict[Path, float] = {}
        self._waiting: set[str] = set()
        self._unlisted: list[str] = []

    def once(self) -> Round:
        """Keep what is new in all files, with what their last lines say nothing of."""
        # Files are listed and looked at while the server of the ledger starts.
        with ThreadPoolExecutor(1) as pool:
            listing = pool.submit(self._stamped)
            with self._open_ledger() as ledger:
                files, stamps = listing.result()
                return self._keep(ledger, files, at_end=True, stamps=stamps)

    def _stamped(self) -> tuple[list[tuple[Agent, SessionFile]], dict[Path, tuple[int, int]]]:
        files, stamps = list(self._files()), dict[Path, tuple[int, int]]()
        for _, file in files:
            with contextlib.suppress(OSError):
                stamps[file.path] = stamp_of(file.path)
        return files, stamps

    def watch(self, tell: Callable[[Round], None]) -> None:
        """Keep what is new for ever, and tell each time; until an exception, such as `KeyboardInterrupt`, ends it."""
        files = list(self._files())
        looked_at = listed_at = all_at = used_at = time.monotonic()
        folders = self._folders(files)
        times = _times(folders)
        due, live = files, list[tuple[Agent, SessionFile]]()
        is_new = is_all = False
        with ExitStack() as stack:
            ledger: Ledger | None = None
            while True:
                at = time.monotonic()
                if due:
                    if ledger is None:
                        ledger = stack.enter_context(self._open_ledger())
                    ended = {file.path for _, file in due if at - self._changed.get(file.path, at) >= _QUIET_S}
                    for at_end in (False, True):
                        some = [pair for pair in due if (pair[1].path in ended) is at_end]
                        tell(self._keep(ledger, some, at_end=at_end))
                    used_at = at
                if due or is_all:
                    live = [pair for pair in files if at - self._changed.get(pair[1].path, -_LIVE_FOR_S) < _LIVE_FOR_S]
                if not due and ledger is not None and at - used_at > _CLOSE_S:
                    stack.close()
                    ledger = None
                time.sleep(_LIVE_S)
                at = time.monotonic()
                if at - looked_at >= _FOLDERS_S:
                    looked_at, before = at, times
                    times = _times(folders | _beside(live))
                    is_changed = any(before.get(folder, time_ns) != time_ns for folder, time_ns in times.items())
                    # In a folder that was new just now another one may have come unseen.
                    if is_changed or at - listed_at >= (_ALL_S if is_new else _LIST_S):
                        listed_at, is_new, files = at, is_changed, list(self._files())
                        folders = self._folders(files)
                        times = _times(folders | _beside(live))
                    if listed_at == at or at - all_at >= _ALL_S:
                        all_at = at
                is_all = all_at == at
                due = self._as_now([pair for pair in (files if is_all else live) if self._is_due(pair[1], at)])

    def _as_now(self, due: list[tuple[Agent, SessionFile]]) -> list[tuple[Agent, SessionFile]]:
        """Sessions that are due, those of a database as they are now: each is looked at where any of them changed."""
        names = {agent.name for agent, _ in due if agent.rows is not None}
        return [pair for pair in due if pair[0].name not in names] + list(self._files(names)) if names else due

    def _is_due(self, file: SessionFile, at: float) -> bool:
        """Whether a file changed since it was read, or was quiet for long with lines at its end that wait."""
        path = file.path
        try:
            stamp = stamp_of(path)
        except OSError:
            return False
        if stamp != self._seen.get(path):
            self._changed[path] = at
            return True
        return file.chat_id in self._waiting and at - self._changed.get(path, at) >= _QUIET_S

    def _folders(self, files: Iterable[tuple[Agent, SessionFile]]) -> set[Path]:
        """The folders that change when a session is added: those of files, those above, and those of agents, there or not."""
        roots = {root for source in self._sources for root in source.roots}
        return roots | {parent for _, file in files for parent in (file.path.parent, file.path.parent.parent)}

    def _files(self, names: Collection[str] | None = None) -> Iterator[tuple[Agent, SessionFile]]:
        for source in self._sources:
            if names is None or source.agent.name in names:
                try:
                    yield from ((source.agent, file) for file in source.files() if self._takes(file))
                except OSError as error:  # a database that cannot be read
                    self._unlisted.append(str(error))

    def _keep(
        self,
        ledger: Ledger,
        files: Iterable[tuple[Agent, SessionFile]],
        *,
        at_end: bool,
        stamps: Mapping[Path, tuple[int, int]] = MappingProxyType({}),
    ) -> Round:
        outcome = Round(Counter(), [], self._unlisted, defaultdict(list))
        self._unlisted = []

        def look(pair: tuple[Agent, SessionFile]) -> Kept | Exception:
            agent, file = pair
            try:
                keeping = FileKeeping(ledger, agent, self._user, self._redact)
                return keeping.keep(file, (self._places or {}).get(file.chat_id), at_end=at_end)
            except (OSError, InvalidValueError, PayloadTooLargeError) as error:
                return error

        with ExitStack() as stack:
            # Hardly anything of what is read and written here is in cycles: looking for them took an eighth of the time.
            stack.enter_context(only_new_collected())
            changed, changed_bytes = self._changed_files(ledger, files, outcome, stamps)
            if changed_bytes >= _MUCH_BYTES:
                stack.enter_context(store_of(ledger).search_later())
            # Commits of several threads go to the log and into the index together.
            pool = stack.enter_context(ThreadPoolExecutor(min(_THREADS, len(changed)) or 1))
            for (agent, file), looked_at in zip(changed, pool.map(look, changed), strict=True):
                self._count(outcome, agent.name, file, looked_at)
        return outcome

    def _changed_files(
        self,
        ledger: Ledger,
        files: Iterable[tuple[Agent, SessionFile]],
        outcome: Round,
        stamps: Mapping[Path, tuple[int, int]],
    ) -> tuple[list[tuple[Agent, SessionFile]], int]:
        """The files that are to be read, and about how much is new in them, in bytes; the others are counted."""
        if self._places is None:
            with store_of(ledger).snapshot(ChatsToRead(are_all=True)) as snapshot:
                kept = read_metadata(snapshot.txn, snapshot.tables, snapshot.chat_nos(), PlaceKept)
            self._places = {chat_id: metadata.place for chat_id, metadata in kept.items()}
            # What somebody deleted does not come back as long as its agent has the file.
            self._deleted = {receipt.id for receipt in ledger.erasures() if receipt.kind == "chat"}
        changed, changed_bytes = list[tuple[Agent, SessionFile]](), 0
        for agent, file in files:
            place = self._places.get(file.chat_id)
            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile: its chat stays
                stamp = self._seen[file.path] = stamps.get(file.path) or stamp_of(file.path)
                outcome.changed[agent.name].append(stamp[1])
                # What grew shortly before the watcher began is live, too.
                self._changed.setdefault(file.path, time.monotonic() - max(time.time() - stamp[1] / 1e9, 0))
                if place is not None and is_seen(place, place_now(file, stamp)):
                    outcome.counts[agent.name, "sessions"] += 1
                elif file.chat_id not in self._deleted:
                    changed.append((agent, file))
                    if agent.rows is None:  # sessions of a database share a file
                        changed_bytes += stamp[0] - (0 if place is None else min(place.offset, stamp[0]))
        return changed, changed_bytes

    def _count(self, outcome: Round, name: str, file: SessionFile, looked_at: Kept | Exception) -> None:
        if isinstance(looked_at, Exception):
            if not isinstance(looked_at, FileNotFoundError):
                is_told = isinstance(looked_at, InvalidValueError)
                outcome.failures.append(str(looked_at) if is_told else f"{file.path}: {looked_at}")
            return
        (self._waiting.add if looked_at.is_waiting else self._waiting.discard)(file.chat_id)
        if looked_at.place is not None and self._places is not None:
            self._places[file.chat_id] = looked_at.place
        outcome.counts[name, "sessions"] += 1
        outcome.counts[name, "new"] += looked_at.is_new
        outcome.counts[name, "grown"] += bool(looked_at.lines) and not looked_at.is_new
        outcome.counts[name, "lines"] += looked_at.lines
        outcome.problems.extend(looked_at.problems)


def _beside(live: Iterable[tuple[Agent, SessionFile]]) -> set[Path]:
    """The folders of sessions that go on, in which subagents begin files: while they have none, nothing else tells of them."""
    own = {file.path.with_suffix("") for _, file in live}
    return own | {folder / "subagents" for folder in own}


def _times(folders: Iterable[Path]) -> dict[Path, int]:
    """The times when folders were changed, in ns; 0 for those that are not there."""
    times = dict.fromkeys(folders, 0)
    for folder in times:
        with contextlib.suppress(OSError):
            times[folder] = folder.stat().st_mtime_ns
    return times
