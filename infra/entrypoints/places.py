"""Places in a chat that people name: a branch, a checkpoint, or a message."""

from typing import Any, NamedTuple

from chatledger.domain.errors import NotFoundError

from ..ledger.ledger import Ledger
from ..ledger.view import LedgerView

_SHOWN = 5


class Place(NamedTuple):
    """A branch, checkpoint or message, and the message that it points to."""

    kind: str
    name: str
    message_id: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values: `{"branch": "main", "head_message_id": "m1"}`."""
        return {self.kind: self.name, "head_message_id": self.message_id}


def find_place(ledger: Ledger | LedgerView, chat_id: str, name: str) -> Place:
    """Return the branch, checkpoint or message of a name; a message by its id. Several that point to different ones are none."""
    branches = ledger.list_branches(chat_id)
    found = [Place("branch", name, branch.head_message_id) for branch in branches if branch.name == name]
    checkpoint = ledger.get_checkpoint(chat_id, name)
    if checkpoint is not None:
        found.append(Place("checkpoint", name, checkpoint.message_id))
    message = ledger.get_message(name)
    if message is not None and message.chat_id == chat_id:
        found.append(Place("message", name, name))
    if not found:
        names = [branch.name for branch in branches]
        names += [checkpoint.name for checkpoint in ledger.list_checkpoints(chat_id)]
        shown = ", ".join(map(repr, names[:_SHOWN]))
        msg = f"chat {chat_id!r} has no branch, checkpoint or message {name!r}; it has {shown}"
        raise NotFoundError(msg + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""))
    if len({place.message_id for place in found}) > 1:
        meanings = " and ".join(f"a {place.kind} at {place.message_id}" for place in found)
        msg = f"{name!r} is {meanings}; name one of them by the id of its message"
        raise NotFoundError(msg)
    return found[0]
