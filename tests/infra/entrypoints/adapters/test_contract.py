"""The contract of adapters, held against the ledger itself."""

from tests.support.adapters.plain import PlainDriver

from chatledger.testing import check_adapter, check_adapter_killed


def test_the_ledger_itself_keeps_the_contract() -> None:
    check_adapter(PlainDriver(), others=[PlainDriver()])


def test_the_ledger_itself_outlives_a_kill() -> None:
    check_adapter_killed("tests.support.adapters.plain:PlainDriver", rounds=2)
