"""Assistants: a graph with a configuration, kept on the ledger version by version."""

import builtins
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid5

import msgspec

from chatledger.domain.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    InvalidValueError,
    NotFoundError,
    StateConflictError,
)
from chatledger.domain.versioned.keys import ASSISTANT_STATES, assistant_namespace, parse_state_id, state_id

from ....clock import clock_ms
from ....ledger.graph.state_store import StateStore
from ....ledger.ledger import Ledger
from ..access import LOCAL_USER, Principal
from ..problems import RequestError

TWO_CONTEXTS: Final = (
    "give either context or config.configurable: a graph gets one context, and one of them would be left out"
)
_BY_NAME: Final = UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")
_ATTEMPTS: Final = 20
_PAGE: Final = 100


class Assistant(msgspec.Struct, frozen=True, kw_only=True):
    """
    A graph with a configuration.

    Args:
        assistant_id: Its id. A graph has an assistant from the beginning, whose id is the name of the graph.
        created_at: When it was made, in ms since the epoch.
        updated_at: When it was changed, or another version was made the present one.
    """

    assistant_id: str
    graph_id: str
    config: dict[str, Any] = {}
    context: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    name: str = "Untitled"
    description: str | None = None
    version: int = 1
    created_at: int = 0
    updated_at: int = 0

    @property
    def namespace(self) -> str:
        """The namespace of its checkpoints on every thread: `assistant:<id>`."""
        return assistant_namespace(self.assistant_id)


class AssistantChange(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of an assistant: `metadata` is merged into what there is, the rest takes its place."""

    graph_id: str | None = None
    config: dict[str, Any] | None = None
    context: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    name: str | None = None
    description: str | None = None


class _AssistantRecord(msgspec.Struct, frozen=True):
    """The stored record of an assistant: its present version, and the number of the last one that was made."""

    assistant: Assistant
    last_version: int


class _StoredAssistant(NamedTuple):
    """An assistant, the state that keeps it, and the version of that state; 0 before it was changed for the first time."""

    state: str
    record: _AssistantRecord
    state_version: int


class Assistants:
    """The assistants that a caller may use: the caller's own, those that were made for everybody, and one of each graph."""

    def __init__(self, graph_ids: Iterable[str], ledger: Ledger, principal: Principal, since: int) -> None:
        self._graph_ids = list(graph_ids)
        self._aliases = {str(uuid5(_BY_NAME, name)): name for name in self._graph_ids}
        self._owner = principal.owner
        # No state belongs to the empty user.
        self._owners = [owner for owner in dict.fromkeys((self._owner, LOCAL_USER)) if owner]
        self._states, self._since = StateStore(ledger), since

    def get(self, assistant_id: str, version: int | None = None) -> Assistant:
        """Read an assistant: by its id, the name of a graph, or the UUID that LangGraph's server makes of such a name."""
        if version is None:
            return self._find(assistant_id).record.assistant
        for candidate in self.versions(assistant_id):
            if candidate.version == version:
                return candidate
        msg = f"Assistant with ID {assistant_id} has no version {version}"
        raise NotFoundError(msg)

    def list(self) -> builtins.list[Assistant]:
        """List all, the last changed first."""
        by_id = {name: self._default(name) for name in self._graph_ids}
        for owner in reversed(self._owners):  # the caller's own last, so that they count where two have one id
            for info in self._states.list(user_id=owner):
                record = self._read(info.id) if info.conversation_id.startswith(ASSISTANT_STATES) else None
                if record is not None:
                    by_id[record.assistant.assistant_id] = record.assistant
        return sorted(by_id.values(), key=lambda assistant: (-assistant.updated_at, assistant.assistant_id))

    def create(self, assistant_id: str, change: AssistantChange, *, may_exist: bool = False) -> Assistant:
        """
        Make an assistant.

        Raises:
            NotFoundError: There is no such graph.
            AlreadyExistsError: There is one of that id, and `may_exist` is not set.
            NamespaceError: The id contains `|`.
        """
        assistant_namespace(assistant_id)
        if change.graph_id is None:
            msg = "an assistant needs a graph_id"
            raise InvalidValueError(msg)
        self._check_graph(change.graph_id)
        moment = clock_ms()
        assistant = _changed(
            Assistant(assistant_id=assistant_id, graph_id=change.graph_id, created_at=moment, updated_at=moment), change
        )
        try:
            present = self.get(assistant_id)
        except NotFoundError:
            try:
                key = state_id(self._owner, ASSISTANT_STATES + assistant_id)
                self._states.put(key, msgspec.to_builtins(_AssistantRecord(assistant, 1)), expected_version=0)
            except StateConflictError:  # another request made it since
                present = self.get(assistant_id)
            else:
                return assistant
        if may_exist:
            return present
        msg = f"Assistant with ID {assistant_id} already exists"
        raise AlreadyExistsError(msg)

    def update(self, assistant_id: str, change: AssistantChange) -> Assistant:
        """Make a new version of an assistant that is the caller's own."""
        if change.graph_id is not None:
            self._check_graph(change.graph_id)

        def next_version(record: _AssistantRecord) -> _AssistantRecord:
            number = record.last_version + 1
            changed = _changed(record.assistant, change)
            return _AssistantRecord(msgspec.structs.replace(changed, version=number, updated_at=clock_ms()), number)

        return self._change(assistant_id, next_version)

    def set_latest(self, assistant_id: str, version: int) -> Assistant:
        """Make an earlier version of an assistant that is the caller's own the present one."""

        def back(record: _AssistantRecord) -> _AssistantRecord:
            earlier = self.get(assistant_id, version)
            return _AssistantRecord(msgspec.structs.replace(earlier, updated_at=clock_ms()), record.last_version)

        return self._change(assistant_id, back)

    def versions(self, assistant_id: str) -> builtins.list[Assistant]:
        """List the versions of an assistant, the newest first, each as it was made."""
        stored = self._find(assistant_id)
        versions: dict[int, Assistant] = {}
        if stored.record.assistant.assistant_id in self._graph_ids:
            versions[1] = self._default(stored.record.assistant.assistant_id)
        before: int | None = None
        while page := self._states.history(stored.state, limit=_PAGE, before=before):
            for entry in page:
                record = self._read(stored.state, entry.version)
                if record is not None:
                    versions[record.assistant.version] = record.assistant
            before = page[-1].version
        return [versions[number] for number in sorted(versions, reverse=True)]

    def delete(self, assistant_id: str) -> None:
        """Delete an assistant of the caller with all of its versions; the one that a graph has from the beginning stays."""
        stored = self._find(assistant_id)
        if stored.record.assistant.assistant_id in self._graph_ids:
            msg = f"assistant {assistant_id!r} is the one that its graph has from the beginning; it cannot be deleted"
            raise AccessDeniedError(msg)
        self._check_own(stored)
        self._states.delete(stored.state)

    def _find(self, assistant_id: str) -> _StoredAssistant:
        # LangGraph's server makes the id of a graph's assistant of its name, and clients write that id down.
        own_id = self._aliases.get(assistant_id, assistant_id)
        for owner in self._owners:
            key = state_id(owner, ASSISTANT_STATES + own_id)
            newest = self._states.history(key, limit=1)
            record = self._read(key, newest[0].version) if newest else None
            if record is not None:
                return _StoredAssistant(key, record, newest[0].version)
        if own_id in self._graph_ids:
            return _StoredAssistant(
                state_id(LOCAL_USER, ASSISTANT_STATES + own_id), _AssistantRecord(self._default(own_id), 1), 0
            )
        msg = f"Assistant with ID {assistant_id} not found"
        raise NotFoundError(msg)

    def _default(self, graph_id: str) -> Assistant:
        return Assistant(
            assistant_id=graph_id,
            graph_id=graph_id,
            metadata={"created_by": "system"},
            name=graph_id,
            created_at=self._since,
            updated_at=self._since,
        )

    def _read(self, key: str, version: int | None = None) -> _AssistantRecord | None:
        state = self._states.get(key, version)
        return None if state is None else msgspec.convert(state, _AssistantRecord)

    def _change(self, assistant_id: str, change: Callable[[_AssistantRecord], _AssistantRecord]) -> Assistant:
        for attempt in count(1):
            stored = self._find(assistant_id)
            self._check_own(stored)
            record = change(stored.record)
            try:
                self._states.put(stored.state, msgspec.to_builtins(record), expected_version=stored.state_version)
            except StateConflictError:
                if attempt == _ATTEMPTS:
                    raise
            else:
                return record.assistant
        raise AssertionError

    def _check_own(self, stored: _StoredAssistant) -> None:
        if parse_state_id(stored.state).user_id != self._owner:
            shown = stored.record.assistant.assistant_id
            msg = f"assistant {shown!r} is everybody's; make one of your own to change it"
            raise AccessDeniedError(msg)

    def _check_graph(self, graph_id: str) -> None:
        if graph_id not in self._graph_ids:
            msg = f"Graph '{graph_id}' not found. Available graphs: {', '.join(map(repr, self._graph_ids)) or 'none'}"
            raise NotFoundError(msg)


def _changed(assistant: Assistant, change: AssistantChange) -> Assistant:
    """Apply a change; `config.configurable` and the context say the same, so either fills the other, and others are refused."""
    names = AssistantChange.__struct_fields__
    changes: dict[str, Any] = {name: getattr(change, name) for name in names if getattr(change, name) is not None}
    if "metadata" in changes:
        changes["metadata"] = {**assistant.metadata, **changes["metadata"]}
    configurable = changes.get("config", {}).get("configurable")
    if configurable and changes.get("context") and configurable != changes["context"]:
        raise RequestError(400, TWO_CONTEXTS)
    if configurable and "context" not in changes:
        changes["context"] = configurable
    elif changes.get("context") and not configurable:
        changes["config"] = {**changes.get("config", assistant.config), "configurable": changes["context"]}
    return msgspec.structs.replace(assistant, **changes)
