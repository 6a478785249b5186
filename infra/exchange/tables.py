"""
Rows for those who analyse: chats, messages, branches, runs, threads, labels and events as tables, in CSV, Parquet or Arrow.

A column has one type in all rows, and objects and lists are JSON in a text, so that DuckDB, pandas and a spreadsheet read each in one
line. Rows are made one chat at a time: a table is never in memory.
"""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from itertools import islice
from typing import IO, Any, Final

from chatledger.domain.chat.interchange import ImportedChat
from chatledger.domain.chat.recorded import Recorded
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.extras import needing
from chatledger.domain.forms.reading import role_of
from chatledger.domain.limits import check_choice
from chatledger.domain.values import Annotation
from chatledger.domain.wire import iso

from .jsonl import Exported

Row = dict[str, Any]
"""A row: the values by the names of columns, times in ms since the epoch; objects and lists are JSON texts."""

TABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "messages": {
        "chat_id": "text",
        "message_id": "text",
        "parent_id": "text",
        "place": "integer",
        "name": "text",
        "role": "text",
        "text": "text",
        "is_active": "flag",
        "created_at": "time",
        "type": "text",
        "form": "text",
        "sender_id": "text",
        "agent_id": "text",
        "reply_to": "text",
        "copied_from": "text",
        "is_stale": "flag",
        "is_hidden": "flag",
        "replaced_by": "text",
        "labels": "json",
        "notes": "json",
        "data": "json",
    },
    "chats": {
        "chat_id": "text",
        "user_id": "text",
        "title": "text",
        "created_at": "time",
        "updated_at": "time",
        "expires_at": "time",
        "active_branch": "text",
        "messages": "integer",
        "branches": "integer",
        "metadata": "json",
    },
    "branches": {
        "chat_id": "text",
        "branch_id": "text",
        "name": "text",
        "head_message_id": "text",
        "is_active": "flag",
        "created_at": "time",
    },
    "runs": {
        "chat_id": "text",
        "run_id": "text",
        "thread_id": "text",
        "assistant_id": "text",
        "runtime": "text",
        "status": "text",
        "trigger_message_id": "text",
        "message_id": "text",
        "checkpoint_id": "text",
        "created_at": "time",
        "updated_at": "time",
        "repeats": "text",
        "regeneration_id": "text",
        "references": "json",
        "metadata": "json",
    },
    "labels": {
        "chat_id": "text",
        "message_id": "text",
        "role": "text",
        "label": "text",
        "value": "json",
        "score": "number",
        "text": "text",
    },
    "threads": {
        "thread_id": "text",
        "user_id": "text",
        "namespace": "text",
        "checkpoint_id": "text",
        "parent_id": "text",
        "stored_at": "time",
        "runtime": "text",
        "run_id": "text",
        "node": "text",
        "is_final": "flag",
        "writes": "integer",
    },
    "events": {
        "position": "integer",
        "occurred_at": "time",
        "type": "text",
        "chat_id": "text",
        "version": "integer",
        "actor": "text",
        "event_id": "text",
        "correlation_id": "text",
        "causation_id": "text",
        "payload": "json",
    },
}
"""The columns of each table with their types: text, integer, number, flag, time, and json for an object or list in a text."""


def table_rows(exported: Iterable[Exported], table: str) -> Iterator[Row]:
    """
    Rows of what a ledger exports, one chat or thread after the other.

    Args:
        exported: `ledger.export_all()`, `ledger.export_user("ada")`, `[ledger.export_chat("trip")]`, or what `read_all` reads.
        table: `messages`, in log order, `place` counts in the chat and `is_active` says whether it is on the active branch; `chats`;
            `branches`; `runs`; `labels`: one for each field of an annotation's metadata, `score` where it is a number; `threads`: one
            for each checkpoint. For `events` see `event_rows`.

    Raises:
        InvalidValueError: There is no such table of what is exported.
    """
    check_choice(table, [name for name in TABLES if name != "events"], "table")
    of_chat = _OF_CHATS.get(table)

    def rows() -> Iterator[Row]:
        for each in exported:
            if isinstance(each, ImportedChat):
                if of_chat is not None:
                    yield from of_chat(each)
            elif table == "threads" and each.family == "thread":
                for version in each.versions:
                    place = {"namespace": version.line, "checkpoint_id": version.id, "parent_id": version.parent}

                    yield _row(
                        table, version, thread_id=each.id, user_id=each.owner, writes=len(version.writes), **place
                    )

    return rows()


def event_rows(events: Iterable[Recorded]) -> Iterator[Row]:
    """
    Rows of the table `events`.

    Args:
        events: `ledger.history()`, or a feed: `ledger.feed(name="warehouse", follow=False, auto_ack=False)`, which goes on where `ack`
            says.
    """
    for recorded in events:
        fields = recorded.to_dict()
        yield {name: _json(fields[name]) if name == "payload" else fields[name] for name in TABLES["events"]}


def _row(table: str, source: object, **own: Any) -> Row:
    """Return a row: its own values, and for other columns what the source has under their names."""
    return {name: own[name] if name in own else getattr(source, name) for name in TABLES[table]}


def _message_rows(chat: ImportedChat) -> Iterator[Row]:
    parents = {message.id: message.parent_id for message in chat.messages}
    active: set[str] = set()
    at = next((branch.head_message_id for branch in chat.branches if branch.is_active), None)
    while at is not None and at not in active:
        active.add(at)
        at = parents.get(at)
    for place, message in enumerate(chat.messages, 1):
        annotation = message.annotation or Annotation()
        yield _row(
            "messages",
            message,
            chat_id=chat.id,
            message_id=message.id,
            place=place,
            role=role_of(message.form or None, message.data, message.name),
            text=_whole(message.text),
            is_active=message.id in active,
            form=message.form or None,
            is_stale=annotation.stale,
            is_hidden=annotation.hidden,
            replaced_by=annotation.replaced_by,
            labels=_json(annotation.metadata) if annotation.metadata else None,
            notes=None if message.notes is None else _json(message.notes),
            data=_json(message.data),
        )


def _chat_rows(chat: ImportedChat) -> Iterator[Row]:
    yield _row(
        "chats",
        chat,
        chat_id=chat.id,
        active_branch=next((branch.name for branch in chat.branches if branch.is_active), None),
        messages=len(chat.messages),
        branches=len(chat.branches),
        metadata=None if chat.metadata is None else _json(chat.metadata),
    )


def _branch_rows(chat: ImportedChat) -> Iterator[Row]:
    for branch in chat.branches:
        yield _row("branches", branch, chat_id=chat.id, branch_id=branch.id)


def _run_rows(chat: ImportedChat) -> Iterator[Row]:
    for run in chat.runs:
        texts = {"references": _json(run.references), "metadata": _json(run.metadata)}
        yield _row("runs", run, chat_id=chat.id, **texts)


def _label_rows(chat: ImportedChat) -> Iterator[Row]:
    for message in chat.messages:
        for label, value in (message.annotation or Annotation()).metadata.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            yield {
                "chat_id": chat.id,
                "message_id": message.id,
                "role": role_of(message.form or None, message.data, message.name),
                "label": label,
                "value": _json(value),
                "score": float(value) if is_number else None,
                "text": _whole(message.text),
            }


_OF_CHATS: Final[Mapping[str, Callable[[ImportedChat], Iterator[Row]]]] = {
    "messages": _message_rows,
    "chats": _chat_rows,
    "branches": _branch_rows,
    "runs": _run_rows,
    "labels": _label_rows,
}


def write_csv(stream: IO[bytes], rows: Iterable[Row], table: str) -> int:
    """Write rows of a table as CSV with a heading, times in ISO 8601, and return how many there were; what is None is empty."""
    columns = TABLES[check_choice(table, [*TABLES], "table")]
    text = io.TextIOWrapper(stream, "utf-8", newline="", write_through=True)
    writer, count = csv.writer(text, lineterminator="\n"), 0
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row[name], kind) for name, kind in columns.items()])
        count += 1
    text.detach()  # else it would close what is another's
    return count


def _cell(value: Any, kind: str) -> Any:
    if kind == "time" and value is not None:
        return iso(value)
    return str(value).lower() if isinstance(value, bool) else value


def arrow_batches(rows: Iterable[Row], table: str, *, batch_rows: int = 4096) -> Iterator[Any]:
    """
    Arrow record batches of the rows of a table, at most so many rows in each. Needs `pip install 'chatledger[arrow]'`.

    Times are `timestamp[ms, UTC]`, and one beyond the year 9999 is none. DuckDB and Polars read a reader of them:
    `pyarrow.RecordBatchReader.from_batches(arrow_schema(table), batches)`.

    Raises:
        InvalidValueError: There is no such table.
        ConfigurationError: pyarrow is not installed.
    """
    schema, columns = arrow_schema(table), TABLES[table]
    pa = _pyarrow()

    def batches() -> Iterator[Any]:
        left = iter(rows)
        while part := [*islice(left, batch_rows)]:
            arrays = [
                pa.array([_arrow_value(row[name], kind) for row in part], field.type)
                for (name, kind), field in zip(columns.items(), schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return batches()


def arrow_schema(table: str) -> Any:
    """Return the Arrow schema of a table. Raises as `arrow_batches` does."""
    columns = TABLES[check_choice(table, [*TABLES], "table")]
    pa = _pyarrow()
    types = {
        "text": pa.string(),
        "json": pa.string(),
        "integer": pa.int64(),
        "number": pa.float64(),
        "flag": pa.bool_(),
        "time": pa.timestamp("ms", "UTC"),
    }
    return pa.schema([(name, types[kind]) for name, kind in columns.items()])


def _pyarrow(module: str = "pyarrow") -> Any:
    with needing("arrow", "a table"):
        return import_module(module)


_LAST_MS: Final = 253_402_300_800_000
"""The end of the year 9999: pandas and Python have no time beyond."""


def _arrow_value(value: Any, kind: str) -> Any:
    return None if kind == "time" and value is not None and not -_LAST_MS < value < _LAST_MS else value


def write_parquet(stream: IO[bytes], rows: Iterable[Row], table: str) -> int:
    """Write rows of a table as Parquet, compressed with zstd, and return how many there were. Raises as `arrow_batches` does."""
    schema = arrow_schema(table)
    count = 0
    with _pyarrow("pyarrow.parquet").ParquetWriter(stream, schema, compression="zstd") as writer:
        for batch in arrow_batches(rows, table, batch_rows=16_384):
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def _json(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:  # Python writes NaN, which JSON does not have, and DuckDB refuses
        value = json.loads(json.dumps(value), parse_constant=lambda _: None)
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        msg = "a value is nested too deeply to be written as JSON"
        raise InvalidValueError(msg) from None
    return _whole(text)


def _whole(text: str) -> str:
    """Return a text as UTF-8 has it: half an emoji, which JavaScript leaves where it cuts a text, is a question mark."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
