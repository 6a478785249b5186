"""Limits of a server, for each user: requests per second, open streams, size of headers."""

import time
from collections import Counter
from collections.abc import Generator, Hashable
from contextlib import contextmanager
from typing import Annotated, Final

import msgspec

from chatledger.domain.errors import ConfigurationError

from .problems import RequestError

_MAX_BUCKETS: Final = 10_000


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """
    Limits of one user in one process of a server.

    Args:
        requests_per_second: How many requests on average; twice as many, and at least ten, at once. Any number when None.
        streams_per_user: How many streams and other answers without a length may be open, such as those that wait for a run, and
            how many live streams may be written.
        header_bytes: The size of all headers of a request.
        lag_events: How many events the index may be behind the log while the server calls itself ready.
    """

    requests_per_second: Annotated[float, msgspec.Meta(gt=0)] | None = None
    streams_per_user: Annotated[int, msgspec.Meta(ge=1)] = 256
    header_bytes: Annotated[int, msgspec.Meta(ge=1024)] = 32 << 10
    lag_events: Annotated[int, msgspec.Meta(ge=0)] = 1000


def limits_of(**options: float | None) -> Limits:
    """
    Return limits from options; those that are None are as they are by default.

    Raises:
        ConfigurationError: One of them is out of its range.
    """
    try:
        return msgspec.convert({name: value for name, value in options.items() if value is not None}, Limits)
    except msgspec.ValidationError as error:
        msg = f"limits cannot be like this: {error}"
        raise ConfigurationError(msg) from error


class Allowances:
    """Use of the limits by each user, in this process."""

    def __init__(self, limits: Limits) -> None:
        self.limits: Final = limits
        self._buckets: dict[Hashable, tuple[float, float]] = {}
        self._streams: Counter[Hashable] = Counter()

    def __len__(self) -> int:
        """Number of users whose requests are counted."""
        return len(self._buckets)

    def take_request(self, caller: Hashable) -> None:
        """
        Count a request.

        Raises:
            RequestError: It is one too many now.
        """
        rate = self.limits.requests_per_second
        if rate is None:
            return
        size, now = max(10.0, 2 * rate), time.monotonic()
        if len(self._buckets) >= _MAX_BUCKETS:
            # A full bucket is as good as none: memory is only held for users that asked just now.
            self._buckets = {
                other: (tokens, at)
                for other, (tokens, at) in self._buckets.items()
                if tokens + (now - at) * rate < size
            }
        tokens, at = self._buckets.get(caller, (size, now))
        tokens = min(size, tokens + (now - at) * rate)
        if tokens < 1:
            self._buckets[caller] = tokens, now
            msg = f"more than {rate:g} requests a second; wait, then go on"
            wait_s = max(1, round((1 - tokens) / rate))  # whole seconds, as RFC 9110 (10.2.3) has them
            raise RequestError(429, msg, name="TooManyRequests", headers={"Retry-After": str(wait_s)})
        self._buckets[caller] = tokens - 1, now

    @contextmanager
    def stream(self, caller: Hashable) -> Generator[None]:
        """
        Count a stream as long as it is open.

        Raises:
            RequestError: It is one too many.
        """
        most = self.limits.streams_per_user
        if self._streams[caller] >= most:
            msg = f"{most} streams are open; close one first"
            raise RequestError(429, msg, name="TooManyStreams", headers={"Retry-After": "5"})
        self._streams[caller] += 1
        try:
            yield
        finally:
            self._streams[caller] -= 1
            if not self._streams[caller]:
                del self._streams[caller]
