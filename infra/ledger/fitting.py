"""Reading the messages of a chain that fit a model: from its end backwards, until there are enough."""

from collections.abc import Sequence
from typing import NamedTuple

from chatledger.domain.chat.annotations import for_model, replacement
from chatledger.domain.context.fitting import Limit, Omitted, Window
from chatledger.domain.values import Message
from chatledger.projections.chat.chains import Place
from chatledger.projections.chat.reader import IndexedChat


class ReadForModel(NamedTuple):
    """The messages of a chain, those of them that a model gets, and what was left out to make them fit."""

    chain: list[Message]
    for_model: list[Message]
    omitted: Omitted | None
    tokens: int | None
    uncounted: int


def read_for_model(
    chat: IndexedChat, head: Place | None, *, fit: Limit | None, new: Sequence[Message] = (), always: str | None = None
) -> ReadForModel:
    """
    Read the chain up to a place, with new messages after it, as a model gets it; see `for_model`.

    Reads no more than four times what fits, however long the chain is.

    Args:
        chat: The chat.
        head: The last stored message; None where there is none.
        fit: The size that the messages may have; any when None.
        new: Messages that are not stored yet.
        always: A message that is given as it is.

    Raises:
        ContextTooLargeError: The newest turn does not fit.
    """
    length = 0 if head is None else chat.chains.depth(head) + 1
    taken = length if fit is None else min(length, fit.first_page)
    while True:
        stored = [] if head is None or not taken else chat.chains.chain(head, taken)
        shown = for_model(chat, stored, always=always) if stored else []
        messages, whole = [*shown, *new], taken == length
        window = Window(0, None, 0) if fit is None else fit.window(messages, is_whole=whole)
        if window is not None:
            break
        taken = min(taken * 2, length)  # doubled, so that what is read twice is no more than what is read once
    start = window.start
    chain = [*stored, *new]
    begin = 0 if whole and start == 0 else _begin(chat, stored, shown, start)
    before = length - len(stored) + begin
    omitted: Omitted | None = None
    if before and head is not None:
        last_id = chain[begin - 1].id if begin else chain[begin].parent_id
        assert last_id is not None, "a message before it is left out"
        root_id = chat.chains.id_at(chat.chains.ancestor(head, 0))
        omitted = Omitted(count=before, first_id=root_id, last_id=last_id)
    elif before:
        omitted = Omitted(count=before, first_id=chain[0].id, last_id=chain[begin - 1].id)
    return ReadForModel(chain[begin:], messages[start:], omitted, window.tokens, window.uncounted)


def _begin(chat: IndexedChat, stored: Sequence[Message], shown: Sequence[Message], start: int) -> int:
    """Return the index in the chain at which the shown messages from `start` on begin; a replacement stands for what it replaces."""
    if start >= len(shown):
        return len(stored) + start - len(shown)
    own = {message.id for message in stored}
    at = len(stored)
    for message in reversed(shown[start:]):
        at -= 1
        while stored[at].id != message.id and (message.id in own or replacement(chat, stored[at].id) != message.id):
            at -= 1
    return at
