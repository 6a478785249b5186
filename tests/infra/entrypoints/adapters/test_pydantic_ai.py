"""`LedgerConversationStore`: the contract of adapters, and the same answers as Pydantic AI's own store in memory."""

import pytest

pytest.importorskip("pydantic_ai")

from tests.support.adapters.plain import PlainDriver
from tests.support.adapters.pydantic_ai import PydanticAIDriver

from chatledger.testing import check_adapter, check_adapter_killed


def test_it_keeps_the_contract_of_adapters() -> None:
    """Also with conversations that something else wrote."""
    check_adapter(PydanticAIDriver(), others=[PlainDriver()])


@pytest.mark.soak
def test_what_was_acknowledged_outlives_a_kill() -> None:
    check_adapter_killed("tests.support.adapters.pydantic_ai:PydanticAIDriver", rounds=2)
