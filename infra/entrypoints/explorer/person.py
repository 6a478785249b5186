"""The page of a person: what a user owns, and where others name the user; handed over, or erased."""

from typing import Final

from chatledger.domain.proof.erasure_report import ErasureReport
from chatledger.domain.wire import Value

from ..http.routing import HttpCall
from .actions import ErasePerson
from .offers import Offer, deletion
from .page import ExplorerPage
from .proof import may_see_all, require_all


class PersonPage(Value, frozen=True, kw_only=True):
    """A person, and the report of a dry run of the erasure; None where nobody was named."""

    user: str
    may_see: bool
    report: ErasureReport | None
    actions: list[Offer]


def person(call: HttpCall, *, user: str = "") -> PersonPage:
    """Read what would be erased of a user. It reads the whole log, so only where a user is named."""
    if not user:
        return PersonPage(user="", may_see=may_see_all(call), report=None, actions=[])
    require_all(call)
    report = call.ledger.erase_user(user, dry_run=True)
    return PersonPage(user=user, may_see=True, report=report, actions=deletion(call, ErasePerson(user_id=user)))


PAGES: Final = (ExplorerPage("/person", person, "person.html"),)
