"""The number of tokens in a context, and its price."""

from chatledger.domain.context.estimate import (
    Estimate,
    FragmentEstimate,
    Limits,
    ModelInfo,
    Models,
    Tokenizer,
    estimate,
    rough_tokens,
)
from chatledger.infra.ledger.engine.tokenizers import Encoding, tokenizer, tokens_of

__all__ = [
    "Encoding",
    "Estimate",
    "FragmentEstimate",
    "Limits",
    "ModelInfo",
    "Models",
    "Tokenizer",
    "estimate",
    "rough_tokens",
    "tokenizer",
    "tokens_of",
]
