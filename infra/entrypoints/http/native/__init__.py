"""The native API: everything a ledger has, at `/api/v1`."""

from typing import Final

from ..routing import Route
from . import branches, chats, checkpoints, messages, search

PREFIX: Final = "/api/v1"

ROUTES: Final[list[Route]] = [
    *chats.ROUTES,
    *messages.ROUTES,
    *branches.ROUTES,
    *checkpoints.ROUTES,
    *search.ROUTES,
]
