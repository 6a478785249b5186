"""Names that opening goes by."""

from typing import Final

DEFAULT_LOCATION: Final = "./chatledger-data"
STREAM: Final = "chatledger"
KEY_ENV: Final = "CHATLEDGER_ENCRYPTION_KEY"
"""The environment variable that `Encryption.from_environment` reads."""
