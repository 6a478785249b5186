"""Tables for those who analyse, in CSV, Parquet and Arrow; conversations for those who train models on them or read them; and spans of OpenTelemetry."""

from chatledger.infra.exchange.conversations import CONVERSATION_FORMATS, write_conversations
from chatledger.infra.exchange.spans import spans_of
from chatledger.infra.exchange.tables import (
    TABLES,
    arrow_batches,
    arrow_schema,
    event_rows,
    table_rows,
    write_csv,
    write_parquet,
)

__all__ = [
    "CONVERSATION_FORMATS",
    "TABLES",
    "arrow_batches",
    "arrow_schema",
    "event_rows",
    "spans_of",
    "table_rows",
    "write_conversations",
    "write_csv",
    "write_parquet",
]
