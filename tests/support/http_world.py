"""A server on a real socket, in a thread, and clients of it."""

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

import httpx
from starlette.applications import Starlette

from chatledger.infra.entrypoints.http.serving import Server, configure, listen

API = "/api/v1"


@contextmanager
def serving(app: Starlette, **options: int) -> Generator[str]:
    """Serve an application; gives its address."""
    listening = listen("127.0.0.1", 0)
    server = Server(configure(app, **options), app)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.handle_exit(2, None)
        thread.join()
        listening.close()


@contextmanager
def client_of(app: Starlette, **headers: str) -> Generator[httpx.Client]:
    """A client of the native API of an application that is served."""
    with serving(app) as url, httpx.Client(base_url=url + API, headers=headers, timeout=30) as client:
        yield client
