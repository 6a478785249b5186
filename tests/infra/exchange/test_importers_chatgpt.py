import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.support.imported_files import read

import chatledger
from chatledger import Annotation
from chatledger.domain.errors import ChainIntegrityError, InvalidValueError

SAMPLE = Path(__file__).resolve().parents[3] / "tests" / "data" / "chatgpt_conversations.json"
DEEP = 50_000


def node(parent: str | None, *children: str, role: str | None = "user", text: str = "hello") -> dict[str, Any]:
    content = {"content_type": "text", "parts": [text]}
    return {
        "parent": parent,
        "children": list(children),
        "message": role and {"author": {"role": role}, "content": content},
    }


def conversation(mapping: Any, *, current: str | None = None, chat_id: str = "c") -> dict[str, Any]:
    return {"conversation_id": chat_id, "title": "A", "current_node": current, "mapping": mapping}


def write(path: Path, *conversations: Any) -> Path:
    path.write_text(json.dumps(list(conversations)), encoding="utf-8")
    return path


def test_sample_structure() -> None:
    """Structural nodes vanish, their children move up; `current_node` is `main`, every other leaf a branch."""
    (animals, question), problems = read(SAMPLE, strict=True)

    assert problems == []
    assert {message.id: message.parent_id for message in animals.messages} == {
        "sys": None,
        "u1": "sys",
        "t1": "u1",
        "code": "t1",
        "img": "code",
        "a1": "img",
        "u1-edit": "sys",
        "a2": "u1-edit",
        "a3": "u1-edit",
    }
    assert [(branch.name, branch.head_message_id, branch.is_active) for branch in animals.branches] == [
        ("main", "a3", True),
        ("main-v2", "a1", False),
        ("main-v3", "a2", False),
    ]
    assert (animals.id, animals.title, animals.user_id) == ("conv-1", "Animals", "chatgpt")
    assert animals.metadata == {"source": "chatgpt", "default_model_slug": "model-x", "is_archived": False}
    assert (animals.created_at, animals.updated_at) == (1_700_000_000_000, 1_700_000_012_500)
    assert (question.id, question.title, [message.id for message in question.messages]) == ("conv-2", None, ["q"])


def test_sample_content() -> None:
    """Text is text, everything else is kept whole beside it."""
    messages = {message.id: message for message in read(SAMPLE)[0][0].messages}
    image = {"content_type": "image_asset_pointer", "asset_pointer": "sediment://file_0", "width": 8, "height": 8}

    assert messages["u1"].data["parts"] == [{"type": "text", "text": "Draw a fox."}]
    assert [
        {"type": "text", "text": "Here\nit is"},
        {"type": "data-chatgpt", "data": image},
        {"type": "text", "text": "Done."},
    ] == messages["img"].data["parts"]
    assert messages["code"].data["parts"] == [
        {"type": "text", "text": '{"prompt": "fox"}'},
        {"type": "data-chatgpt", "data": {"content_type": "code", "language": "json"}},
    ]
    thought = {
        "type": "reasoning",
        "text": "Fox\n\nThink of a fox.",
        "providerMetadata": {"chatgpt": {"summary": "Fox"}},
    }
    assert [thought] == messages["t1"].data["parts"]
    assert (
        messages["img"].name,
        messages["img"].data["role"],
        messages["img"].notes,
    ) == ("tool", "tool", {"author_name": "dalle.text2im"})
    assert (messages["sys"].notes, messages["sys"].annotation) == (None, Annotation(hidden=True))
    assert messages["code"].notes == {"recipient": "dalle.text2im"}
    assert (messages["u1"].created_at, messages["sys"].created_at) == (1_700_000_000_123, None)


def test_pages_are_sources_after_the_text(tmp_path: Path) -> None:
    """Each page under the word by which the text cites it; what a search found, and what a footnote repeats, once."""

    def ref(number: int) -> dict[str, Any]:
        return {"turn_index": 0, "ref_type": "search", "ref_index": number}

    cited = {"title": "A", "url": "https://a.example", "refs": [ref(2)]}
    group = {
        "type": "grouped_webpages",
        "matched_text": "\ue200cite\ue202turn0search2\ue201",
        "start_idx": 9,
        "end_idx": 24,
        "items": [{**cited, "supporting_websites": [{"title": "B", "url": "https://b.example"}]}],
        "refs": [],
    }
    found = {"url": "https://c.example", "title": "C", "ref_id": ref(5)}
    graph = node(None, text="Foxes.")
    graph["message"]["metadata"] = {
        "content_references": [
            {"type": "hidden", "matched_text": " ", "start_idx": 1},
            group,
            {"type": "sources_footnote", "start_idx": 99, "sources": [{"title": "A", "url": "https://a.example"}]},
        ],
        "search_result_groups": [{"domain": "c", "entries": [found, {"url": "https://a.example", "ref_id": ref(2)}]}],
        "citations": [
            {"start_ix": 3, "metadata": {"type": "webpage", "title": "Old", "url": "https://old.example"}},
            {"start_ix": 5, "metadata": {"type": "file", "name": "a.pdf"}},
        ],
        "_cite_metadata": {"metadata_list": [{"url": "https://old.example"}]},
    }
    ((chat,), problems) = read(write(tmp_path / "c.json", conversation({"a": graph}, current="a")), strict=True)

    text, *sources = chat.messages[0].data["parts"]
    data = {"start_ix": 5, "metadata": {"type": "file", "name": "a.pdf"}}
    assert (text, problems) == ({"type": "text", "text": "Foxes."}, [])
    assert {"type": "data-chatgpt", "data": data} in sources
    assert [
        ("turn0search2", "https://a.example", "A", 9),
        ("https://b.example", "https://b.example", "B", 9),
        ("https://old.example", "https://old.example", "Old", None),
        ("turn0search5", "https://c.example", "C", None),
    ] == [
        (part["sourceId"], part["url"], part["title"], part["providerMetadata"]["chatgpt"].get("start_idx"))
        for part in sources
        if part["type"] == "source-url"
    ]


def test_what_a_model_thought_and_what_was_hidden(tmp_path: Path) -> None:
    """Thoughts are found within reasoning; custom instructions are hidden from readers of the chat."""
    thought = node("hidden", role="assistant")
    thought["message"]["content"] = {
        "content_type": "thoughts",
        "source_analysis_msg_id": "x",
        "thoughts": [{"summary": "", "content": "the okapi lives in Congo", "finished": True}, {"chunks": []}],
    }
    hidden = node(None, "a")
    hidden["message"]["metadata"] = {"is_visually_hidden_from_conversation": True}
    path = write(tmp_path / "c.json", conversation({"hidden": hidden, "a": thought}, current="a"))
    with chatledger.open("memory:") as ledger:
        (chat,) = read(path)[0]
        ledger.import_chat(chat)

        assert ["a"] == [hit.message.id for hit in ledger.search("okapi", within=["reasoning"])]
        assert [True, False] == [message.is_hidden for message in ledger.get_messages("c")]
        assert chat.messages[1].data["parts"][1:] == [
            {"type": "data-chatgpt", "data": {"chunks": []}},
            {"type": "data-chatgpt", "data": {"source_analysis_msg_id": "x"}},
        ]


def test_thoughts_with_parts_and_custom_instructions(tmp_path: Path) -> None:
    """What newer exports think stands in `parts`; custom instructions are hidden, whether or not the export says so."""
    thought, context = node("context", role="assistant"), node(None, "a", role="system")
    thought["message"]["content"] = {"content_type": "reasoning_recap", "parts": ["Compared", "both."]}
    context["message"]["content"] = {"content_type": "user_editable_context", "user_profile": "Ada"}
    path = write(tmp_path / "c.json", conversation({"context": context, "a": thought}, current="a"))
    ((chat,), problems) = read(path, strict=True)

    assert (problems, [True, False]) == ([], [message.annotation is not None for message in chat.messages])
    assert [{"type": "reasoning", "text": "Compared\nboth."}] == chat.messages[1].data["parts"]


def test_containers_make_no_difference(tmp_path: Path) -> None:
    """A .gz, a .zip, a .zip of numbered parts and a document with a `conversations` key hold the same."""
    expected = read(SAMPLE)[0]
    packed = tmp_path / "conversations.json.gz"
    packed.write_bytes(gzip.compress(SAMPLE.read_bytes()))
    archive = tmp_path / "export.zip"
    with zipfile.ZipFile(archive, "w") as out:
        out.write(SAMPLE, "some folder/conversations.json")
        out.writestr("__MACOSX/some folder/conversations.json", "junk")
        out.writestr("chat.html", "<html>")
    numbered = tmp_path / "numbered.zip"
    with zipfile.ZipFile(numbered, "w") as out:
        parts: list[Any] = json.loads(SAMPLE.read_text(encoding="utf-8"))
        for number, each in reversed(list(enumerate(parts))):
            out.writestr(f"conversations-{number:03}.json", json.dumps([each]))
    wrapped = tmp_path / "wrapped.json"
    wrapped.write_text('{"conversations":\n' + SAMPLE.read_text(encoding="utf-8") + "}", encoding="utf-8")

    for path in (packed, archive, numbered, wrapped):
        assert (expected, []) == read(path, strict=True)


def test_single_indented_conversation(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_text(json.dumps(conversation({"a": node(None)}, current="a"), indent=2), encoding="utf-8")

    assert [chat.id for chat in read(path)[0]] == ["c"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, []),
        (["odd"], [["odd"]]),
        ({"content_type": "text", "parts": []}, []),
        ({"content_type": "text", "parts": ["a"], "extra": 1}, ["a", {"extra": 1}]),
        (
            {"content_type": "user_editable_context", "user_profile": "x"},
            [{"content_type": "user_editable_context", "user_profile": "x"}],
        ),
        ({"content_type": "execution_output", "text": "4"}, ["4", {"content_type": "execution_output"}]),
        (
            {
                "content_type": "multimodal_text",
                "parts": [{"content_type": "audio_transcription", "text": "spoken"}, 7],
            },
            ["spoken", {"content_type": "audio_transcription", "text": "spoken"}, 7],
        ),
    ],
)
def test_content_types(tmp_path: Path, content: Any, expected: list[Any]) -> None:
    """Texts become text parts; nothing else is lost."""
    message = {"author": {"role": "assistant"}, "content": content, "create_time": 1e308}
    path = write(tmp_path / "c.json", conversation({"a": node(None) | {"message": message}}, current="a"))
    parts = read(path, strict=True)[0][0].messages[0].data["parts"]

    assert expected == [part.get("text", part.get("data")) for part in parts]
    assert all(
        part["type"] == ("text" if isinstance(text, str) else "data-chatgpt")
        for part, text in zip(parts, expected, strict=True)
    )


def test_children_come_in_their_parents_order(tmp_path: Path) -> None:
    """Not in the order of the mapping; a child that is not listed comes last."""
    mapping = {"x": node("r"), "b": node("r"), "a": node("r"), "r": node(None, "a", "b", "gone")}
    (chat,), problems = read(write(tmp_path / "c.json", conversation(mapping, current="r")))

    assert problems == []
    assert [message.id for message in chat.messages] == ["r", "a", "b", "x"]
    assert [branch.head_message_id for branch in chat.branches] == ["r", "a", "b", "x"]


def test_parents_named_by_children_lists_only(tmp_path: Path) -> None:
    mapping = {"r": node(None, "a"), "a": {key: value for key, value in node(None).items() if key != "parent"}}
    (chat,), _ = read(write(tmp_path / "c.json", conversation(mapping, current="a")))

    assert {message.id: message.parent_id for message in chat.messages} == {"r": None, "a": "r"}


@pytest.mark.parametrize(
    ("mapping", "roots"),
    [
        ({"a": node("gone"), "b": node("a")}, ["a"]),
        ({"a": node("b"), "b": node("a")}, ["a"]),
        ({"s": node("t", role=None), "t": node("s", role=None), "a": node("t")}, ["a"]),
    ],
)
def test_broken_links(tmp_path: Path, mapping: Any, roots: list[str]) -> None:
    path = write(tmp_path / "c.json", conversation(mapping, current=roots[0]))
    (chat,), problems = read(path)

    assert roots == [message.id for message in chat.messages if message.parent_id is None]
    assert len(problems) == 1
    with pytest.raises(ChainIntegrityError, match=r"c\.json: chat 'c'"):
        read(path, strict=True)


@pytest.mark.parametrize("broken", [{}, {"author": {}}, "text", {"author": {"role": 1}}])
def test_a_broken_message_leaves_the_chain_whole(tmp_path: Path, broken: Any) -> None:
    """Its children hang on the message above it."""
    mapping = {"a": node(None), "b": node("a") | {"message": broken}, "c": node("b")}
    path = write(tmp_path / "c.json", conversation(mapping, current="c"))
    (chat,), problems = read(path)

    assert {message.id: message.parent_id for message in chat.messages} == {"a": None, "c": "a"}
    assert [problem.message for problem in problems] == ["chat 'c': message 'b' has no author role; skipped"]
    with pytest.raises(InvalidValueError, match=r"c\.json: "):
        read(path, strict=True)


@pytest.mark.parametrize("broken", [1, {}, {"mapping": {}}, conversation([]), conversation({}, chat_id="")])
def test_a_broken_conversation_is_skipped(tmp_path: Path, broken: Any) -> None:
    chats, problems = read(write(tmp_path / "c.json", conversation({"a": node(None)}, current="a"), broken))

    assert [chat.id for chat in chats] == ["c"]
    assert len(problems) == 1
    assert "conversation 2" in problems[0].message


def test_without_current_node(tmp_path: Path) -> None:
    path = write(
        tmp_path / "c.json", conversation({"a": node(None, "b"), "b": node("a")}), conversation({}, chat_id="e")
    )
    (chat, empty), problems = read(path)

    assert [branch.head_message_id for branch in chat.branches] == ["b"]
    assert (len(problems), empty.branches[0].head_message_id) == (1, None)


def test_current_node_without_message(tmp_path: Path) -> None:
    mapping = {"a": node(None, "b"), "b": node("a", role=None)}
    (chat,), problems = read(write(tmp_path / "c.json", conversation(mapping, current="b")))

    assert ([branch.head_message_id for branch in chat.branches], problems) == (["a"], [])


def test_repeated_conversations(tmp_path: Path) -> None:
    """The same again is left out. With other content a ledger has both: the second is a version of the first."""
    one, other = (conversation({"a": node(None, text=text)}, current="a") for text in ("x", "y"))
    chats, problems = read(write(tmp_path / "c.json", one, one, other))

    assert [chat.messages[0].data["parts"][0]["text"] for chat in chats] == ["x", "y"]
    assert problems == []
    with chatledger.open("memory:") as ledger:
        assert [ledger.import_chat(chat).versions_added for chat in chats] == [0, 1]


@pytest.mark.soak
def test_deep_conversation(tmp_path: Path) -> None:
    mapping = {f"m{n}": node(f"m{n - 1}" if n else None) for n in reversed(range(DEEP))}
    (chat,), problems = read(write(tmp_path / "c.json", conversation(mapping, current=f"m{DEEP - 1}")))

    assert ([f"m{n}" for n in range(DEEP)], []) == ([message.id for message in chat.messages], problems)


def test_half_an_emoji_does_not_cost_the_file(tmp_path: Path) -> None:
    chats, problems = read(write(tmp_path / "c.json", conversation({"a": node(None, text="\ud83d!")}, current="a")))

    assert chats[0].messages[0].data["parts"][0]["text"] == "\ufffd!"
    assert [problem.message for problem in problems] == ["item 1: lone surrogates replaced by U+FFFD"]


def test_what_is_no_export(tmp_path: Path) -> None:
    """Damaged archives, and those of something else, are refused."""
    empty = tmp_path / "empty.zip"
    with zipfile.ZipFile(empty, "w") as out:
        out.writestr("readme.txt", "nothing")
    broken = tmp_path / "broken.zip"
    broken.write_bytes(empty.read_bytes()[:20])

    for path, reason in (
        (empty, "no conversations.json"),
        (broken, "read"),
    ):
        with pytest.raises(InvalidValueError, match=reason):
            read(path)


def test_a_damaged_member_is_skipped(tmp_path: Path) -> None:
    archive = tmp_path / "export.zip"
    with zipfile.ZipFile(archive, "w") as out:
        out.writestr("conversations-000.json", "[{]")
        out.write(SAMPLE, "conversations-001.json")
    chats, problems = read(archive)

    assert (2, [f"{archive}, conversations-000.json"]) == (len(chats), [problem.source for problem in problems])


@pytest.mark.parametrize(
    ("content", "user_id"), [('{"id": "user-7", "email": "not read"}', "user-7"), ("{", "chatgpt")]
)
def test_user_of_an_archive(tmp_path: Path, content: str, user_id: str) -> None:
    """A file that cannot be used is ignored."""
    archive = tmp_path / "export.zip"
    with zipfile.ZipFile(archive, "w") as out:
        out.write(SAMPLE, "conversations.json")
        out.writestr("user.json", content)

    assert {user_id} == {chat.user_id for chat in read(archive)[0]}
