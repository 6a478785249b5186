"""
Search against SQLite's FTS5 (`porter unicode61`): the same messages for the same query, and nearly the same order.

The texts are those of OpenAssistant where the file is at hand (`CHATLEDGER_OASST` names its place), and always ones made of
English words in their inflected forms. Queries are made of words that are in the texts.

Where and why the two differ:

- Tokens. FTS5 knows Unicode 6.1 and takes private-use characters for letters. It folds characters one by one: it keeps
  ligatures and full-width letters, and `ß` apart from `ss`. It removes only diacritics of Latin letters, and takes a combining
  mark that stands alone for part of a word. Scripts without blanks are one long word to it, which nobody finds; here they
  are pairs of characters. None of this concerns words of ASCII letters and digits, of which the queries here are made. It
  makes some messages a few terms longer or shorter, which moves ranks a little.
- Ranks. FTS5 also counts what stands behind `NOT`, where the message has a part of it, as in `a NOT (b AND c)`.
- The language. In FTS5 a blank binds tighter than `NOT`, and may not stand before a parenthesis. So the same tree is written in
  both languages: with `AND` and all parentheses for FTS5; as plainly as possible for chatledger.
"""

import json
import os
import random
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from tests.support.search_world import ids
from tests.support.soak import examples

import chatledger
from chatledger import Ledger, NewMessage
from chatledger.domain.search.snippets import KnownWords, Snippet
from chatledger.domain.search.tokens import terms_of

pytestmark = pytest.mark.xdist_group("fts5")  # one worker fills the two ledgers and tables, once

ROOT: Final = Path(__file__).resolve().parents[3]
FILE: Final = Path(os.environ.get("CHATLEDGER_OASST") or ROOT.parent / "shared" / "data" / "oasst1-en-validation.jsonl")
QUERIES_PER_FORM: Final = 50
BEST: Final = 10
SMALL_CHATS: Final = 40

Texts = dict[str, list[str]]
"""The texts of the messages by chat."""


class Pair(NamedTuple):
    """One query, in both languages; `level` is how tightly it binds in ours: 0 for `OR` to 3 for a word."""

    ours: str
    theirs: str
    level: int = 3


# Texts

_STEMS: Final = [
    "walk",
    "jump",
    "connect",
    "relate",
    "adjust",
    "operate",
    "condition",
    "general",
    "vision",
    "travel",
    "hop",
    "plan",
    "sing",
    "possible",
    "active",
    "form",
    "argue",
    "agree",
    "study",
    "carry",
    "happy",
    "electric",
    "critic",
    "depend",
    "replace",
    "probable",
    "allow",
    "infer",
    "decide",
    "sensible",
    "homologous",
    "effect",
    "bowdler",
    "radical",
    "rival",
    "triplicate",
    "hope",
    "good",
    "digit",
    "formal",
    "sense",
    "motor",
    "fly",
    "bread",
    "river",
    "town",
    "music",
    "paint",
    "garden",
    "theory",
    "network",
    "model",
    "learn",
    "number",
]
_ENDINGS: Final = [
    "",
    *["s", "ed", "ing", "er", "ly", "ness", "ation", "ational", "ful", "fulness", "ize", "izer", "ive", "ment"],
]
_JOINTS: Final = (" ", " ", " ", " ", ", ", ". ", "-", "\n", "'", " — ", "... ", "/", "_")


def _made() -> Texts:
    """English words in their inflected forms, common and rare ones, as texts of all lengths."""
    chance = random.Random(1)
    words = [stem + ending for stem, ending in product(_STEMS, _ENDINGS)]
    words += ["the", "a", "of", "it's", "Ärger", "naïve", "42", "3rd", "x"]
    chance.shuffle(words)

    def text() -> str:
        parts: list[str] = []
        for _ in range(int(chance.expovariate(1 / 40)) + 1):
            word = words[int(len(words) * chance.random() ** 3)]
            parts += [chance.choice([word, word, word.title(), word.upper()]), chance.choice(_JOINTS)]
        return "".join(parts)

    return {f"made {number}": [text() for _ in range(size)] for number, size in enumerate([1200, 150, 20, 1])}


def _oasst() -> Texts:
    """OpenAssistant: all messages as one chat, and the largest trees."""
    rows = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
    trees: Texts = {}
    for row in rows:
        row["text"] = row["text"].lower()  # FTS5 knows no parts of identifiers, and in lower case they have none
        trees.setdefault(row["message_tree_id"], []).append(row["text"])
    largest = sorted(trees.items(), key=lambda tree: (-len(tree[1]), tree[0]))[:SMALL_CHATS]
    return {"all": [row["text"] for row in rows], **dict(largest)}


# Queries

_WORD: Final = re.compile(r"[A-Za-z0-9]+")
_RUN: Final = re.compile(r"[A-Za-z0-9]+(?:[ ,.'\n-]+[A-Za-z0-9]+)*")
_OPERATORS: Final = {"AND", "OR", "NOT", "NEAR"}


class Maker:
    """Queries on some texts. What they ask for is there, so that most find something."""

    def __init__(self, texts: list[str], seed: int) -> None:
        self.chance = random.Random(seed)
        self.runs = [run.split() for text in texts if text.isascii() for run in _plain_runs(text)]

    def word(self) -> Pair:
        word = self._words(1)[0]
        return Pair(word, word)

    def prefix(self) -> Pair:
        word = self._words(1)[0]
        start = word[: self.chance.randint(min(2, len(word)), len(word))] + "*"
        return Pair(start, start)

    def phrase(self) -> Pair:
        quoted = f'"{" ".join(self._words(self.chance.randint(2, 4)))}"'
        return Pair(quoted, quoted)

    def phrase_of_prefix(self) -> Pair:
        *before, last = self._words(self.chance.randint(2, 3))
        start = last[: self.chance.randint(1, len(last))]
        quoted = f'"{" ".join([*before, start])}"'
        return Pair(quoted + "*", quoted + " *")

    def leaf(self) -> Pair:
        kinds: list[Callable[[], Pair]] = [self.word, self.word, self.word, self.phrase, self.prefix]
        return self.chance.choice(kinds)()

    def words(self) -> Pair:
        """Two or three words of one message, which all must occur."""
        near = self._words(8)
        found = self.chance.sample(near, min(self.chance.randint(2, 3), len(near)))
        return _joined([Pair(word, word) for word in found], " ", "AND", 1)

    def all_of(self) -> Pair:
        return _joined([self.leaf(), self.leaf()], " AND ", "AND", 1)

    def any_of(self) -> Pair:
        return _joined([self.leaf() for _ in range(self.chance.randint(2, 4))], " OR ", "OR", 0)

    def without(self) -> Pair:
        return _joined([self.word(), self.leaf()], " NOT ", "NOT", 2)

    def mixed(self, depth: int = 3) -> Pair:
        """A tree of all of these."""
        if depth == 0 or self.chance.random() < 0.25:
            return self.leaf()
        ours, theirs, level = self.chance.choice(
            [(" ", "AND", 1), (" AND ", "AND", 1), (" OR ", "OR", 0), (" OR ", "OR", 0), (" NOT ", "NOT", 2)]
        )
        return _joined([self.mixed(depth - 1), self.mixed(depth - 1)], ours, theirs, level)

    def _words(self, count: int) -> list[str]:
        """So many words that stand side by side somewhere, or less; in another case than there, perhaps."""
        run = self.chance.choice(self.runs)
        start = self.chance.randrange(max(1, len(run) - count + 1))
        changes: list[Callable[[str], str]] = [str, str.lower, str.title, str.upper]
        change = self.chance.choice(changes)
        found = [change(word) for word in run[start : start + count]]
        return [word.lower() if word in _OPERATORS else word for word in found]


def _plain_runs(text: str) -> Iterator[str]:
    for run in _RUN.findall(text):
        yield " ".join(_WORD.findall(run))


def _joined(parts: list[Pair], ours: str, theirs: str, level: int) -> Pair:
    """Parts that bind less tightly, and all but the first of a `NOT`, need parentheses in our language."""

    def is_bare(at: int, part: Pair) -> bool:
        return part.level > level or (part.level == level and (level != 2 or at == 0))

    own = ours.join(part.ours if is_bare(at, part) else f"({part.ours})" for at, part in enumerate(parts))
    return Pair(own, f" {theirs} ".join(f"({part.theirs})" for part in parts), level)


FORMS: Final = ["word", "words", "prefix", "phrase", "phrase_of_prefix", "all_of", "any_of", "without", "mixed"]
COUNTS: Final = dict.fromkeys(FORMS, QUERIES_PER_FORM) | {"mixed": 3 * QUERIES_PER_FORM}
"""In all at least 500 queries for each corpus."""


# Both engines


class Fts5:
    """One chat in a table; row ids count from 0 in the order of the messages."""

    def __init__(self, connection: sqlite3.Connection, number: int, texts: list[str]) -> None:
        self._connection, self._table = connection, f"chat{number}"
        connection.execute(f"CREATE VIRTUAL TABLE {self._table} USING fts5(body, tokenize = 'porter unicode61')")
        connection.executemany(f"INSERT INTO {self._table}(rowid, body) VALUES (?, ?)", enumerate(texts))

    def search(self, query: str) -> list[int]:
        """The messages that match, best first."""
        found = self._connection.execute(
            f"SELECT rowid FROM {self._table} WHERE {self._table} MATCH ? ORDER BY rank, rowid DESC", (query,)
        )
        return [row for (row,) in found]


class Both:
    """The same texts on both sides."""

    def __init__(self, ledger: Ledger, connection: sqlite3.Connection, texts: Texts) -> None:
        self.ledger, self.texts = ledger, texts
        self.tables: dict[str, Fts5] = {}
        for number, (chat_id, lines) in enumerate(texts.items()):
            self.tables[chat_id] = Fts5(connection, number, lines)
            ledger.create_chat(chat_id, "ada")
            drafts = [NewMessage("user", line, id=f"{number} {at}", created_at=at) for at, line in enumerate(lines)]
            for start in range(0, len(drafts), 500):
                ledger.append(chat_id, drafts[start : start + 500])

    def ours(self, chat_id: str, query: str, *, limit: int | None = None) -> list[int]:
        hits = self.ledger.search(query, chat_id=chat_id, limit=limit)
        return [int(message_id.split()[1]) for message_id in ids(hits)]

    def queries(self, form: str, count: int) -> list[Pair]:
        """The first so many queries of a form."""
        lines = next(iter(self.texts.values()))
        maker = Maker(lines, FORMS.index(form))
        return [getattr(maker, form)() for _ in range(count)]


def _no_snippet(text: str, known: KnownWords) -> Snippet:
    del text, known
    return Snippet("", [])


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(_made, id="made"),
        pytest.param(
            _oasst,
            id="oasst",
            marks=[
                pytest.mark.soak,
                pytest.mark.skipif(not FILE.is_file(), reason=f"needs {FILE.name}; CHATLEDGER_OASST names its place"),
            ],
        ),
    ],
)
def both(request: pytest.FixtureRequest) -> Iterator[Both]:
    with (
        closing(sqlite3.connect(":memory:")) as connection,
        chatledger.open("memory:") as ledger,
        pytest.MonkeyPatch.context() as patch,
    ):
        # Whole answers are compared, hundreds of times a thousand messages: their snippets would take most of the time.
        patch.setattr("chatledger.domain.search.snippets.snippet_of", _no_snippet)
        yield Both(ledger, connection, request.param())


@pytest.mark.parametrize("form", FORMS)
def test_the_same_messages_are_found(both: Both, form: str) -> None:
    """In each chat, for each query; and the queries ask for what is there."""
    found, queries = 0, both.queries(form, examples(COUNTS[form]))
    for query in queries:
        for chat_id, table in both.tables.items():
            expected = set(table.search(query.theirs))
            found += bool(expected)
            assert expected == set(both.ours(chat_id, query.ours)), (chat_id, query)

    assert found >= len(queries) / 2


@pytest.mark.soak
def test_the_best_are_the_same(both: Both) -> None:
    """Nine of the best ten agree on average, counted over those of 500 queries that find more than ten."""
    chat_id, table = next(iter(both.tables.items()))
    overlaps: list[float] = []
    queries = [query for form in FORMS for query in both.queries(form, COUNTS[form])]
    for query in queries:
        expected = table.search(query.theirs)
        if len(expected) > BEST:
            best = both.ours(chat_id, query.ours, limit=BEST)
            overlaps.append(len({*best} & {*expected[:BEST]}) / BEST)

    print(
        f"{len(overlaps)} queries find more than {BEST}; {sum(overlaps) / len(overlaps):.1%} of the best are the same"
    )
    assert len(queries) >= 500
    assert len(overlaps) > 200
    assert sum(overlaps) / len(overlaps) >= 0.9


def test_ranks_are_equal_where_tokens_are() -> None:
    """On texts of ASCII letters both compute the same numbers: the formula is FTS5's, sign and all."""
    texts = [text for text in _made()["made 0"] if text.isascii()][:300]
    with closing(sqlite3.connect(":memory:")) as connection, chatledger.open("memory:") as ledger:
        both = Both(ledger, connection, {"c": texts})
        for form in FORMS[:-2]:  # `NOT` is counted in FTS5
            for query in both.queries(form, examples(COUNTS[form])):
                rows = connection.execute("SELECT rowid, rank FROM chat0 WHERE chat0 MATCH ?", (query.theirs,))
                ours = {int(hit.message.id.split()[1]): hit.rank for hit in ledger.search(query.ours, limit=None)}
                assert pytest.approx(dict(rows.fetchall()), rel=1e-9) == ours, query


def test_terms_of_ascii_texts_are_the_same() -> None:
    """What the comparisons above rest on."""
    texts = [text for texts in _made().values() for text in texts if text.isascii()]
    with closing(sqlite3.connect(":memory:")) as connection:
        Fts5(connection, 0, texts)
        connection.execute("CREATE VIRTUAL TABLE terms USING fts5vocab(chat0, instance)")
        found: dict[int, list[str]] = {}
        for term, row in connection.execute('SELECT term, doc FROM terms ORDER BY doc, "offset"'):
            found.setdefault(row, []).append(term)

    assert len(texts) > 200
    assert [found.get(row, []) for row in range(len(texts))] == [terms_of(text.lower()) for text in texts]
