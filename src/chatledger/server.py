"""
The ledger over HTTP, for any ASGI server. Extra: `server`.

`create_app` makes the application that `chatledger serve` serves.
"""

from chatledger.infra.entrypoints.http.access import Authenticate, Authorize, Principal
from chatledger.infra.entrypoints.http.app import create_app
from chatledger.infra.entrypoints.http.guard import Limits
from chatledger.infra.entrypoints.http.keys import KeyFile

__all__ = ["Authenticate", "Authorize", "KeyFile", "Limits", "Principal", "create_app"]
