"""HTML and Markdown for notebooks, read back by parsers of HTML and of Markdown: whatever the messages contain, only the text differs."""

import html
from html.parser import HTMLParser
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from tests.support.drawing_graphs import TRIP, graph, hostile_graphs, hostile_texts, node

from chatledger.domain.chat.events import ChatCreated
from chatledger.domain.chat.recorded import Event, Recorded
from chatledger.domain.draw.escaping import printable
from chatledger.domain.draw.notebook import GRAPH_LINES, TEXT_CHARACTERS, draw_html, draw_markdown
from chatledger.domain.draw.tree import visualize_graph
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.values import (
    Annotation,
    Chat,
    Divergence,
    HitPlace,
    Message,
    Page,
    PageEntry,
    Redaction,
    SearchHit,
    SearchHits,
    Versions,
)

_PARSER: Final = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
_INLINE: Final = {"text", "strong_open", "strong_close", "html_inline"}
# Formulas of notebooks, and what is laid out as HTML by its own lines.
_SNIPPETS: Final = st.sampled_from(
    [
        "</details>",
        "</span></p></div>",
        "<mark>",
        "</mark>",
        "\n",
        "\n\n",
        "\n```\n",
        "\n---\n",
        "| a | b |",
        "\\(x\\)",
        "\ud800",
        "\t",
    ]
)
texts: Final = st.lists(st.one_of(hostile_texts, _SNIPPETS), max_size=4).map("".join)
NOON: Final = 1_772_366_400_000


def message(text: Any = "hi", *, id_: str = "m1", name: str = "user", **fields: Any) -> Message:
    return Message(id=id_, chat_id="trip", name=name, data=text, created_at=NOON, **fields)


class Elements(HTMLParser):
    """The tags of an HTML text with their attributes, and its text; tags that do not match are an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(self.get_starttag_text() or "")
        if tag != "br":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(decl)

    def unknown_decl(self, data: str) -> None:
        raise AssertionError(data)

    def handle_pi(self, data: str) -> None:
        raise AssertionError(data)


def html_tags(text: str) -> list[str]:
    """The tags without the marks of a hit, whose number follows the text."""
    return [tag for tag in Elements(text).tags if tag != "<mark>"]


def markdown_shape(text: str) -> list[tuple[str, list[str]]]:
    """The blocks of a Markdown text, and what stands in each: bold text and line breaks, nothing else."""
    shape: list[tuple[str, list[str]]] = []
    for token in _PARSER.parse(text):
        inline = token.children or []
        assert {child.type for child in inline} <= _INLINE
        tags = [child.content for child in inline if child.type == "html_inline"]
        assert set(tags) <= {"<br>", "<mark>", "</mark>"}
        shape.append((token.type, [child.type for child in inline if child.type.startswith("strong")]))
    return shape


def every_kind(text: str, word: str) -> list[Any]:
    """A value of each kind with a text in every place that a user fills."""
    said = message(text, id_=word, name=word, sender_id=word, annotation=Annotation(replaced_by=word, stale=True))
    chat = Chat(id=word, user_id=word, title=word, last_text=text, created_at=NOON, updated_at=NOON, expires_at=NOON)
    place = HitPlace(kind="item", id=word, namespace="", version=None, field=word)
    hits = [
        SearchHit(message=said, rank=0, snippet=text, matches=[[0, len(text)]]),
        SearchHit(message=said, rank=0, snippet=text, place=place),
    ]
    event = Event(
        originator_id=word,
        originator_version=1,
        event_id="e",
        occurred_at=NOON,
        actor=word,
        body=ChatCreated(user_id=word, title=word, metadata=None, branch_id="b"),
        previous_hash=b"",
    )
    return [
        said,
        chat,
        SearchHits(hits, is_degraded=True, pending=2),
        Page(
            chat_id=word,
            branch=word,
            entries=[PageEntry(message=said, versions=Versions(ids=["x", word], index=0))],
            before=None,
            first=0,
            count=1,
        ),
        Divergence(common=said, only_a=[said], only_b=[], common_count=1),
        Recorded(1, event, b""),
        [said, chat, hits[0]],
    ]


@given(texts, texts)
def test_no_text_breaks_out_of_html(text: str, word: str) -> None:
    harmless = every_kind("x", "y")
    for hostile, plain in zip(every_kind(f"x{text}", f"y{word}"), harmless, strict=True):
        assert html_tags(draw_html(hostile)) == html_tags(draw_html(plain))


@given(texts, texts)
def test_no_text_breaks_out_of_markdown(text: str, word: str) -> None:
    harmless = every_kind("x", "y")
    for hostile, plain in zip(every_kind(f"x{text}", f"y{word}"), harmless, strict=True):
        assert markdown_shape(draw_markdown(hostile)) == markdown_shape(draw_markdown(plain))


@given(texts)
def test_all_of_a_text_is_shown(text: str) -> None:
    said = message(f"x{text}")
    lines = [printable(line.expandtabs(4)) for line in said.text.split("\n")]

    assert Elements(draw_html(said)).text.split("UTC", 1)[1].strip("\n") == "\n".join(lines).strip("\n")
    below = draw_markdown(said).split("UTC<br>", 1)[1]
    assert [html.unescape(line) for line in below.split("<br>")] == lines


@given(texts)
def test_markdown_begins_no_formula_and_no_link(text: str) -> None:
    """Notebooks look for formulas before they read Markdown, and addresses are links without a sign of it."""
    below = draw_markdown(message(f"x{text}")).split("UTC<br>", 1)[1].replace("<br>", "")

    assert not set("$\\{}[]<>@`|*_~") & set(below)
    assert "://" not in below


@given(hostile_graphs())
def test_graphs_are_one_block(drawn: Any) -> None:
    assert Elements(draw_html(drawn)).tags == ["<pre>"]
    (fence,) = _PARSER.parse(draw_markdown(drawn))
    assert (fence.type, fence.info) == ("fence", "mermaid")


def test_a_graph_is_the_tree_that_is_drawn() -> None:
    assert Elements(draw_html(TRIP)).text == visualize_graph(TRIP)


def test_large_graphs_are_cut() -> None:
    """And those that Mermaid refuses are a tree, in a block of code that no message ends."""
    wide = graph(node("r"), *(node(f"```\n{n}", "r", role="\n```\n", content="\n```\n\ud800") for n in range(600)))

    drawn = Elements(draw_html(wide)).text.split("\n")
    assert draw_html(wide).encode()
    assert len(drawn) == GRAPH_LINES + 1
    assert drawn[-1] == f"... {len(visualize_graph(wide).splitlines()) - GRAPH_LINES} more lines ..."
    (fence,) = _PARSER.parse(draw_markdown(wide))
    assert (fence.info, fence.content.rstrip("\n").split("\n")) == ("text", drawn)


def test_long_lists_and_texts_say_how_much_more_there_is() -> None:
    said = [message(f"text {n}", id_=f"m{n}") for n in range(1000)]
    drawn = Elements(draw_html(said)).text

    assert [n for n in range(1000) if f"text {n}\n" in drawn] == [*range(10), *range(990, 1000)]
    assert "... 980 more ..." in drawn
    hits = SearchHits(SearchHit(message=each, rank=0, snippet=each.text) for each in said)
    assert "980 more" in draw_markdown(hits)
    assert "text 19" in draw_markdown(hits)
    long = "a" * (TEXT_CHARACTERS + 3)
    assert "... 3 more characters ..." in draw_html(message(long))
    assert len(draw_html([message("a" * 1_000_000)])) < 1000
    assert "more" not in draw_html(said[:20])


def test_facts_of_a_message() -> None:
    said = message("hi", agent_id="bot", annotation=Annotation(hidden=True, stale=True, replaced_by="m2"))

    assert (
        draw_markdown(said)
        == "**user** m1 · in trip · 2026-03-01 12:00 UTC · bot · hidden · stale · replaced by m2<br>hi"
    )
    redacted = message(None, redacted=Redaction(at=NOON))
    assert draw_markdown(redacted) == "**user** m1 · in trip · 2026-03-01 12:00 UTC · redacted<br>&#91;redacted&#93;"


@pytest.mark.parametrize(
    ("data", "form", "shown"),
    [
        (
            {"role": "assistant", "parts": [{"type": "tool-search", "toolCallId": "c", "state": "input-available"}]},
            "ui",
            "[tool-search]",
        ),
        (42, None, "42"),
        ("", None, ""),
    ],
)
def test_messages_without_words(data: Any, form: str | None, shown: str) -> None:
    assert Elements(draw_html(message(data, form=form))).text.split("UTC")[1].strip() == shown


def test_only_matches_of_a_hit_are_marked() -> None:
    """A message that has marks itself closes and opens none."""
    hit = SearchHit(message=message(), rank=0, snippet="</mark> a Riga <mark>x</mark>", matches=[[10, 14]])

    assert "&lt;/mark&gt; a <mark>Riga</mark> &lt;mark&gt;x&lt;/mark&gt;" in draw_html(hit)
    assert draw_markdown(hit).count("<mark>") == draw_markdown(hit).count("</mark>") == 1


@pytest.mark.parametrize("value", [*every_kind("x", "y")[:-1], TRIP])
def test_notebooks_ask_the_values(value: Any) -> None:
    assert value._repr_html_() == draw_html(value)
    assert value._repr_markdown_() == draw_markdown(value)


def test_what_is_encoded_is_the_same() -> None:
    """The methods neither add a field nor a dictionary to each message."""
    assert not hasattr(message(), "__dict__")
    assert not Message.__struct_config__.gc
    assert msgspec.json.decode(msgspec.json.encode(message()), type=Message) == message()
    hits = [SearchHit(message=message(), rank=0, snippet="")]
    assert msgspec.json.encode(SearchHits(hits)) == msgspec.json.encode(hits)


def test_nothing_and_something_else() -> None:
    assert draw_markdown([]) == "(empty)"
    for value in (42, "text", [message(), 42], [TRIP]):
        with pytest.raises(InvalidValueError, match=r"not (int|str|Graph)"):
            draw_html(value)
