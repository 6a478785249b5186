"""The checks of messages that are saved and loaded whole tell what breaks them."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.support.adapters.plain import PlainDriver

from chatledger import AsyncLedger, Ledger
from chatledger.testing import check_values

RECORDED = [[{"role": "user", "content": "Where is the fado?"}, {"role": "assistant", "content": "In Alfama."}]]


class Forgetting(PlainDriver):
    """Loses what it does not know."""

    async def load_values(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> list[Any]:
        values = await super().load_values(ledger, conversation_id)
        return [{key: value for key, value in one.items() if key != "unknown"} for one in values]


class Humble(PlainDriver):
    """Says that it loses what it keeps."""

    losses: Mapping[str, str] = {"NaN": "it writes null"}


class Misspelt(PlainDriver):
    """Names a loss that there is not."""

    losses: Mapping[str, str] = {"nan": "it writes null"}


class Empty(PlainDriver):
    """Holds no value: what it is asked about is not there to be lost."""

    def message_with(self, value: Any) -> dict[str, Any]:
        del value
        return super().message_with(None)


class Repeating(PlainDriver):
    """Stores again what it is given again."""

    async def save_values(self, ledger: Ledger | AsyncLedger, conversation_id: str, values: Sequence[Any]) -> None:
        opened = ledger if isinstance(ledger, Ledger) else ledger.blocking()
        opened.upsert_chat(conversation_id, "")
        opened.append(conversation_id, list(values), form=self.form)


class Noting(PlainDriver):
    """Says that it notes each save."""

    notes_saves = True


class Other(PlainDriver):
    """Says that its messages are of another form."""

    form = "anthropic"

    async def save_values(self, ledger: Ledger | AsyncLedger, conversation_id: str, values: Sequence[Any]) -> None:
        await PlainDriver().save_values(ledger, conversation_id, values)


@pytest.mark.parametrize(
    ("driver", "rule"),
    [
        (Forgetting(), "messages come back with unknown fields"),
        (Humble(), "it keeps NaN"),
        (Misspelt(), "losses are of"),
        (Empty(), "messages come back with large integers"),
        (Repeating(), "saving what was loaded writes nothing"),
        (Noting(), "saving what was loaded writes nothing"),
        (Other(), "messages are stored in the form of the framework"),
    ],
    ids=lambda given: type(given).__name__ if isinstance(given, PlainDriver) else "",
)
def test_what_breaks_a_rule_is_told(driver: PlainDriver, rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        check_values(driver, recorded=RECORDED)


def test_a_recorded_conversation_comes_back_equal() -> None:
    check_values(PlainDriver(), recorded=RECORDED)

    class Rewriting(PlainDriver):
        async def load_values(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> list[Any]:
            values = await super().load_values(ledger, conversation_id)
            return [{**value, "content": str(value["content"]).replace("fado", "jazz")} for value in values]

    with pytest.raises(AssertionError, match="fado"):
        check_values(Rewriting(), recorded=RECORDED)
