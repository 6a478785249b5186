"""Values of replays and comparisons: what a runner gets and returns, and what `Ledger.replay` and `Ledger.compare` answer."""

from chatledger.domain.chat.turns import Exchange, exchanges_of
from chatledger.infra.ledger.replays import ComparedAnswer, ComparedTurn, Replay, ReplayAnswer

__all__ = ["ComparedAnswer", "ComparedTurn", "Exchange", "Replay", "ReplayAnswer", "exchanges_of"]
