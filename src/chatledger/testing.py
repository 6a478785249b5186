"""
Contract checks for your own log, projection, saver, adapter or form of messages, and what to try them with; turns of a stored
conversation as cases of a test.

They are plain functions, which any test runner can call; this module needs none. With pytest there is a fixture besides,
`memory_ledger`: an empty ledger in memory, closed after the test.
"""

from chatledger.infra.log.memory import MemoryLog
from chatledger.infra.log.port import EventLog, LostRaceError
from chatledger.infra.testing.adapters import (
    AdapterDriver,
    Turn,
    ValuesDriver,
    check_adapter,
    check_adapter_killed,
    check_values,
)
from chatledger.infra.testing.exchanges import recorded_exchanges
from chatledger.infra.testing.forms import check_form
from chatledger.infra.testing.logs import check_log
from chatledger.infra.testing.savers import check_saver
from chatledger.infra.testing.story import check_projection, tell_story

__all__ = [
    "AdapterDriver",
    "EventLog",
    "LostRaceError",
    "MemoryLog",
    "Turn",
    "ValuesDriver",
    "check_adapter",
    "check_adapter_killed",
    "check_form",
    "check_log",
    "check_projection",
    "check_saver",
    "check_values",
    "recorded_exchanges",
    "tell_story",
]
