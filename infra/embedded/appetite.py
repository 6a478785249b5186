"""How much memory a server takes to read a log: a flipped bit in a number of its files can make it take all there is."""

import os
from pathlib import Path
from typing import Final

FLOOR_BYTES: Final = 2 << 30
"""What any log may take. Of ordinary ones a server needs far less: 0.3 GB for a million events in 20,000 chats,
0.4 GB for a million chats."""
_TIMES_THE_LOG: Final = 2


def excess_of(pid: int, log: Path) -> str | None:
    """What is to be said when a server takes more than any sound log of that size could need; None else, and where it is not known."""
    taken = _memory_bytes(pid)
    if taken <= FLOOR_BYTES:
        return None
    size = sum(path.stat().st_size for path in log.rglob("*") if path.is_file())
    if taken <= FLOOR_BYTES + _TIMES_THE_LOG * size:
        return None
    return f"{taken / 1e9:.1f} GB of memory for a log of {size / 1e6:,.1f} MB"


def _memory_bytes(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_bytes().split()[1])
    except (OSError, ValueError, IndexError):  # it has ended, or this is another system
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
