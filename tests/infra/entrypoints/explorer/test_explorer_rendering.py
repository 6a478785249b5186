"""Messages as HTML: every form that is known, and nothing that runs, whatever is written in them."""

import re
from html import unescape
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from tests.support.hostile_markup import PAYLOADS, faults_in, hostile_messages
from tests.support.in_form import in_form

from chatledger import Message
from chatledger.domain.forms.detect import form_of
from chatledger.domain.values import UI
from chatledger.infra.entrypoints.explorer.markup import MOST_HIGHLIGHTED, MOST_MARKDOWN, changed_words, code, markdown
from chatledger.infra.entrypoints.explorer.rendering import Block, blocks_of, figures_of, file_of, paired, role_of

PNG = "data:image/png;base64,iVBORw0KGgo="


def message(name: str, data: Any) -> Message:
    """A stored message."""
    form = form_of(data) or (UI if isinstance(data, dict) and "parts" in data else None)
    return Message(id="m", chat_id="c", name=name, data=data, created_at=0, form=form)


def shown(name: str, data: Any) -> list[tuple[str, str]]:
    """The kinds of the blocks of a message, and what each is about: its title, or its text."""
    return [(block.kind, block.title or block.html.striptags()) for block in blocks_of(message(name, data))]


def of_langchain(given: Any) -> tuple[str, Any]:
    """Name and data under which a message of LangChain is stored."""
    draft = in_form("langchain", given)
    return draft.name, draft.data


CALL = [("tool", "weather")]
FORMS: list[tuple[str, str, Any, list[tuple[str, str]]]] = [
    ("text", "user", "Hello *you*", [("text", "Hello *you*")]),
    ("text of an assistant", "assistant", "Hello *you*", [("text", "Hello you")]),
    ("ui", "assistant", {"role": "assistant", "parts": [{"type": "text", "text": "Hi"}]}, [("text", "Hi")]),
    ("openai", "user", {"role": "user", "content": "Hi"}, [("text", "Hi")]),
    (
        "openai call",
        "assistant",
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
        },
        CALL,
    ),
    ("openai result", "tool", {"role": "tool", "tool_call_id": "c1", "content": "sunny"}, [("tool", "")]),
    (
        "openai image",
        "user",
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": PNG}}]},
        [("image", "")],
    ),
    ("openai refusal", "assistant", {"role": "assistant", "content": None, "refusal": "No."}, [("refusal", "No.")]),
    ("responses", "assistant", {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"}, CALL),
    (
        "responses reasoning",
        "assistant",
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "Hm"}]},
        [("reasoning", "Hm")],
    ),
    (
        "anthropic",
        "assistant",
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm", "signature": "x"},
                {"type": "tool_use", "id": "t", "name": "weather", "input": {}},
            ],
        },
        [("reasoning", "Hm"), *CALL],
    ),
    ("google", "model", {"role": "model", "parts": [{"functionCall": {"name": "weather", "args": {}}}]}, CALL),
    ("langchain", *of_langchain(HumanMessage("Hi")), [("text", "Hi")]),
    (
        "langchain call",
        *of_langchain(AIMessage("", tool_calls=[{"name": "weather", "args": {}, "id": "c"}])),
        CALL,
    ),
    ("langchain result", *of_langchain(ToolMessage("sunny", tool_call_id="c")), [("tool", "")]),
    ("nothing", "note", None, []),
    ("other JSON", "note", {"a": [1]}, [("data", "note")]),
    ("broken", "assistant", {"role": "assistant", "content": 3}, [("data", "assistant")]),
]


@pytest.mark.parametrize(("name", "data", "blocks"), [form[1:] for form in FORMS], ids=[form[0] for form in FORMS])
def test_every_form_is_read(name: str, data: Any, blocks: list[tuple[str, str]]) -> None:
    """A message is shown by what it says, whichever API it was stored for."""
    assert blocks == shown(name, data)


NASTY = [
    "2*3*4",
    "__init__.py",
    r"C:\*.txt",
    "# not a heading?",
    "\tindented\n    more",
    "  leading",
    "<b>bold</b> &amp; <script>",
    "1. one\n1. two",
    "[a](b) ![c](d)",
    "مرحبا *2*",
    "if x:\n    return 1",
    "`code` ~~no~~ | a | b |",
    "\n".join(f"line {number}" for number in range(10_000)),
]


@pytest.mark.parametrize("text", NASTY, ids=range(len(NASTY)))
@pytest.mark.parametrize("role", ["user", "tool", "system", "assistant"])
def test_text_is_shown_as_it_was_said(role: str, text: str) -> None:
    """What people, tools and systems said is there to the character; what assistants wrote where it is shown raw."""
    (block,) = blocks_of(message(role, text), is_raw=role == "assistant")

    assert unescape(re.fullmatch(r'<div class="said">(.*)</div>', str(block.html), re.DOTALL)[1]) == text  # type: ignore[index]


def test_markdown_of_assistants_is_shown_as_such() -> None:
    (block,) = blocks_of(message("assistant", "**Riga**, in May"))

    assert str(block.html) == "<p><strong>Riga</strong>, in May</p>\n"


def test_results_are_shown_with_their_calls() -> None:
    """One line for both, with what was asked, what came of it, and how long it took; a result without its call stands alone."""
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Riga", "days": 3}'}}
    asks = message("assistant", {"role": "assistant", "content": None, "tool_calls": [call]})
    answers = Message(
        id="r",
        chat_id="c",
        name="tool",
        data={"role": "tool", "tool_call_id": "c1", "content": "sunny\n12 degrees"},
        created_at=450,
        form="openai",
    )
    both, alone = paired([asks, answers], is_raw=False), paired([answers], is_raw=False)

    (block,) = both["m"]
    assert (block.arguments, block.first_line, block.state) == ('city="Riga" days=3', "sunny", "done")
    assert (block.result_id, block.took_ms, both["r"]) == ("r", 450, [])
    assert [shown.is_result for shown in alone["r"]] == [True]


@pytest.mark.parametrize(
    ("metadata", "figures"),
    [
        (None, ""),
        (
            {"usage": {"input_tokens": 638, "output_tokens": 94, "cost": 0.0052}, "model": "gpt-5"},
            "gpt-5 · 638 → 94 tokens · $0.0052",
        ),
        ({"usage": {"total_tokens": 1200}}, "1,200 tokens"),
        ({"usage": "none"}, ""),
    ],
)
def test_figures_are_those_of_the_metadata(metadata: dict[str, Any] | None, figures: str) -> None:
    """Nothing is guessed."""
    assert figures == figures_of(
        Message(id="m", chat_id="c", name="assistant", data="Hi", created_at=0, notes=metadata)
    )


def test_calls_say_how_far_they_are() -> None:
    """A call is being written, running, done or failed."""
    states = ("input-streaming", "input-available", "output-available", "output-error")
    parts = [{"type": "dynamic-tool", "toolName": "x", "toolCallId": "c", "state": state} for state in states]

    blocks = blocks_of(message("assistant", {"role": "assistant", "parts": parts}))
    assert ["preparing", "running", "done", "failed"] == [block.state for block in blocks]


@pytest.mark.parametrize(
    ("given", "role"), [("user", "user"), ("human", "user"), ("ai", "assistant"), ("critic", "other")]
)
def test_roles(given: str, role: str) -> None:
    """Roles that are known look alike, whatever they are called."""
    assert role == role_of(message(given, "x"))


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("a\nb", "<p>a<br>b</p>\n"),
        ("if x:\n    return 1", "<p>if x:<br>    return 1</p>\n"),
        ("2*3*4, `a*b`, *so*", "<p>2*3*4, <code>a*b</code>, <em>so</em></p>\n"),
        ("**重要**です", "<p><strong>重要</strong>です</p>\n"),
        ("__init__.py is __really so__", "<p>__init__.py is <strong>really so</strong></p>\n"),
        ("C:\\*.txt and D:\\*.txt, \\*", "<p>C:\\*.txt and D:\\*.txt, *</p>\n"),
        ("# Title", "<h4>Title</h4>"),
        ("`x`", "<p><code>x</code></p>\n"),
        ("[a](https://b.example)", '<p><a href="https://b.example" rel="noopener noreferrer nofollow">a</a></p>\n'),
        (
            "![a](https://b.example/c.png)",
            '<p><a href="https://b.example/c.png" rel="noopener noreferrer nofollow">a</a></p>\n',
        ),
        (f"![a]({PNG})", f'<p><img src="{PNG}" alt="a"></p>\n'),
        ("```python\nif x\n```", '<span class="k">if</span>'),
        ("|a|\n|-:|\n|b|", '<td align="right">b</td>'),
    ],
)
def test_markdown(text: str, html: str) -> None:
    """Markdown as people write it in chats; images elsewhere are links."""
    assert html in markdown(text)


def test_long_texts_are_not_read() -> None:
    """What would take long is shown as it is, and what is too long in part."""
    assert "<em>" not in markdown("*a* " * MOST_MARKDOWN)
    assert "more characters" in markdown("*a* " * MOST_MARKDOWN)
    assert "<span" not in code("if " * MOST_HIGHLIGHTED, "python")


MARKUP = st.lists(
    st.one_of(
        st.sampled_from(PAYLOADS),
        st.sampled_from(list("<>\"'`&;:/\\()[]!#|*_~= \n\t\0\u2028")),
        st.sampled_from(["script", "onerror", "javascript", "data:", "style", "svg", "http://x", "```", "href", "src"]),
        st.text(max_size=3),
    ),
    max_size=12,
).map("".join)


@given(MARKUP)
@example("[x](https://x\u2028y)")
def test_nothing_runs(text: str) -> None:
    """Whatever is written, no element or attribute comes of it that could run or fetch."""
    assert [] == faults_in(markdown(text))
    assert [] == faults_in(code(text, "html"))


@given(MARKUP)
def test_nothing_runs_in_any_part(text: str) -> None:
    """Wherever in a message it is written."""
    for name, data in hostile_messages(text):
        for block in blocks_of(message(name, data)):
            assert [] == faults_in(block.html + (block.outcome or ""))
            assert block.address is None or block.address.lower().startswith(("http://", "https://", "mailto:"))


@pytest.mark.parametrize(
    ("url", "media", "disposition"),
    [
        (PNG, "image/png", "inline"),
        ("data:image/svg+xml,<svg onload=x>", "application/octet-stream", "attachment"),
        ("data:text/html;base64,PGI+", "application/octet-stream", "attachment"),
        ("data:,x", "application/octet-stream", "attachment"),
    ],
)
def test_files(url: str, media: str, disposition: str) -> None:
    """Images are shown; what could run is kept by the browser, and not opened."""
    part = {"type": "file", "url": url, "mediaType": "image/png", "filename": 'a"\r\nb.png'}
    answer = file_of(message("user", {"role": "user", "parts": [part]}), 0)
    assert answer is not None

    assert media == answer.headers["content-type"].partition(";")[0]
    assert answer.headers["content-disposition"].startswith(disposition)
    assert "\n" not in answer.headers["content-disposition"]
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"


@pytest.mark.parametrize("url", ["https://x/y.png", "data:image/png;base64,!", "file-123", "data:;base64,x"])
def test_files_that_are_not_here(url: str) -> None:
    """There is nothing to answer for a file that lies elsewhere."""
    part = {"type": "file", "url": url, "mediaType": "image/png"}
    data = {"role": "user", "parts": [part]}

    assert file_of(message("user", data), 1) is None
    assert file_of(message("user", None), 0) is None
    assert url.startswith("data:") or file_of(message("user", data), 0) is None


def test_a_block_has_one_kind() -> None:
    """The template knows all kinds that there are."""
    kinds = {block.kind for name, data in hostile_messages("x") for block in blocks_of(message(name, data))}

    assert {"text", "refusal", "reasoning", "tool", "image", "file", "source", "data"} == kinds
    assert Block(kind="text").html == ""


def test_both_sides_of_a_comparison_have_the_same_words_in_common() -> None:
    """What is unmarked at the left is unmarked at the right, whichever way one looks."""
    old, new = (
        "Lovely. What does it cost for two?",
        "Lovely. But swap the beach for something inland, it may still be cold.",
    )
    left, right = changed_words(old, new, "del"), changed_words(new, old, "ins")

    def common(marked: str) -> list[str]:
        return re.sub("<(del|ins)>.*?</\\1>", " ", marked).split()

    assert common(left) == common(right)
    assert "Lovely." in common(left)
