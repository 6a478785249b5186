"""Messages of APIs, as drafts of a form."""

from typing import Any

import msgspec

from chatledger.domain.values import NewMessage
from chatledger.infra.ledger.drafts import as_draft


def in_form(form: str, message: Any, message_id: str | None = None) -> NewMessage:
    """The draft of a message of a form, as `append` makes it; under that id, if one is given."""
    draft = as_draft(message, form=form)
    return draft if message_id is None else msgspec.structs.replace(draft, id=message_id)
