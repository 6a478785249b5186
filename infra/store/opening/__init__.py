"""The default location, the stream and the environment variable of a ledger, for programs that start without what opens it."""

from typing import Final

DEFAULT_LOCATION: Final = "./chatledger-data"
STREAM: Final = "chatledger"
KEY_ENV: Final = "CHATLEDGER_ENCRYPTION_KEY"
"""The environment variable that `Encryption.from_environment` reads."""
