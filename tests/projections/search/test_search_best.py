"""The best few of many matches are the first few of all."""

import random

import pytest

import chatledger
from chatledger import NewMessage


@pytest.mark.soak
def test_the_best_of_many_matches_are_the_first_of_all() -> None:
    """However many are asked for, and where many of them rank alike."""
    draw = random.Random(1)
    texts = [" ".join(["fox"] * draw.choice([1, 1, 1, 2, 3]) + ["dog"] * draw.randrange(4)) for _ in range(3000)]
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("chat", "ada")
        for start in range(0, len(texts), 500):
            batch = [NewMessage("user", text, created_at=draw.randrange(50)) for text in texts[start : start + 500]]
            ledger.append("chat", batch)
        every = [(hit.message.id, hit.rank) for hit in ledger.search("fox", limit=None)]

        assert len(texts) == len(every)
        assert every == sorted(every, key=lambda one: one[1])
        for limit in (1, 20, 46, 47, 1000, 2999, 3000, 4000):
            assert every[:limit] == [(hit.message.id, hit.rank) for hit in ledger.search("fox", limit=limit)]
            assert every[7 : 7 + limit] == [
                (hit.message.id, hit.rank) for hit in ledger.search("fox", limit=limit, offset=7)
            ]
