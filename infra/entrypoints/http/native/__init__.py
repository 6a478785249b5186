"""The native API: everything a ledger has, at `/api/v1`."""

from typing import Final

from ..routing import Route
from . import (
    annotations,
    branches,
    chats,
    checkpoints,
    feeds,
    history,
    interchange,
    live,
    members,
    messages,
    proof,
    regenerations,
    rows,
    runs,
    search,
    states,
    threads,
    upkeep,
)

PREFIX: Final = "/api/v1"

ROUTES: Final[list[Route]] = [
    *chats.ROUTES,
    *messages.ROUTES,
    *branches.ROUTES,
    *checkpoints.ROUTES,
    *members.ROUTES,
    *annotations.ROUTES,
    *search.ROUTES,
    *rows.ROUTES,
    *runs.ROUTES,
    *regenerations.ROUTES,
    *live.ROUTES,
    *interchange.ROUTES,
    *history.ROUTES,
    *feeds.ROUTES,
    *proof.ROUTES,
    *states.ROUTES,
    *threads.ROUTES,
    *upkeep.ROUTES,
]
