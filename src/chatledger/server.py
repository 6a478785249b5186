"""
The ledger over HTTP, for any ASGI server. Extra: `server`.

`create_app` makes the application that `chatledger serve` serves.
"""

from chatledger.infra.entrypoints.http.access import Authenticate, Principal
from chatledger.infra.entrypoints.http.app import create_app

__all__ = ["Authenticate", "Principal", "create_app"]
