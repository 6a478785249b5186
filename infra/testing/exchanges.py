"""Turns of a stored conversation, to be answered again in tests."""

from os import PathLike, fspath

from chatledger.domain.chat.turns import Exchange, exchanges_of

from ..exchange.readers import read_chats
from ..ledger.open import open as open_ledger


def recorded_exchanges(path: str | PathLike[str], *, branch: str | None = None) -> list[Exchange]:
    """
    The turns of the conversations in a file, such as one that `chatledger export trip -o trip.jsonl` wrote: cases of a regression test.

    Example:
        @pytest.mark.parametrize("turn", recorded_exchanges("tests/trip.jsonl"), ids=lambda turn: turn.said[0].id)
        def test_the_assistant_still_calls_the_tool(turn):
            answer = my_assistant(turn.messages, call_tool=turn.tool_result)
            assert "Riga" in answer

    Args:
        path: The file, of any format that `chatledger.importers.read_chats` knows.
        branch: The branch of each; the active one when None.

    Raises:
        InvalidValueError: A record of it is broken.
    """
    with open_ledger("memory:") as ledger:
        chats = read_chats(fspath(path), strict=True, on_problem=lambda _: None)  # strict raises in its place
        ids = [ledger.import_chat(chat).chat_id for chat in chats]
        return [turn for chat_id in ids for turn in exchanges_of(ledger.get_messages(chat_id, branch=branch))]
