"""Patterns of keys and tokens, as Yelp's detect-secrets keeps them, and a few that it lacks."""

import re
from collections.abc import Callable
from typing import Any, Final

from chatledger.domain.extras import needing
from chatledger.domain.forms.items import REDACTED

_SKIPPED: Final = {"IPPublicDetector", "PrivateKeyDetector"}
"""An address is no secret; and of a private key that library knows the first line only."""
_OWN: Final = (
    # The whole key, or what there is of it: a live stream waits for its end.
    re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]*-----|\Z)", re.DOTALL),
    re.compile(r"\beyJ[A-Za-z0-9_=-]+\.[A-Za-z0-9_=-]+(?:\.[A-Za-z0-9_.+/=-]*)?"),  # a JWT with its signature
    re.compile(r"\bsk-[A-Za-z0-9_-]{20,}"),  # OpenAI, Anthropic and others, in the lengths of today
    re.compile(r"\bAIza[A-Za-z0-9_-]{35}"),
    re.compile(r"\bgithub_pat_[A-Za-z0-9_]{22,}"),
    re.compile(r"\bhf_[A-Za-z0-9]{30,}"),
)


def secrets() -> Callable[[str], str]:
    """
    Return a function that takes keys and tokens out of a text: of clouds, code hosts, payment and chat services, language models, and JWTs.

    For `chatledger.open(redact=...)`. Each is replaced by `[redacted]`. The patterns are those of detect-secrets, without its guesses by
    keyword and entropy, which take ordinary text for secrets; and private keys in PEM.

    Raises:
        ConfigurationError: detect-secrets is missing; install `chatledger[secrets]`.
    """
    with needing("secrets", "a pattern of secrets"):
        from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
        from detect_secrets.plugins.base import RegexBasedDetector
    # Its annotations do not say what the patterns match.
    detectors: dict[str, Any] = get_mapping_from_secret_type_to_class()
    patterns: list[re.Pattern[str]] = [*_OWN]
    for detector in detectors.values():
        if issubclass(detector, RegexBasedDetector) and detector.__name__ not in _SKIPPED:
            plugin: Any = detector()
            patterns += plugin.denylist

    def without_secrets(text: str) -> str:
        for pattern in patterns:
            text = pattern.sub(REDACTED, text)
        return text

    return without_secrets
