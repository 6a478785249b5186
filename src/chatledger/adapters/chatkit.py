"""ChatKit's store on a ledger. Needs `pip install 'chatledger[chatkit]'`."""

import warnings

from chatledger.domain.errors import ConfigurationError

try:
    with warnings.catch_warnings():  # ChatKit warns of its own classes when it is imported
        warnings.filterwarnings("ignore", "Direct usage of named widget classes", DeprecationWarning)
        from chatledger.infra.entrypoints.adapters.chatkit.store import LedgerStore
except ImportError as error:
    if (error.name or "").startswith("chatledger"):
        raise
    msg = f"chatledger.adapters.chatkit needs {error.name}: pip install 'chatledger[chatkit]'"
    raise ConfigurationError(msg) from error

__all__ = ["LedgerStore"]
