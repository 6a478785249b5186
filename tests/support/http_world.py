"""A server on a real socket, in a thread, and clients of it."""

from collections.abc import Generator
from contextlib import contextmanager

import httpx
from starlette.applications import Starlette

from chatledger.infra.entrypoints.http.serving import serving

__all__ = ["API", "client_of", "serving"]

API = "/api/v1"


@contextmanager
def client_of(app: Starlette, **headers: str) -> Generator[httpx.Client]:
    """A client of the native API of an application that is served."""
    with serving(app) as url, httpx.Client(base_url=url + API, headers=headers, timeout=30) as client:
        yield client
