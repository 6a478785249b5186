"""Import and export of whole conversations, threads of agents and graph states."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import NamedTuple, TypeVar

import msgspec

from chatledger.domain.chat.decide_import import decide_import, import_result, rest_of
from chatledger.domain.chat.events import Body, Recorded
from chatledger.domain.chat.import_versions import OnChange, Settled, settle_changes, settle_ids
from chatledger.domain.chat.interchange import (
    ImportedBranch,
    ImportedChat,
    ImportedCheckpoint,
    ImportedMessage,
    ImportedRegeneration,
    ImportResult,
    renamed,
)
from chatledger.domain.chat.redaction import notes_of_copy
from chatledger.domain.chat.runs import MessageRun, RegenerationRecord
from chatledger.domain.errors import AccessDeniedError, ChatNotFoundError, InvalidValueError, NotFoundError
from chatledger.domain.limits import COMMIT_EVENTS, NO_ID, check_id, read_back, sought_id
from chatledger.domain.values import Annotation, Branch, Checkpoint, Graph, Message, make_graph
from chatledger.domain.versioned.decide_import import check_same, decide_import_value
from chatledger.domain.versioned.events import VersionPut, VersionsDeleted, VersionWritesPut
from chatledger.domain.versioned.interchange import (
    ImportedValue,
    ValueImportResult,
    absent_value,
    check_value,
    exported_value,
)
from chatledger.domain.versioned.keys import FAMILIES, STATE, THREAD, Family, family_of_id
from chatledger.domain.versioned.record import is_expired
from chatledger.projections.chat.pages import only_new_collected
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.log.kinds import CHATS, KIND_OF_FAMILY
from chatledger.projections.versioned.lists import listed_values
from chatledger.projections.versioned.reader import IndexedVersioned

from ..log.envelope import clock_ms
from ..store.commands import ChatsToRead
from .drafts import new_id
from .persons import owned_by
from .port import LedgerPart, StorePort, store_of

T = TypeVar("T", ImportedMessage, ImportedBranch, ImportedCheckpoint, ImportedRegeneration)


class InterchangeMethods(LedgerPart):
    """The part of a ledger that is about whole conversations, threads of agents and graph states."""

    def import_chat(
        self, chat: ImportedChat, *, chat_id: str | None = None, on_change: OnChange = "version"
    ) -> ImportResult:
        """
        Take a whole conversation in: what the ledger has of it stays, what it lacks is added. Repeating changes nothing.

        Members come with a new chat, and only where the ledger is not limited to a user: nobody is let in by a file from elsewhere.

        A message whose id another chat has, because one was continued in the other, gets the id `chat:id`, the same each time. A chat of more than 1,000 events (one for each further branch, checkpoint and run) takes several commits.

        Args:
            chat: As `chatledger.importers.read_chats` yields it, or `export_chat` returns it.
            chat_id: Import it under this id, with new ids for its messages: a copy, which may stand beside the original.
                Repeating makes nothing new only without it.
            on_change: The treatment of a message that is stored with other content, because it was changed at its source:
                take it as a new `version` beside the stored one, with what follows it, and move the branch there; `skip` it;
                or `refuse` the chat. A branch that was continued here stays where it is.

        Raises:
            ChainIntegrityError: The parents form a cycle or are missing. Nothing was written.
            MessageConflictError: With `refuse`: a message id is stored with other content. Nothing was written.
            InvalidValueError: A value breaks a rule. Nothing was written.
        """
        from chatledger.domain.chat.import_check import validate_links

        validate_links(chat)
        if chat_id is not None:
            chat = renamed(chat, check_id(chat_id, "chat_id"), {message.id: new_id() for message in chat.messages})
        return self._import(chat, on_change)

    def _import(self, chat: ImportedChat, on_change: OnChange) -> ImportResult:
        return _Import(self._store, chat, on_change).finish()

    def export_chat(self, chat_id: str) -> ImportedChat:
        """
        The whole conversation, to be written with `chatledger.importers.write_chats` and imported elsewhere.

        Raises:
            ChatNotFoundError: There is no such chat.

        Source: the LMDB index at `position`.
        """
        sought = sought_id(chat_id, "chat_id")
        with self._store.snapshot(ChatsToRead(sought)) as snapshot:
            chat = snapshot.chat(sought)
            if chat.record is None:
                raise ChatNotFoundError(chat_id)
            return exported_chat(chat)

    def import_value(self, value: ImportedValue) -> ValueImportResult:
        """
        Take a whole thread of agents, state of a graph or item in: all its versions with their times, pending writes, owner, and
        when it expires. Repeating changes nothing. One that has expired stays out.

        What is here goes on where it ends, if it is an earlier stage of this one. A large one takes several commits; when they are
        interrupted, repeating it goes on.

        Args:
            value: As `export_thread` and `export_state` return it, or `chatledger.importers.read_all` yields it.

        Raises:
            AlreadyExistsError: It is here with other content. Nothing was written, unless another writer changed it between the
                commits of a large one.
            AccessDeniedError: It is another user's than the one whom the ledger is limited to.
            InvalidValueError: It is damaged, or a value breaks a rule. Nothing was written.
        """
        redactor = self._store.redactor
        value = read_back(value, ImportedValue, "a value to import")
        imported = check_value(value if redactor is None else redactor.imported_value(value))
        family, key, kind = imported.family, imported.key, KIND_OF_FAMILY[imported.family.name]
        self._store.task_writes.settle(key)
        moment = clock_ms()
        with self._store.snapshot() as snapshot:
            owner = imported.owner if imported.owner is not None else family.owner_of(key)
            if snapshot.user_id is not None and owner not in {None, snapshot.user_id}:
                msg = f"{value.name} cannot be made for another user by a ledger that is limited to one"
                raise AccessDeniedError(msg)
            stored = snapshot.stream(kind, key)
            if imported.expires_at is not None and imported.expires_at <= moment:
                return ValueImportResult(id=key)
            replaced = check_same(stored, imported, moment)
            is_new = stored.record is None or is_expired(stored.record, moment)
        versions = [*imported.versions.values()]
        done = count = 0
        written: list[Body] = []

        def decide(state: IndexedVersioned, now: int) -> list[Body]:
            nonlocal count
            bodies, count = decide_import_value(
                state, imported, versions[done:], now, is_begun=bool(written), replaced=replaced, limit=COMMIT_EVENTS
            )
            return bodies

        while True:
            written += [event.body for event in self._store.execute(kind, key, decide)]
            done += count
            if done == len(versions):
                break
        if any(isinstance(body, VersionsDeleted) for body in written):  # what had expired made place
            self._store.erase_deleted()
        return ValueImportResult(
            id=key,
            is_new=is_new,
            versions_added=sum(isinstance(body, VersionPut) for body in written),
            writes_added=sum(
                len(task.slots) for body in written if isinstance(body, VersionWritesPut) for task in body.tasks
            ),
        )

    def export_thread(self, thread_id: str) -> ImportedValue:
        """
        The whole thread of agents, to be written with `chatledger.importers.write_all` and imported elsewhere.

        Raises:
            NotFoundError: There is no such thread, or it has expired.

        Source: the LMDB index at `position`.
        """
        if sought_id(thread_id, "thread_id") == NO_ID:
            raise absent_value(THREAD, thread_id)
        return self._export_value(THREAD, thread_id)

    def export_state(self, state_id: str) -> ImportedValue:
        """
        The whole graph state or item with all versions, to be written with `chatledger.importers.write_all` and imported elsewhere.

        Raises:
            NotFoundError: There is no such state, or it has expired.

        Source: the LMDB index at `position`.
        """
        try:
            family = family_of_id(sought_id(state_id, "state_id"))
        except InvalidValueError:  # what is no id of a state is one of none
            raise absent_value(STATE, state_id) from None
        return self._export_value(family, state_id)

    def _export_value(self, family: Family, key: str) -> ImportedValue:
        self._store.task_writes.settle(key)
        with self._store.snapshot() as snapshot:
            value = snapshot.stream(KIND_OF_FAMILY[family.name], key)
            if value.record is None:
                raise absent_value(family, key)
            return exported_value(value, clock_ms())

    def export_all(self) -> Iterator[ImportedChat | ImportedValue]:
        """
        Everything there is, one after the other: chats, then threads of agents, graph states and items, each as its own export has it.

        What is deleted meanwhile, and states that have expired, are left out. Each is as it is when it is yielded; for one
        moment of all, take a backup.

        Source: the LMDB index at `position`.
        """
        self._store.task_writes.settle()
        with self._store.snapshot(ChatsToRead(are_all=True)) as snapshot:
            chats = [chat.id for chat in reversed(snapshot.list_chats())]
            txn, tables, user_id = snapshot.txn, snapshot.tables, snapshot.user_id
            values = [
                (family, record.key)
                for family in FAMILIES
                for _, record in listed_values(txn, tables, family, user_id=user_id)
            ]
        for chat_id in chats:
            with suppress(ChatNotFoundError):
                yield self.export_chat(chat_id)
        for family, key in values:
            with suppress(NotFoundError):
                yield self._export_value(family, key)

    def export_user(self, user_id: str) -> Iterator[ImportedChat | ImportedValue]:
        """
        Yield all that a user owns, one after the other: chats, threads of agents, graph states and items, as their exports have them.

        `chatledger.importers.write_all(stream, ledger.export_user("ada"))` writes them as JSON lines, to be handed over or imported.
        Nothing of a user whom nobody knows. What is deleted meanwhile is left out.

        Raises:
            AccessDeniedError: This ledger is limited to a user.
            InvalidValueError: The id is empty or breaks a rule.

        Source: the LMDB index at `position`.
        """
        store = self._store.whole("export_user")
        check_id(user_id, "user_id")
        store.task_writes.settle()
        with store.snapshot() as snapshot:
            owned = [(each.family, each.key) for each in owned_by(snapshot, user_id)]
        # Not a generator itself: its arguments are refused by the call, and not when the first one is asked for.
        return self._exported(owned)

    def _exported(self, owned: Sequence[tuple[Family | None, str]]) -> Iterator[ImportedChat | ImportedValue]:
        for family, key in owned:
            with suppress(ChatNotFoundError, NotFoundError):
                yield self.export_chat(key) if family is None else self._export_value(family, key)

    def graph(self, chat_id: str) -> Graph:
        """
        The whole DAG of a chat: all messages by `created_at` (ties in log order), branches and checkpoints, oldest first.

        An unknown chat has none of them. Source: the LMDB index at `position`.
        """
        sought = sought_id(chat_id, "chat_id")
        with self._store.snapshot(ChatsToRead(sought)) as snapshot:
            chat = snapshot.chat(sought)
            if chat.record is None:
                return Graph(chat_id=chat_id, nodes=[], branches=[], checkpoints=[])
            branches = chat.branches()
            checkpoints = sorted(chat.checkpoints(), key=lambda checkpoint: (checkpoint.created_at, checkpoint.name))
            with only_new_collected(chat.record.message_count):
                messages = sorted(chat.chains.all_messages(), key=itemgetter(0))
        return make_graph(chat_id, (message for _, message in messages), branches, checkpoints)


class Tail(NamedTuple):
    """The part of a chat that some of its last events tell of, by ids."""

    message_ids: set[str]
    run_ids: set[str]
    regeneration_ids: set[str]


def exported_chat(state: IndexedChat) -> ImportedChat:
    """Return a whole conversation as an index has it. Raises `ChatNotFoundError` when it has none."""
    annotations = state.annotations()
    messages = [
        (at, _exported_message(message, annotations.get(message.id))) for at, message in state.chains.all_messages()
    ]
    regenerations = [] if state.run_rows is None else state.run_rows.regenerations()
    return _exported_chat(state, messages, state.runs(), regenerations)


def exported_tail(state: IndexedChat, tail: Tail) -> ImportedChat:
    """Return a conversation with the ends of its branches and what a tail names, for who has the rest. Raises `ChatNotFoundError`."""
    runs = [run for run_id in tail.run_ids if (run := state.run(run_id)) is not None]
    regenerations = [each for some_id in tail.regeneration_ids if (each := state.regeneration(some_id)) is not None]
    named: set[str | None] = {*tail.message_ids, *(branch.head_message_id for branch in state.branches())}
    named.update(checkpoint.message_id for checkpoint in state.checkpoints())
    for run in runs:
        named.update((run.trigger_message_id, run.message_id, *run.references))
    for each in regenerations:
        named.update(_exported(ImportedRegeneration, each).message_ids)
    messages: dict[str, tuple[int, ImportedMessage]] = {}
    while named:
        message_id = named.pop()
        message = None if message_id is None or message_id in messages else state.message(message_id)
        if message is not None:
            annotation = state.annotation(message.id)
            place = state.ordinal(state.place_of(message.id))
            messages[message.id] = place, _exported_message(message, annotation)
            named.add(None if annotation is None else annotation.replaced_by)
    return _exported_chat(state, [*messages.values()], runs, regenerations)


def _exported_message(message: Message, annotation: Annotation | None) -> ImportedMessage:
    return _exported(
        ImportedMessage, msgspec.structs.replace(message, annotation=annotation, notes=notes_of_copy(message))
    )


def _exported_chat(
    state: IndexedChat,
    messages: list[tuple[int, ImportedMessage]],
    runs: Sequence[MessageRun],
    regenerations: Sequence[RegenerationRecord],
) -> ImportedChat:
    chat = state.chat
    if chat is None:
        raise ChatNotFoundError(state.chat_id)
    messages.sort(key=itemgetter(0))
    return ImportedChat(
        id=chat.id,
        user_id=chat.user_id,
        title=chat.title,
        metadata=chat.metadata,
        created_at=chat.created_at,
        updated_at=chat.updated_at,
        expires_at=chat.expires_at,
        messages=tuple(message for _, message in messages),
        branches=tuple(_exported(ImportedBranch, branch) for branch in state.branches()),
        checkpoints=tuple(_exported(ImportedCheckpoint, checkpoint) for checkpoint in state.checkpoints()),
        runs=tuple(msgspec.structs.replace(run, chat_id="") for run in runs),
        regenerations=tuple(_exported(ImportedRegeneration, each) for each in regenerations),
        members={member.user_id: member.role for member in state.members()},
    )


def _exported(form: type[T], value: Message | Branch | Checkpoint | RegenerationRecord) -> T:
    """The same value in the form of exports, whose fields have the same names."""
    return form(**{field.name: getattr(value, field.name) for field in msgspec.structs.fields(form)})


class _Import:
    """A conversation that is taken in, in as many commits as it takes."""

    def __init__(self, store: StorePort, chat: ImportedChat, on_change: OnChange) -> None:
        with store.snapshot() as snapshot:
            is_limited = snapshot.user_id is not None
        if store.redactor is not None:
            chat = store.redactor.imported_chat(chat)
        # A file that a user was sent must let nobody into what the user imports.
        self._store, self.chat = store, msgspec.structs.replace(chat, members={}) if is_limited else chat
        self._on_change: OnChange = on_change
        self._rest = Settled(chat)
        self._written: list[Body] = []
        count = len(chat.branches) + len(chat.checkpoints) + len(chat.runs)
        self._new_ids = [new_id() for _ in range(1 + count)]

    def finish(self, begun: Callable[[], list[Recorded]] | None = None) -> ImportResult:
        """Write what is to be written, the first commit unless that has begun."""
        while True:
            write = begun or partial(self._store.execute, CHATS, self.chat.id, self.decide)
            begun = None
            bodies = [event.body for event in write()]
            self._written += bodies
            if len(bodies) < COMMIT_EVENTS:
                return import_result(self._rest, self._written)
            self._rest = msgspec.structs.replace(self._rest, chat=rest_of(self._rest.chat, bodies))
            self._new_ids = [new_id() for _ in range(1 + COMMIT_EVENTS)]

    def decide(self, state: IndexedChat, now: int) -> list[Body]:
        """Decide on the next commit."""
        chat = self.chat
        before = None
        if self._written:
            before = len(chat.branches) - len(self._rest.chat.branches)
        else:
            self._rest = settle_changes(state, settle_ids(state, chat), self._on_change)
        return decide_import(state, self._rest, ids=self._new_ids, now=now, limit=COMMIT_EVENTS, branches_before=before)


def begin_imports(
    ledger: LedgerPart, chats: Sequence[ImportedChat], *, on_change: OnChange
) -> list[Callable[[], ImportResult]]:
    """
    Begin to take conversations in, together; return for each what waits for its result, and raises what `import_chat` does.

    All have passed `validate_links`, and none has the id of another one, or of one of its messages.
    """
    store = store_of(ledger)
    imports = [_Import(store, chat, on_change) for chat in chats]
    begun = store.begin(CHATS, [(each.chat.id, each.decide) for each in imports])
    return [partial(each.finish, first) for each, first in zip(imports, begun, strict=True)]
