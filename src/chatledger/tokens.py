"""The number of tokens in a context, its price, and what a provider's cache can keep of it."""

from chatledger.domain.context.caching import Breakpoint, CachePlan, CacheTurn, cache_report
from chatledger.domain.context.estimate import (
    Estimate,
    FragmentEstimate,
    ModelInfo,
    ModelLimits,
    Models,
    Tokenizer,
    estimate,
    rough_tokens,
)
from chatledger.domain.context.fitting import Fit, Omitted
from chatledger.infra.ledger.tokenizers import Encoding, tokenizer, tokens_of

__all__ = [
    "Breakpoint",
    "CachePlan",
    "CacheTurn",
    "Encoding",
    "Estimate",
    "Fit",
    "FragmentEstimate",
    "ModelInfo",
    "ModelLimits",
    "Models",
    "Omitted",
    "Tokenizer",
    "cache_report",
    "estimate",
    "rough_tokens",
    "tokenizer",
    "tokens_of",
]
