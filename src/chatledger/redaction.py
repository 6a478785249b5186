"""Patterns of keys and tokens, for `chatledger.open(redact=...)`."""

from chatledger.domain.forms.items import REDACTED
from chatledger.infra.store.redactor import Redact
from chatledger.infra.store.secret_patterns import secrets

__all__ = ["REDACTED", "Redact", "secrets"]
