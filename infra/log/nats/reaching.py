"""Whether a server and its JetStream answer at all, told within seconds: for people who wait, and may have mistyped the address."""

import socket
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final
from urllib.parse import urlsplit

from eventsourcing.persistence import OperationalError, PersistenceError

from chatledger.domain.errors import LogUnavailableError

from .client import JetStreamClient
from .endpoint import Endpoint
from .errors import ApiError, NoAnswerError

_PORT: Final = 4222
PATIENCE_S: Final = 2.0


def require_jetstream(connect: Callable[[], Endpoint], stream: str, *, timeout_s: float = PATIENCE_S) -> None:
    """
    Return as soon as one of the servers greets, and its JetStream says anything of a stream, also that there is none.

    Args:
        connect: Names the servers and the login.
        stream: The name of the stream.
        timeout_s: How long to wait for both together; a server that greets late gets half of it more.

    Raises:
        LogUnavailableError: No server greets, or JetStream does not answer. Refusals are left to whoever opens the log.
    """
    ends_at = time.monotonic() + timeout_s
    endpoint = connect()
    require_answer(endpoint, timeout_s=timeout_s)
    # A server may greet, and have no JetStream, or one that is frozen: both would look like a slow log.
    client = JetStreamClient(connect, timeout_s=max(timeout_s / 2, ends_at - time.monotonic()))
    try:
        client.api(f"STREAM.INFO.{stream}", None, dict[str, Any], client.deadline())
    except OperationalError as error:
        # JetStream has answered, if only that there is no such stream.
        if error.__cause__ is None or isinstance(error.__cause__, ApiError):
            return
        server = ", ".join(url.partition("://")[2] for url in endpoint.urls)
        if isinstance(error.__cause__, NoAnswerError):
            msg = f"the NATS server at {server} has no JetStream, which keeps the log: start it with --jetstream"
        else:
            msg = f"the NATS server at {server} greets, but its JetStream does not answer. Try again, and look at the server's log"
        raise LogUnavailableError(msg) from error
    except PersistenceError:
        return
    finally:
        client.close()


def require_answer(endpoint: Endpoint, *, timeout_s: float = PATIENCE_S) -> None:
    """
    Return as soon as one of the servers greets as NATS servers do. Nothing is sent, and nobody logs in.

    Args:
        endpoint: The servers.
        timeout_s: How long to wait for all of them together.

    Raises:
        LogUnavailableError: None does. It says of each why, as far as that is known.
    """
    ends_at = time.monotonic() + timeout_s
    faults = dict.fromkeys(endpoint.urls, f"no answer within {timeout_s:g} s")
    answers: SimpleQueue[tuple[str, str | None]] = SimpleQueue()

    def look(url: str) -> None:
        answers.put((url, _fault(url, ends_at, is_silent=endpoint.tls_first)))

    for url in endpoint.urls:
        # Looking up a name has no timeout of its own, so each server has a thread, for which nobody waits in the end.
        Thread(target=look, args=(url,), daemon=True).start()
    for _ in endpoint.urls:
        try:
            url, fault = answers.get(timeout=max(ends_at - time.monotonic(), 0.001) + 0.1)
        except Empty:
            break
        if fault is None:
            return
        faults[url] = fault
    what = "; ".join(f"{url.partition('://')[2]}: {fault}" for url, fault in faults.items())
    msg = f"no NATS server answers at {what}. Start it, or correct the location"
    raise LogUnavailableError(msg)


def _fault(url: str, ends_at: float, *, is_silent: bool) -> str | None:
    """Why a server cannot be used; None when it greets, or is to be silent until TLS is set up."""
    parts = urlsplit(url)
    is_taken = False
    try:
        with socket.create_connection((parts.hostname, parts.port or _PORT), timeout=_left(ends_at)) as connection:
            if is_silent:
                return None
            is_taken = True
            connection.settimeout(_left(ends_at))
            return None if connection.recv(1) == b"I" else "what listens there is no NATS server"
    except TimeoutError:
        return "it takes the connection, and then says nothing" if is_taken else "no answer in time"
    except ConnectionRefusedError:
        return "nobody listens there"
    except socket.gaierror:
        return "the name of the host is not known"
    except OSError as error:
        return error.strerror or str(error)


def _left(ends_at: float) -> float:
    return max(ends_at - time.monotonic(), 0.001)
