"""The native API: everything a ledger has, at `/api/v1`."""

from typing import Final

from ..routing import Route
from . import branches, chats, history, live, messages, pulls, runs, search, states, upkeep

PREFIX: Final = "/api/v1"

_ROUTES: Final[dict[str, list[Route]]] = {
    area: routes
    for module in (chats, messages, branches, search, runs, live, history, pulls, states, upkeep)
    for area, routes in module.ROUTES.items()
}
_ORDER: Final = (
    *("chats", "messages", "branches", "checkpoints", "members", "annotations", "search", "rows", "runs"),
    *("regenerations", "live", "interchange", "history", "feeds", "proof", "pulls", "states", "threads", "upkeep"),
)
AREAS: Final = {area: _ROUTES[area] for area in _ORDER}
"""The routes by area, in the order of the reference."""
ROUTES: Final = [route for routes in AREAS.values() for route in routes]
