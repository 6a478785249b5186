"""`search`: messages found by their words or their meaning."""

import logging
import re
from datetime import datetime
from typing import Final

import click
from rich.padding import Padding
from rich.text import Text

from chatledger.domain.draw.outline import escaped, short_id
from chatledger.domain.errors import ConfigurationError
from chatledger.domain.search.embedding import MODES, Embedding, SearchMode
from chatledger.domain.search.fields import FIELDS, TEXT, SearchField, field_text
from chatledger.domain.values import SearchHit, SearchHits

from ...ledger.ledger import Ledger
from ...ledger.search import DEFAULT_LIMIT
from ..named_embedding import embedding_named
from .lookup import require_branch, require_chat, require_thread
from .options import GlobalOptions, WholeNumber, aware_time, ledger_at, limit_option, listing_options, parsed
from .output import (
    console,
    fields_of,
    format_time,
    print_csv,
    print_json_list,
    print_lines,
    print_note,
    print_text,
    role_style,
)

_TAG: Final = re.compile("</?mark>")
_MATCH_STYLE: Final = "bold red"


_moment: Final = parsed(aware_time, "is not a time, e.g. 2026-02-07 or 2026-02-07T17:29:24Z")


@click.command("search")
@click.argument("words", metavar="QUERY...", nargs=-1, required=True)
@click.option("--chat", "chat_id", metavar="ID", help="Only in this chat.")
@click.option("--thread", "thread_id", metavar="ID", help="In this thread of agents, instead of chats; newest first.")
@click.option("--user", "user_id", metavar="ID", help="Only in the chats of this owner.")
@click.option("--role", "roles", metavar="NAME", multiple=True, help="Only messages of this role; can be repeated.")
@click.option("--branch", metavar="NAME", help="Only messages on the chain of this branch; needs --chat.")
@click.option(
    "--in",
    "within",
    type=click.Choice(FIELDS),
    multiple=True,
    default=(TEXT,),
    help="What is searched of each message, 'text' by default: its text, inputs and outputs of its tools, or its reasoning; can be repeated.",
)
@click.option(
    "--since",
    callback=_moment,
    metavar="TIME",
    help="Only messages created at this time or later (ISO 8601, UTC unless it has an offset).",
)
@click.option("--until", callback=_moment, metavar="TIME", help="Only messages created before this time.")
@limit_option(f"messages, the best ones; {DEFAULT_LIMIT} by default")
@click.option("--offset", type=WholeNumber(min=0), default=0, metavar="N", help="Leave out the N best ones.")
@click.option("--include-hidden", is_flag=True, help="Also messages that are hidden or replaced.")
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default="words",
    show_default=True,
    help="By their words, by what they mean, or by both; for meaning an embedding is needed.",
)
@click.option(
    "--embed",
    metavar="MODULE:NAME",
    help="The chatledger.Embedding of a search by meaning, or a function that makes it. Messages are found that a ledger opened with it has embedded.",
)
@listing_options
def search_command(
    settings: GlobalOptions,
    *,
    words: tuple[str, ...],
    chat_id: str | None,
    thread_id: str | None,
    user_id: str | None,
    roles: tuple[str, ...],
    branch: str | None,
    within: tuple[SearchField, ...],
    since: datetime | None,
    until: datetime | None,
    limit: int | None,
    offset: int,
    include_hidden: bool,
    mode: SearchMode,
    embed: str | None,
    as_json: bool,
    as_csv: bool,
) -> None:
    """
    Find messages by their words or their meaning, best first.

    All words must occur, in any form: 'fox' finds 'Foxes'. There are AND, OR, NOT in capitals, "phrases", prefix* and
    parentheses; quote them for the shell. With --thread, messages of LangChain in a thread are found. A query that begins with a minus comes after '--'. With --json, an array with one hit a line: message, rank (lower is better), and the snippet with its marks.
    """
    if branch is not None and chat_id is None:
        msg = "--branch is one of a chat; give --chat too"
        raise click.UsageError(msg, click.get_current_context())
    query = " ".join(words)
    size = DEFAULT_LIMIT if limit is None else limit
    if thread_id is not None:
        others = set(within) - {TEXT}, include_hidden, mode != "words", embed
        _refuse_for_threads(chat_id, user_id, roles, branch, since, until, *others)
        _show_of_thread(settings, query, thread_id, size, offset, as_json=as_json, as_csv=as_csv)
        return
    embedding = _embedding(mode, embed)
    with ledger_at(settings, is_read=True) as ledger:
        _require_place(ledger, chat_id, branch)
        # One more than asked for tells whether there is another page.
        hits = ledger.search(
            query,
            chat_id=chat_id,
            user_id=user_id,
            roles=roles,
            branch=branch,
            within=within,
            since=since,
            until=until,
            limit=size + 1,
            offset=offset,
            include_hidden=include_hidden,
            mode=mode,
            embed=embedding,
        )
    _print_hits(hits, query, offset, size, with_chat=chat_id is None, as_json=as_json, as_csv=as_csv)


def _embedding(mode: SearchMode, named: str | None) -> Embedding | None:
    if mode != "words" and named is None:
        msg = f"--mode {mode} needs --embed MODULE:NAME, the embedding that the ledger is opened with elsewhere"
        raise click.UsageError(msg, click.get_current_context())
    return None if named is None else embedding_named(named)


def _print_hits(
    hits: SearchHits, query: str, offset: int, size: int, *, with_chat: bool, as_json: bool, as_csv: bool
) -> None:
    # On stderr, so beside JSON and CSV too.
    if hits.is_degraded:
        print_note("the search index is being built: of some chats, only messages with exactly this text are found")
    if hits.pending:
        print_note(f"{hits.pending:,} of the messages have no vectors yet, and are found by their words only")
    shown = hits[:size]
    if as_csv:
        rows = (fields_of(hit.message) | {"rank": hit.rank, "snippet": hit.snippet} for hit in shown)
        print_csv(_CSV_COLUMNS, ([row[name] for name in _CSV_COLUMNS] for row in rows))
        return
    if as_json:
        print_json_list(map(fields_of, shown))
        return
    for hit in shown:
        _print_hit(hit, with_chat=with_chat)
    _print_end(query, offset, size, hit_count=len(hits))


def _refuse_for_threads(*values: object) -> None:
    if any(values):
        msg = "--thread goes with --limit, --offset, --json and --csv; the other options are about chats"
        raise click.UsageError(msg, click.get_current_context())


def _require_place(ledger: Ledger, chat_id: str | None, branch: str | None) -> None:
    if chat_id is not None:
        require_chat(ledger, chat_id)
        if branch is not None:
            require_branch(ledger, chat_id, branch)


def _show_of_thread(
    settings: GlobalOptions, query: str, thread_id: str, size: int, offset: int, *, as_json: bool, as_csv: bool
) -> None:
    try:
        from ..langgraph.saver import LedgerSaver
    except ImportError as error:
        msg = "messages of threads are read with LangGraph's library: pip install 'chatledger[langgraph]'"
        raise ConfigurationError(msg) from error
    # It warns of classes that are not loaded, and only messages are shown.
    logging.getLogger("langgraph").setLevel(logging.ERROR)
    with ledger_at(settings, is_read=True) as ledger:
        require_thread(ledger, thread_id)
        hits = LedgerSaver(ledger).search(query, thread_id=thread_id, limit=offset + size + 1)[offset:]
    shown = hits[:size]
    if as_csv:
        print_csv(_THREAD_COLUMNS, ([fields_of(hit)[name] for name in _THREAD_COLUMNS] for hit in shown))
        return
    if as_json:
        print_json_list(map(fields_of, shown))
        return
    for hit in shown:
        head = Text(escaped(hit.role), style=f"bold {role_style(hit.role)}")
        place = f"{hit.checkpoint_id}  {hit.checkpoint_ns}".rstrip()
        head.append(f"  checkpoint {escaped(place)}", style="not bold dim default")
        _print_passage(head, _passage(hit.snippet, hit.text))
    _print_end(query, offset, size, hit_count=len(hits))


def _print_end(query: str, offset: int, size: int, *, hit_count: int) -> None:
    """Print how to go on, or that there is nothing."""
    if not hit_count:
        why = "" if any(map(str.isalnum, query)) else ": there is no letter or digit in the query"
        print_text("No more messages match." if offset else f"No message matches{why}.")
    elif hit_count > size > 0:
        print_text(f"More with --offset {offset + size}", "dim")


_THREAD_COLUMNS = ("thread_id", "checkpoint_ns", "checkpoint_id", "role", "message_id", "snippet")
_CSV_COLUMNS = ("chat_id", "id", "name", "created_at", "rank", "snippet")


def _print_hit(hit: SearchHit, *, with_chat: bool) -> None:
    """Print author, time and place on one line, and the snippet below."""
    message = hit.message
    head = Text(escaped(message.name), style=f"bold {role_style(message.name)}")
    head.append(f"  {format_time(message.created_at)}  {escaped(short_id(message.id))}", style="not bold dim default")
    if with_chat:
        head.append(f"  [{escaped(message.chat_id)}]", style="not bold dim default")
    if hit.within != TEXT:
        head.append(escaped(f"  in {hit.within}"), style="not bold dim default")
    _print_passage(head, _passage(hit.snippet, field_text(hit.message, hit.within)))


def _print_passage(head: Text, passage: Text) -> None:
    out = console()
    if out.file.isatty():
        print_lines([head])
        out.print(Padding(passage, (0, 0, 0, 2)))
    else:
        print_lines([head, Text("  ").append_text(passage)])


def _passage(snippet: str, text: str) -> Text:
    """The snippet of a text on one line, with its matches in colour instead of between marks."""
    snippet = " ".join(escaped(snippet).split())
    if _TAG.search(text):
        # The message has such tags itself. Which are ours cannot be told, so all are shown.
        return Text(snippet)
    passage = Text()
    for at, part in enumerate(_TAG.split(snippet)):
        passage.append(part, style=_MATCH_STYLE if at % 2 else "")
    return passage
