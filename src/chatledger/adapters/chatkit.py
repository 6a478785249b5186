"""ChatKit's store on a ledger. Needs `pip install 'chatledger[chatkit]'`."""

import warnings

from chatledger.domain import extras as _extras

with _extras.needing("chatkit", __name__), warnings.catch_warnings():
    # ChatKit warns of its own classes when it is imported.
    warnings.filterwarnings("ignore", "Direct usage of named widget classes", DeprecationWarning)
    from chatledger.infra.entrypoints.adapters.chatkit import LedgerStore

__all__ = ["LedgerStore"]
