"""Remotes of a ledger: added, removed and listed."""

from functools import partial

import msgspec

from chatledger.domain.chat.events import Body
from chatledger.domain.errors import InvalidValueError, NotFoundError
from chatledger.domain.holds import LEDGER_OWNER
from chatledger.domain.limits import sought_id
from chatledger.domain.remotes import REMOTES, Remote, check_remote, remote_key
from chatledger.domain.versioned.numbered import VALUE, StateDraft, decide_end_item, decide_put_state
from chatledger.domain.versioned.serials import encoded
from chatledger.projections.log.holds import own_value
from chatledger.projections.log.kinds import ITEMS
from chatledger.projections.versioned.lists import living_items
from chatledger.projections.versioned.reader import IndexedVersioned

from ..store.opening.presence import without_secrets
from .port import LedgerPart


class RemoteMethods(LedgerPart):
    """The part of a ledger that knows other ledgers by names."""

    def add_remote(
        self, name: str, location: str, *, own_name: str | None = None, key_env: str | None = None
    ) -> Remote:
        """
        Give another ledger a name, or the name another location: `chatledger pull office` pulls from it.

        Args:
            name: The name.
            location: A location of a ledger, the address of a `chatledger serve`, or the path of a bundle, without a password or key.
            own_name: What this ledger is called there, where it pushes.
            key_env: The environment variable with the key for a server; `CHATLEDGER_SERVER_KEY` without it.

        Raises:
            AccessDeniedError: This ledger is limited to a user.
            InvalidValueError: A value breaks a rule, or the location has a secret, which would stay on the log.
        """
        store = self._store.whole("add_remote")
        remote = check_remote(Remote(name=name, location=location, own_name=own_name, key_env=key_env))
        if without_secrets(location) != location:
            msg = f"the location {without_secrets(location)} has a secret, which would stay on the log: give it in the environment"
            raise InvalidValueError(msg)
        store.execute(ITEMS, remote_key(name), partial(_decide_add, remote))
        return remote

    def remove_remote(self, name: str) -> bool:
        """
        Forget the name of another ledger; what was pulled stays.

        Returns:
            Whether there was one.

        Raises:
            AccessDeniedError: This ledger is limited to a user.
        """
        key = remote_key(name)
        return bool(
            self._store.whole("remove_remote").execute(ITEMS, key, lambda state, now: decide_end_item(state, key, now))
        )

    def remotes(self) -> list[Remote]:
        """
        The other ledgers that this one knows, by name.

        Raises:
            AccessDeniedError: This ledger is limited to a user.

        Source: the LMDB index. Costs O(remotes).
        """
        with self._store.whole("remotes").snapshot() as snapshot:
            listed = living_items(snapshot.txn, snapshot.tables, LEDGER_OWNER, (REMOTES,))
            remotes = [own_value(snapshot.stream(ITEMS, record.key), Remote) for record in listed]
        return sorted((remote for remote in remotes if remote is not None), key=lambda remote: remote.name)

    def remote(self, name: str) -> Remote:
        """
        The other ledger of a name, which `chatledger.admin.open_remote` opens.

        Raises:
            AccessDeniedError: This ledger is limited to a user.
            NotFoundError: There is none of that name.

        Source: the LMDB index.
        """
        sought = sought_id(name, "name")
        for remote in self.remotes():
            if remote.name == sought:
                return remote
        msg = f"there is no remote {name!r}; give it a location first"
        raise NotFoundError(msg)


def _decide_add(remote: Remote, state: IndexedVersioned, now: int) -> list[Body]:
    if own_value(state, Remote) == remote:
        return []
    value = {VALUE: encoded(msgspec.to_builtins(remote))}
    return decide_put_state(state, StateDraft(state_id=remote_key(remote.name), values={**value}), now)
