"""Opening a ledger."""

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from ..store.opening import DEFAULT_LOCATION
from ..store.opening.locations import location_text, open_shared
from ..store.opening.options import OpenOptions
from ..store.opening.presence import without_secrets

if TYPE_CHECKING:
    from .aio.async_ledger import AsyncLedger
    from .ledger import Ledger

__all__ = ["DEFAULT_LOCATION", "OpenOptions", "open", "open_async", "open_scratch", "open_shared", "without_secrets"]

P = ParamSpec("P")
T = TypeVar("T")


def _taking(options: Callable[P, OpenOptions]) -> Callable[[Callable[[OpenOptions], T]], Callable[P, T]]:
    """Give a function that takes `OpenOptions` the arguments that these are made of, for type checkers and at run time."""
    arguments = inspect.signature(options)

    def decorate(work: Callable[[OpenOptions], T]) -> Callable[P, T]:
        @wraps(work)
        def opened(*args: P.args, **kwargs: P.kwargs) -> T:
            if len(args) > 1:
                msg = f"chatledger.{work.__name__} takes the location alone without a name, and all else by its name"
                raise TypeError(msg)
            for name in kwargs.keys() - arguments.parameters.keys():
                from difflib import get_close_matches

                near = get_close_matches(name, arguments.parameters, n=1)
                msg = f"chatledger.{work.__name__} has no option {name!r}" + "".join(
                    f"; did you mean {option!r}?" for option in near
                )
                raise TypeError(msg)
            chosen = options(*args, **kwargs)
            if chosen.sweep_every_s is not None:
                from .sweeper import check_pause

                check_pause(chosen.sweep_every_s)
            return work(chosen)

        returned = inspect.signature(work).return_annotation
        vars(opened)["__signature__"] = arguments.replace(return_annotation=returned)
        return opened

    return decorate


@_taking(OpenOptions)
def open(options: OpenOptions) -> "Ledger":  # noqa: A001, D417 - the arguments are those of `OpenOptions`; `chatledger.open` reads as `gzip.open` does
    """
    Open a ledger, making it if it is not there yet. Use it as a context manager, or close it.

    Args:
        location: A directory, where a server of its own runs as long as the ledger is open; `nats://host:port/stream` for
            a server or cluster (several hosts separated by commas), `sqlite:///file.db`, `postgresql://…/database`, a database
            of SQLAlchemy with its driver such as `mysql+pymysql://…/database`, or
            `memory:`.
        index: The folder of the index. Inside the directory, next to the SQLite file, or in the user's cache by default.
        durability: `always` syncs every write to the disk before it is acknowledged; `fast` within a second. Only for
            directories: elsewhere the server decides.
        create: Only for `nats://`: make the stream when it is absent. Not done unless asked, because a stream whose
            encryption key is wrong looks absent, and creating it would delete it.
        progress: Called with (events done, events in all) while an index is built.
        timeout_s: The budget of one operation on the log, all its retries included.
        max_event_bytes: The largest event that is written, 1 MiB by default. A server may allow less. An append of more
            becomes several events in one commit; a single message must fit into one, without
            its data where these take more than 256 KiB and are stored beside the log.
        max_message_bytes: The largest data of a single message, 64 MiB by default. Larger ones raise `PayloadTooLargeError`.
        encryption: The keys of an encrypted log. Its index is kept in memory then. Every process that opens the log needs
            them; a log that was begun in clear cannot be encrypted later.
        compression: With "zstd" new events are compressed where that makes them smaller, with "none" they are not. Reading needs no setting.
        sweep_every_s: Call `sweep` in a thread of its own, with so many seconds in between, until the ledger is closed.
        projections: Your own projections, see `Projection`. Those that are new, or have another version, are built from the
            log before this returns, while other processes go on. Open them in every process that writes: else they have to
            catch up, and a deletion without them can have them built anew.
        login: Only for servers: how to log in and whom to trust, where the location alone does not say it.
        replicas: Only for servers: how many of a cluster keep a copy of the log, 1, 3 or 5. A new stream has 3 where three hosts
            are named, else 1. One that is there with fewer is refused. In the location it is `?replicas=3`.
        share: Only for servers: hold a share of the chats, as (index, count), such as (0, 3): those of a third of the users,
            from one share each. What others hold can be written to, and reading it raises `OtherShareError`. Only a stream that
            was made with a share can be held in shares, in any of 2, 3, 4, 5, 6, 10, 12, 15, 20, 30 or 60; (0, 1) is all. In the location it
            is `?share=0/3`.
        embed: A function that turns texts into vectors: messages can be searched by their meaning, see `search`. They are embedded
            in a thread of this process, those that there are and those that come; one process at a time does it.
        erase: When a deletion returns. `soon`: when its tombstone is on the log, and what was deleted is in no answer any more; the bytes are
            erased by another thread, which `wait_erased` and closing the ledger wait for. `wait`: when they are gone from the log and
            the index. If several ledgers of a process are open at one place, `wait` counts for all.
        redact: Takes secrets out of what comes in, before anything of it is written: a function of a text that returns it without
            them, a pattern (a regular expression, whose matches become `[redacted]`), or a list of these, such as
            `[chatledger.redaction.secrets()]`. A function must leave its own results as they are. It is applied to the data and
            metadata of messages, also of imports, live streams and answers of runs, and to threads, states and items. Every process
            that writes has to be given it; if several ledgers of a process are open at one place, it counts for all.
        read_only: Read the index of a directory or an SQLite file, and nothing else: no server is started and nothing written, while
            others may write, whose commits are read as they come. The directory is one that a process has open, or one at rest: the
            last process that had it open closed it, on this machine since that was started. What writes raises `AccessDeniedError`,
            and so does what only the log has: history, earlier moments, feeds, live streams, `verify`, `backup`.

    Raises:
        ConfigurationError: There can be no ledger like this: a wrong path, wrong credentials, an absent stream; no key for
            an encrypted log, or a key for one in clear; with `read_only`, no index that is known to have everything.
        InvalidValueError: `sweep_every_s` is no number of seconds above 0.
        CorruptStateError: Another key was used, or stored events are damaged.
        LedgerLockedError: Another process owns the directory and does not answer.
        UnsupportedFormatError: A newer chatledger wrote it.
        LogRefusedError: The server refuses the login, or its certificate cannot be trusted.
        AccessDeniedError: The login may not read the stream, or not make it.
        LogUnavailableError: The server does not answer.
        LogRegressedError, ChainIntegrityError: The log lost events.
    """
    return _ledger(options)


def _ledger(options: OpenOptions) -> "Ledger":
    if options.read_only:
        from .read_only import open_read_only

        return open_read_only(options)
    options.meanwhile = _ledger_class
    shared = open_shared(options)
    return _ledger_class()(shared, sweep_every_s=options.sweep_every_s)


def _ledger_class() -> "type[Ledger]":
    from .ledger import Ledger

    return Ledger


@_taking(OpenOptions)
def open_async(options: OpenOptions) -> "AsyncLedger":
    """
    Return a ledger whose methods are awaited. It opens when it is awaited, on entering `async with`, or on first use.

    The arguments, and what opening raises, are those of `chatledger.open`.
    """
    from .aio.async_ledger import AsyncLedger

    return AsyncLedger(partial(_ledger, options), without_secrets(location_text(options)))


def open_scratch(ledger: "Ledger") -> "Ledger":
    """Open a ledger in memory to try things with. Its index lies where what is derived from the other one may lie."""
    from .port import store_of

    options = OpenOptions("memory:")
    options.scratch = store_of(ledger).scratch
    return _ledger_class()(open_shared(options))
