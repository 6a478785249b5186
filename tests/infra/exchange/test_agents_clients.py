"""
The coding agents themselves against a model on loopback: what they write is kept byte for byte, and each goes on from each.

Skipped where the clients are not installed: `make agents` does that, or CHATLEDGER_AGENT_CLIENTS names their folder of programs.
"""

import itertools
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from tests.support.fake_model import FakeModel, fake_model

from chatledger.infra.entrypoints.cli.app import cli

PROGRAMS = Path(os.environ.get("CHATLEDGER_AGENT_CLIENTS", "build/agents/node_modules/.bin")).absolute()
PROMPT, NEXT = "Please use the tool now", "And what of the second prompt?"

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]


class Client(NamedTuple):
    """A client: what it needs before it runs, its environment, and its command for a prompt."""

    prepare: Callable[[Path, str], None]
    environment: Callable[[str], Mapping[str, str]]
    command: Callable[[str], Sequence[str]]
    go_on: Callable[[Sequence[str], str], Sequence[str]]
    program: str


def _nothing(_home: Path, _url: str) -> None:
    """Prepare nothing."""


def _codex_config(home: Path, url: str) -> None:
    folder = home / ".codex"
    folder.mkdir(exist_ok=True)
    provider = (
        f'[model_providers.fake]\nname = "fake"\nbase_url = "{url}/v1"\nwire_api = "responses"\nenv_key = "FAKE_KEY"\n'
    )
    (folder / "config.toml").write_text(f'model = "gpt-test"\nmodel_provider = "fake"\n{provider}')


def _pi_models(home: Path, url: str) -> None:
    folder = home / ".pi" / "agent"
    folder.mkdir(parents=True, exist_ok=True)
    cost = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite"), 0)
    model = {"id": "m1", "name": "m1", "contextWindow": 100_000, "maxTokens": 1000, "input": ["text"], "cost": cost}
    provider = {
        "baseUrl": f"{url}/v1",
        "api": "openai-completions",
        "apiKey": "x",
        "models": [model | {"reasoning": False}],
    }
    (folder / "models.json").write_text(json.dumps({"providers": {"fake": provider}}))


def _gemini_settings(home: Path, _url: str) -> None:
    folder = home / ".gemini"
    folder.mkdir(exist_ok=True)
    (folder / "settings.json").write_text(json.dumps({"security": {"auth": {"selectedType": "gemini-api-key"}}}))


def _opencode_config(home: Path, url: str) -> None:
    folder = home / ".config" / "opencode"
    folder.mkdir(parents=True, exist_ok=True)
    provider = {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": f"{url}/v1", "apiKey": "x"}}
    provider |= {"name": "fake", "models": {"m1": {"name": "m1"}}}
    config = {"provider": {"fake": provider}, "autoupdate": False, "permission": "allow"}
    (folder / "opencode.json").write_text(json.dumps(config))


_OPENCODE = ("-m", "fake/m1")
_GEMINI = ("-y", "-m", "gemini-2.5-flash", "-p")
_PI = ("-p", "--provider", "fake", "--model", "m1")
_CODEX = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
_CLAUDE = ("-p", "--dangerously-skip-permissions")
CLIENTS: dict[str, Client] = {
    "claude-code": Client(
        _nothing,
        lambda url: {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "sk-made-up",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "IS_SANDBOX": "1",
        },
        lambda prompt: ["claude", *_CLAUDE, prompt],
        lambda command, prompt: [*command, *_CLAUDE, prompt],
        "claude",
    ),
    "codex": Client(
        _codex_config,
        lambda _url: {"FAKE_KEY": "made-up"},
        lambda prompt: ["codex", "exec", *_CODEX, prompt],
        lambda command, prompt: ["codex", "exec", *_CODEX, "resume", command[-1], prompt],
        "codex",
    ),
    "gemini-cli": Client(
        _gemini_settings,
        lambda url: {
            "GEMINI_API_KEY": "made-up",
            "GOOGLE_GEMINI_BASE_URL": url,
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        },
        lambda prompt: ["gemini", *_GEMINI, prompt],
        lambda command, prompt: [*command, *_GEMINI, prompt],
        "gemini",
    ),
    "opencode": Client(
        _opencode_config,
        lambda _url: {"OPENCODE_DISABLE_MODELS_FETCH": "1"},
        lambda prompt: ["opencode", "run", *_OPENCODE, prompt],
        lambda command, prompt: ["opencode", "run", *command[1:], *_OPENCODE, prompt],
        "opencode",
    ),
    "pi": Client(
        _pi_models,
        lambda _url: {"PI_OFFLINE": "1"},
        lambda prompt: ["pi", *_PI, prompt],
        lambda command, prompt: [*command, *_PI, prompt],
        "pi",
    ),
}


class Home:
    """A home of a user with clients, a ledger beside it, and a model."""

    def __init__(self, folder: Path, model: FakeModel) -> None:
        self.folder, self.model, self.work = folder / "home", model, folder / "work"
        self.ledger = folder / "ledger"
        self.folder.mkdir()
        self.work.mkdir()

    def run(self, client: Client, command: Sequence[str]) -> str:
        """Return what a command of a client prints, which has its own home and nothing else."""
        client.prepare(self.folder, self.model.url)
        environment = {"HOME": str(self.folder), "PATH": f"{PROGRAMS}:{os.environ['PATH']}", "TERM": "dumb"}
        done = subprocess.run(
            command,
            cwd=self.work,
            env=environment | dict(client.environment(self.model.url)),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def chatledger(self, *arguments: str) -> str:
        """Return what a command of ours prints on stdout."""
        environment = {"CHATLEDGER_KEEP": str(self.ledger), "HOME": str(self.folder)}
        environment |= {"XDG_CACHE_HOME": str(self.folder / "cache"), "CODEX_HOME": "", "CLAUDE_CONFIG_DIR": ""}
        outcome = CliRunner(env=environment).invoke(cli, [*arguments], standalone_mode=False)
        assert outcome.return_value in {0, None}, (outcome.output, outcome.exception)
        return outcome.stdout

    def files(self) -> dict[str, tuple[bytes, int]]:
        """Return what the agents have: bytes and times of their transcripts."""
        paths = [path for path in self.folder.rglob("*.jsonl") if "cache" not in path.parts]
        return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with fake_model() as model:
        yield Home(tmp_path, model)


@pytest.mark.parametrize(("source", "target"), [*itertools.product(CLIENTS, CLIENTS)])
def test_a_session_is_kept_and_gone_on_with(home: Home, source: str, target: str) -> None:
    for name in (source, target):
        if not (PROGRAMS / CLIENTS[name].program).exists():
            pytest.skip(f"{name} is not installed in {PROGRAMS}")
    home.run(CLIENTS[source], CLIENTS[source].command(PROMPT))
    before = home.files()
    home.chatledger("keep")
    (session,) = json.loads(home.chatledger("sessions", "--json"))
    exported = home.chatledger("export", session["session"], "--format", source)

    assert session["agent"] == source
    assert ("Seen." if source == "opencode" else PROMPT) in session["title"], "a model's title, or the prompt"
    assert home.files() == before, "their own files are only read"
    own = [content.decode() for content, _ in before.values()]
    if source == "opencode":  # which has a database, and prints with a line break
        own = [home.run(CLIENTS[source], ["opencode", "export", session["session"]]).strip()]
    assert exported in own, "byte for byte"

    CLIENTS[target].prepare(home.folder, home.model.url)
    resumed: Any = json.loads(home.chatledger("resume", session["session"], "--in", target, "--json"))
    if "prepare" in resumed:
        home.run(CLIENTS[target], resumed["prepare"])
    home.model.requests.clear()
    home.run(CLIENTS[target], CLIENTS[target].go_on(resumed["command"], NEXT))
    request = json.dumps(home.model.requests[0])
    # Not the exit code, but what the model is told says that the client goes on: the prompt, the call, its result, the answer.
    at = 0
    for text in (PROMPT, "echo tool-output", "tool-output", "Seen.", NEXT):
        at = request.find(text, at) + len(text)
        assert at >= len(text), f"{text!r} is not there, or not in its place"
    home.chatledger("keep")
    sessions = json.loads(home.chatledger("sessions", "--json"))
    assert sorted(session["agent"] for session in sessions)[:1] == [min(source, target)]
    assert home.chatledger("search", "second", "--kept", "--json") != "[\n]\n"
