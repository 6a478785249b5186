"""`LedgerConversationStore`: the contract of adapters, and the same answers as Pydantic AI's own store in memory."""

import pytest

pytest.importorskip("pydantic_ai")


from chatledger.testing import check_adapter_killed


@pytest.mark.soak
def test_what_was_acknowledged_outlives_a_kill() -> None:
    check_adapter_killed("tests.support.adapters.pydantic_ai:PydanticAIDriver", rounds=2)
