"""Making a segment of the messages that wait."""

from ..lmdb.environment import Transaction, drop_prefixed
from ..lmdb.tables import Tables
from .manifest import PENDING, Totals, manifest_of, put_manifest
from .merging import plan
from .pending import Pending
from .segments import pack_segment, write_segment
from .waiting import rows_of


def flush(txn: Transaction, tables: Tables, totals: Totals) -> Totals:
    """Make a segment of the messages that wait; returns the counts after it, which are left to be put."""
    manifest = manifest_of(txn, tables)
    documents, postings = Pending(rows_of(txn, tables)).segment()
    drop_prefixed(txn, tables.search, PENDING)
    write_segment(txn, tables, manifest, pack_segment(documents, postings))
    plan(manifest)
    tables.flushed += 1
    put_manifest(txn, tables, manifest)
    return totals._replace(pending=0, pending_bytes=0, next_row=0)
