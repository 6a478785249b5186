"""Keys and tokens in transcripts, told by shapes that nothing else has: what a tool printed is mostly code, which must stay as it is."""

import re
from typing import Final

_SHAPES: Final = (
    ("private-key", r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]*-----|\Z)"),
    ("aws", r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    ("anthropic", r"\bsk-ant-[A-Za-z0-9_-]{20,}"),
    ("stripe", r"\b[sr]k_live_[A-Za-z0-9]{16,}"),
    ("openai", r"\bsk-(?!ant-)(?=[A-Za-z0-9_-]*[0-9])[A-Za-z0-9_-]{20,}"),
    ("github", r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,})"),
    ("gitlab", r"\bglpat-[A-Za-z0-9_-]{20,}"),
    ("npm", r"\bnpm_[A-Za-z0-9]{36}\b"),
    ("pypi", r"\bpypi-[A-Za-z0-9_-]{50,}"),
    ("huggingface", r"\bhf_[A-Za-z0-9]{30,}"),
    ("sendgrid", r"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
    ("slack", r"\bxox[baprs]-[A-Za-z0-9-]{10,}"),
    ("google", r"\bAIza[A-Za-z0-9_-]{35}"),
)
_ANY: Final = re.compile("|".join(f"(?P<k{number}>{shape})" for number, (_, shape) in enumerate(_SHAPES)), re.DOTALL)


def kinds_in(text: str) -> list[str]:
    """Return the kinds of the keys and tokens in a text, such as `github`, in order."""
    return [_kind(match) for match in _ANY.finditer(text)]


def _kind(match: re.Match[str]) -> str:
    return _SHAPES[int((match.lastgroup or "k0")[1:])][0]


def without_keys(text: str) -> str:
    """Return a text in which each key or token is its kind alone, such as `[redacted:github]`."""
    return _ANY.sub(lambda match: f"[redacted:{_kind(match)}]", text)
