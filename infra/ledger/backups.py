"""Backups of the log behind a ledger."""

import os
from typing import TYPE_CHECKING

from chatledger.domain.values import Progress, no_progress
from chatledger.projections.lmdb.system_errors import system_errors

from .port import LedgerPart

if TYPE_CHECKING:
    from ..store.backup.manifest import Backup


class BackupMethods(LedgerPart):
    """The part of a ledger that takes backups."""

    @system_errors("the backup cannot be taken")
    def backup(self, folder: str | os.PathLike[str], *, progress: Progress | None = None) -> "Backup":
        """
        Take a backup of the log into a folder, or bring the one there up to date, while others read and write.

        It has all commits up to one position, with their positions, as they are stored: what is encrypted or compressed stays
        so, and no key is in it. Every event is checked on the way. A second run into the same folder adds what is new, and
        removes what was deleted since. Killed at any point, it leaves the backup that was there before. Of a chat in quarantine it
        has what is left, and notes that it is not all.

        Args:
            folder: New, empty, or with an earlier backup of this log. It holds conversations: it gets mode 0700.
            progress: Called with (position reached, position to reach).

        Raises:
            ConfigurationError: The folder cannot be written, or holds something else, or the backup of another log.
            LedgerLockedError: Another process writes a backup into it.
            ChainIntegrityError, CorruptStateError: The log is not sound, or lost events since the last run. The backup stays
                as it was.
            LogUnavailableError: The log did not answer.

        Source: the log itself; the index is not asked. `chatledger.admin.check_backup` reads a backup back, `chatledger.admin.restore`
        makes a ledger of it.
        """
        from ..store.backup.writing import write_backup
        from ..store.quarantine import QuarantineRefusal

        store = self._store.whole("backup")
        store.check_open()
        refuse = store.index.refuse
        quarantined = refuse.streams if isinstance(refuse, QuarantineRefusal) else ()
        return write_backup(store.log, folder, quarantined=quarantined, progress=progress or no_progress)
