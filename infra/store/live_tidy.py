"""Dropping live streams whose time is over."""

import logging
import time
from typing import Final

from chatledger.domain.errors import AccessDeniedError

from ..log.live import LiveStreams

_EVERY_S: Final = 60.0
_logger = logging.getLogger(__name__)


class LiveTidy:
    """Drops live streams that ended, or were interrupted, long enough ago: once a minute at most, where the login may."""

    def __init__(self, streams: LiveStreams) -> None:
        self._streams = streams
        self._next_s: float | None = 0.0

    def run(self) -> None:
        """Drop them, if it is time to."""
        if self._next_s is None or time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + _EVERY_S
        try:
            self._streams.drop_due()
        except AccessDeniedError as error:
            self._next_s = None
            _logger.info("live streams whose time is over are left to those who may drop them: %s", error)
