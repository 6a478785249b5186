"""The clock: the only place that reads the time of events and of rows."""

import time


def clock_ms() -> int:
    """The time, in milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000
