"""Files for tuning and research, prompts of Google AI Studio, and pairs of a chosen and a rejected answer."""

from pathlib import Path

from tests.support.imported_files import read

import chatledger
from chatledger.forms import to_google, to_openai
from chatledger.importers import detect_format

DATA = Path(__file__).resolve().parents[3] / "tests" / "data"


def test_what_a_prompt_of_ai_studio_says() -> None:
    """A turn is a message of Gemini's, thoughts and code among its parts; the system instruction is the first message."""
    path = DATA / "aistudio_prompt.json"
    ((chat,), problems) = read(path, strict=True)
    system, question, answer = chat.messages

    assert (detect_format(path), problems, chat.title) == ("aistudio", [], "About foxes")
    assert [("system", "openai"), ("user", "google"), ("assistant", "google")] == [
        (message.name, message.form) for message in chat.messages
    ]
    assert ("You know animals.", "Voles.") == (system.text, answer.text)
    assert [{"driveDocument": {"id": "1T4"}}, {"text": "What do "}, {"text": "foxes eat?"}] == question.data["parts"]
    assert (chat.created_at, question.created_at, question.notes) == (
        1_738_407_600_000,
        1_738_407_602_000,
        {"tokenCount": 5},
    )
    assert [
        {"text": "Voles, I think.", "thought": True},
        {"executableCode": {"language": "PYTHON", "code": "1+1"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}},
        {"text": "Voles."},
    ] == answer.data["parts"]
    assert (chat.metadata or {})["record"]["runSettings"]["model"] == "models/gemini-x"
    with chatledger.open("memory:") as ledger:
        ledger.import_chat(chat)

        assert [answer.id] == [hit.message.id for hit in ledger.search("think", within=["reasoning"])]
        assert answer.data in to_google(ledger.get_messages(chat.id))


def test_files_for_tuning_and_research() -> None:
    """Questions with answers are conversations of two messages; what stands beside them is in the metadata."""
    path = DATA / "tuning_others.jsonl"
    chats, problems = read(path, strict=True)

    assert (detect_format(path), problems) == ("messages", [])
    assert [
        [("system", "Classify."), ("user", "fox"), ("assistant", "animal")],
        [("user", "Hello"), ("assistant", " Hi!")],
        [("user", "1"), ("assistant", "2")],
        [("user", "Translate.\n\nvulpes"), ("assistant", "fox")],
        *[[("user", "Hi"), ("assistant", "Hi!")]] * 3,
    ] == [[(message.name, message.text) for message in chat.messages] for chat in chats]
    lmsys, wildchat = ((chat.metadata or {})["record"] for chat in chats[5:])
    assert (lmsys["conversation_id"], lmsys["model"], wildchat["toxic"]) == ("33f0", "vicuna-x", False)
    assert chats[6].messages[0].data["language"] == "English"


def test_pairs_are_two_branches() -> None:
    """What both share once; the chosen one is main, and each says which it is, with its score."""
    path = DATA / "dpo_pairs.jsonl"
    chats, problems = read(path, strict=True)

    assert (detect_format(path), problems) == ("dpo", [])
    with chatledger.open("memory:") as ledger:
        for chat in chats:
            ledger.import_chat(chat)
        lines = [
            [
                [
                    (message["role"], message["content"])
                    for message in to_openai(ledger.get_messages(chat.id, branch=name))
                ]
                for name in ("main", "main-v2")
            ]
            for chat in chats
        ]
        labels = [
            message.annotation.metadata
            for message in ledger.get_messages(chats[1].id, branch="main")
            if message.annotation
        ] + [ledger.get_messages(chats[1].id, branch="main-v2")[-1].annotation.metadata]  # type: ignore[union-attr]

    def pair(*asked: tuple[str, str], chosen: str, rejected: str) -> list[list[tuple[str, str]]]:
        return [[*asked, ("assistant", chosen)], [*asked, ("assistant", rejected)]]

    assert lines == [
        pair(("user", "What do foxes eat?"), chosen="Voles.", rejected="Clouds."),
        pair(("system", "Be brief."), ("user", "Hi"), chosen="Hi!", rejected="Go away."),
        pair(("user", "Hi"), chosen="Hello!", rejected="No."),
        pair(("user", "Cold in Riga?"), chosen="Yes.", rejected="Riga is a city."),
        pair(("user", "Ducks?"), chosen="Birds.", rejected="Fish."),
        pair(("user", "Bees?"), chosen="Insects.", rejected="Birds."),
    ]
    assert labels == [{"preference": "chosen", "score": 8.5}, {"preference": "rejected", "score": 1}]
    assert [(chat.metadata or {}).get("record") for chat in chats[:2]] == [{"source": "mine"}, None]
