"""`LedgerBaseStore`: LangGraph's store of items on a ledger, with history."""

import os
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from itertools import islice
from typing import Any, Final, NamedTuple, Self, cast

import msgspec
from langchain_core.embeddings import Embeddings
from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    validate_op_namespace,
)
from langgraph.store.base import Item as StoredItem

from chatledger.domain.errors import ConfigurationError, InvalidValueError
from chatledger.domain.limits import check_count
from chatledger.domain.moments import Moment

from ...ledger.aio.async_ledger import AsyncLedger
from ...ledger.aio.awaiting import threaded
from ...ledger.graph.stored import StoredStates
from ...ledger.items.item_store import Item, ItemPut, ItemReader, ItemStore, ItemVersion
from ...ledger.ledger import Ledger
from ...ledger.sweeper import Sweeper
from ..adapters.access import AdapterLedger, Source, utc
from .store_searching import ItemIndex, Ranked, check_fields, check_filter, is_match, list_namespaces

_MINUTE_S: Final = 60
_SWEEP_MINUTES: Final = 5.0


class _Put(NamedTuple):
    """A change of a batch. `texts` are those that get vectors, by path."""

    change: ItemPut
    fields: Any
    texts: Mapping[str, str]


class _PlannedBatch(NamedTuple):
    """
    A batch, checked.

    Args:
        reads: The operations that read, by their place in the batch.
        puts: The changes; of several changes of an item only the last.
    """

    size: int
    reads: Mapping[int, GetOp | SearchOp | ListNamespacesOp]
    puts: Sequence[_Put]

    @property
    def texts(self) -> list[str]:
        """The texts that need vectors, each once."""
        return list(dict.fromkeys(text for put in self.puts for text in put.texts.values()))

    @property
    def queries(self) -> list[str]:
        return list(dict.fromkeys(op.query for op in self.reads.values() if isinstance(op, SearchOp) and op.query))


class _Vectors(NamedTuple):
    """Vectors by their text; empty without embeddings."""

    of_texts: Mapping[str, Sequence[float]]
    of_queries: Mapping[str, Sequence[float]]


class _LedgerStore(BaseStore):
    """The operations of a store over items, now or as of an earlier moment."""

    supports_ttl = True

    def __init__(self, ledger: AdapterLedger, index: ItemIndex, ttl: TTLConfig | None) -> None:
        self._ledger, self._index, self.ttl_config = ledger, index, ttl

    @property
    def embeddings(self) -> Embeddings | None:
        """The model that makes the vectors; None where items are found by words."""
        return self._index.embeddings

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """
        Carry out operations: first the reads, then the puts. Of several puts of one item the last counts.

        Raises:
            InvalidNamespaceError: A namespace breaks a rule. Nothing was written.
            InvalidValueError: A value, key or filter breaks a rule. Nothing was written.
        """
        plan = self._planned(ops)
        embeddings = self._index.embeddings
        if embeddings is None:
            return self._carried_out(plan, _Vectors({}, {}))
        texts, queries = plan.texts, plan.queries
        of_texts = _paired(texts, embeddings.embed_documents(texts) if texts else [])
        return self._carried_out(plan, _Vectors(of_texts, {query: embeddings.embed_query(query) for query in queries}))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations in a worker thread; see `batch`."""
        plan = self._planned(ops)
        embeddings = self._index.embeddings
        vectors = _Vectors({}, {})
        if embeddings is not None:
            texts, queries = plan.texts, plan.queries
            of_texts = _paired(texts, await embeddings.aembed_documents(texts) if texts else [])
            vectors = _Vectors(of_texts, {query: await embeddings.aembed_query(query) for query in queries})
        return await self._ledger.run(lambda _: self._carried_out(plan, vectors))

    @abstractmethod
    def _reader(self) -> ItemReader:
        """The items that are read."""

    @abstractmethod
    def _write(self, puts: Sequence[_Put], vectors: _Vectors) -> None:
        """Carry out changes."""

    def _refresh(self, items: Iterable[Item]) -> None:
        """Let items that were read expire later."""

    def _planned(self, ops: Iterable[Op]) -> _PlannedBatch:
        operations = list(ops)
        reads: dict[int, GetOp | SearchOp | ListNamespacesOp] = {}
        puts: dict[tuple[tuple[str, ...], str], _Put] = {}
        for number, op in enumerate(operations):
            validate_op_namespace(op)
            if isinstance(op, PutOp):
                value = None if op.value is None else _plain(op.value)
                fields = check_fields(op.index)
                ttl = None if op.ttl is None else op.ttl * _MINUTE_S
                change = ItemPut(namespace=tuple(op.namespace), key=str(op.key), value=value, ttl_seconds=ttl)
                has_vectors = value is not None and self._index.embeddings is not None
                texts = self._index.texts(value or {}, fields) if has_vectors else {}
                puts[change.namespace, change.key] = _Put(change, fields, texts)
            elif isinstance(op, GetOp | ListNamespacesOp):
                reads[number] = op
            elif isinstance(op, SearchOp):
                check_filter(op.filter)
                reads[number] = op
            else:
                msg = f"Unknown operation type: {type(op)}"
                raise InvalidValueError(msg)
            if isinstance(op, SearchOp | ListNamespacesOp):
                check_count(op.limit, "limit")
                check_count(op.offset, "offset")
        return _PlannedBatch(len(operations), reads, list(puts.values()))

    def _carried_out(self, plan: _PlannedBatch, vectors: _Vectors) -> list[Result]:
        results: list[Result] = [None] * plan.size
        if plan.reads:
            items = self._reader()
            read: dict[tuple[tuple[str, ...], str], Item] = {}
            for number, op in plan.reads.items():
                shown: list[Item] = []
                if isinstance(op, GetOp):
                    item = items.get(tuple(op.namespace), str(op.key))
                    shown = [] if item is None else [item]
                    results[number] = None if item is None else _shown(item)
                elif isinstance(op, SearchOp):
                    hits = self._search(items, op, vectors)
                    shown = [hit.item for hit in hits]
                    results[number] = [_shown_with_score(hit) for hit in hits]
                else:
                    results[number] = list_namespaces(items, op)
                # As in LangGraph's own stores, what is read lives on: each item once, whatever the number of reads.
                if not isinstance(op, ListNamespacesOp) and op.refresh_ttl:
                    read |= {(item.namespace, item.key): item for item in shown if item.expires_at is not None}
            self._refresh(read.values())
        if plan.puts:
            self._write(plan.puts, vectors)
        return results

    def _search(self, items: ItemReader, op: SearchOp, vectors: _Vectors) -> list[Ranked]:
        prefix, wanted = tuple(op.namespace_prefix), check_filter(op.filter)
        with closing(items.scan(prefix, with_extra=bool(op.query))) as scanned:
            matches = (item for item in scanned if is_match(item.value, wanted))
            if not op.query:
                return [Ranked(item, None) for item in islice(matches, op.offset, op.offset + op.limit)]
            unranked = list(matches)
        vector = vectors.of_queries.get(op.query)
        if vector is None:
            ranked = self._index.by_words(op.query, unranked)
        else:
            ranked = self._index.by_vectors(vector, unranked)
        return ranked[op.offset : op.offset + op.limit]


class EarlierBaseStore(_LedgerStore):
    """A `LedgerBaseStore` as it stood at an earlier moment, to be read only. Made by `LedgerBaseStore.as_of`."""

    def __init__(self, ledger: AdapterLedger, index: ItemIndex, ttl: TTLConfig | None, items: ItemReader) -> None:
        super().__init__(ledger, index, ttl)
        self._items = items

    def _reader(self) -> ItemReader:
        return self._items

    def _write(self, puts: Sequence[_Put], vectors: _Vectors) -> None:
        del puts, vectors
        msg = "a store as of an earlier moment cannot be written; use the store that it was made from"
        raise InvalidValueError(msg)


class LedgerBaseStore(_LedgerStore):
    """
    Keeps the items of LangGraph's store, the long-term memory of agents, on a ledger: every change an event.

    Of a ledger made by `for_user` they are that user's; of one that is not, nobody's. Safe for threads and tasks; the async methods
    run in worker threads.

    Args:
        source: A `Ledger` or an `AsyncLedger`, which stays open; or a location, which is opened by the first call and closed by
            `close`, or at the end of `with` or `async with`.
        index: What is searched, as LangGraph's stores take it: `embed`, `dims` and `fields`. Without `embed`, `query` finds items by
            their words, and the score is that of BM25.
        ttl: `default_ttl` in minutes, `refresh_on_read`, `sweep_interval_minutes`. What has expired is absent at once.
        keep_deleted: A delete ends the item and keeps its history, instead of erasing it.
        user_id: The user whose items these are.

    Raises:
        ConfigurationError: An argument is none of the kind that it should be.

    Example:
        graph = builder.compile(checkpointer=LedgerSaver(ledger), store=LedgerBaseStore(ledger))
    """

    def __init__(
        self,
        source: Source,
        *,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        keep_deleted: bool = False,
        user_id: str | None = None,
    ) -> None:
        super().__init__(AdapterLedger(source, user_id=user_id, adapter="LedgerBaseStore"), ItemIndex(index), ttl)
        self._source, self._keep_deleted = source, keep_deleted
        self.index_config = index
        self._sweeper: Sweeper | None = None

    @classmethod
    def from_conn_string(
        cls,
        location: str | os.PathLike[str],
        *,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        keep_deleted: bool = False,
        user_id: str | None = None,
    ) -> Self:
        """Return a store with a ledger of its own, for `with` or `async with`; the arguments as of the store."""
        return cls(location, index=index, ttl=ttl, keep_deleted=keep_deleted, user_id=user_id)

    def for_user(self, user_id: str) -> "LedgerBaseStore":
        """
        Return the same store with the items of one user, which nobody else's store sees.

        Raises:
            AccessDeniedError: The ledger is limited to another user.
        """
        # A location was opened by this store, which closes it: the user's store shares that ledger.
        source = self._source if isinstance(self._source, Ledger | AsyncLedger) else self._ledger.blocking
        return LedgerBaseStore(
            source, index=self.index_config, ttl=self.ttl_config, keep_deleted=self._keep_deleted, user_id=user_id
        )

    def as_of(self, moment: Moment) -> EarlierBaseStore:
        """
        Return the store as it stood at an earlier moment, to be read only. Of erased items, and of what expired, it has nothing.

        Args:
            moment: A position on the log, or a time with a time zone; see `Ledger.as_of`.

        Raises:
            InvalidValueError: The position is beyond the end of the log, or the time has no time zone.
        """
        return EarlierBaseStore(self._ledger, self._index, self.ttl_config, self._items().as_of(moment))

    aas_of = threaded(as_of)

    def history(
        self, namespace: Sequence[str], key: str, *, limit: int = 10, before: int | None = None
    ) -> list[ItemVersion]:
        """Return the versions of an item, the newest first; see `ItemStore.history`."""
        return self._items().history(tuple(namespace), key, limit=limit, before=before)

    ahistory = threaded(history)

    def sweep_ttl(self) -> int:
        """
        Erase what has expired: the items, and with a whole ledger all states too.

        Returns:
            How many were erased.
        """
        user_id = self._ledger.user_id
        return StoredStates(lambda: self._ledger.blocking).clean(updated_before=None, user_id=user_id)

    asweep_ttl = threaded(sweep_ttl)

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> None:
        """
        Erase what has expired again and again, in a thread, until `stop_ttl_sweeper` or `close`. Does nothing while one runs.

        Args:
            sweep_interval_minutes: The pause. By default that of the store's `ttl`, or 5 minutes.

        Raises:
            InvalidValueError: It is no number above 0.
        """
        minutes: Any = sweep_interval_minutes or (self.ttl_config or {}).get("sweep_interval_minutes") or _SWEEP_MINUTES
        if self._sweeper is None:
            if isinstance(minutes, bool) or not isinstance(minutes, int | float) or minutes <= 0:
                msg = f"sweep_interval_minutes must be a number above 0, not {minutes!r}"
                raise InvalidValueError(msg)
            self._sweeper = Sweeper(self.sweep_ttl, every_s=float(minutes) * _MINUTE_S)

    def stop_ttl_sweeper(self) -> None:
        """Wait for a sweep under way to end, and stop; nothing where none was started."""
        sweeper, self._sweeper = self._sweeper, None
        if sweeper is not None:
            sweeper.close()

    def close(self) -> None:
        """Stop the sweeper, and close a ledger that was opened here; others stay open."""
        self.stop_ttl_sweeper()
        self._ledger.close()

    aclose = threaded(close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _items(self) -> ItemStore:
        return ItemStore(self._ledger.blocking)

    def _reader(self) -> ItemReader:
        return self._items()

    def _refresh(self, items: Iterable[Item]) -> None:
        store = self._items()
        for item in items:
            store.refresh(item.namespace, item.key)

    def _write(self, puts: Sequence[_Put], vectors: _Vectors) -> None:
        store = self._items()
        changes: list[ItemPut] = []
        for put in puts:
            if put.change.value is not None:
                extra = self._index.beside(put.fields, put.texts, vectors.of_texts)
                changes.append(msgspec.structs.replace(put.change, extra=extra or None))
            elif self._keep_deleted:
                changes.append(put.change)
        if changes:
            store.write(changes)
        if not self._keep_deleted:
            for put in puts:
                if put.change.value is None:
                    store.delete(put.change.namespace, put.change.key)


def _plain(value: Any) -> dict[str, Any]:
    """A value as JSON has it: tuples are lists, times are text."""
    if not isinstance(value, Mapping):
        msg = f"the value of an item must be a mapping, not {type(value).__name__}"
        raise InvalidValueError(msg)
    fields = dict(cast("Mapping[str, Any]", value))
    with suppress(TypeError, ValueError, RecursionError):
        plain: dict[str, Any] = _listed(msgspec.to_builtins(fields))
        return plain
    return fields  # what is wrong with it is said when it is written


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _listed(inner) for key, inner in cast("dict[Any, Any]", value).items()}
    return [_listed(inner) for inner in cast("list[Any]", value)] if isinstance(value, list | tuple) else value


def _paired(texts: Sequence[str], vectors: Sequence[Sequence[float]]) -> dict[str, Sequence[float]]:
    if len(texts) != len(vectors):
        msg = f"embed gave {len(vectors)} vectors for {len(texts)} texts"
        raise ConfigurationError(msg)
    return dict(zip(texts, vectors, strict=True))


def _shown(item: Item) -> StoredItem:
    return StoredItem(
        value=item.value,
        key=item.key,
        namespace=item.namespace,
        created_at=utc(item.created_at),
        updated_at=utc(item.updated_at),
    )


def _shown_with_score(ranked: Ranked) -> SearchItem:
    item = ranked.item
    return SearchItem(item.namespace, item.key, item.value, utc(item.created_at), utc(item.updated_at), ranked.score)
