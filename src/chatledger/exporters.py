"""Tables for those who analyse, in CSV, Parquet and Arrow; and conversations for those who train models on them or read them."""

from chatledger.infra.exchange.conversations import CONVERSATION_FORMATS, write_conversations
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
    "table_rows",
    "write_conversations",
    "write_csv",
    "write_parquet",
]
