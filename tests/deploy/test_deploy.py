"""The files in `deploy/`: what they name is there, and their topology holds what the page says."""

import re
import signal
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import httpx
import pytest

REPOSITORY = Path(__file__).parents[2]
DEPLOY = REPOSITORY / "deploy"
PORTS = 12


def test_the_image_has_what_there_is() -> None:
    """Its extras are extras, and what is copied into it is in the repository."""
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    extras = re.search("^ARG EXTRAS=(.*)$", dockerfile, re.MULTILINE)
    shown = [line[1:] for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]

    assert extras is not None
    assert set(extras[1].split(",")) <= set(project["optional-dependencies"])
    assert [] == [name for name in shown if not (REPOSITORY / name).exists()]
    assert {"pyproject.toml", project["readme"], *project["license-files"]} <= set(shown)


def test_the_files_name_options_that_there_are() -> None:
    """What containers and the unit start is understood: each option of `chatledger serve` that they give."""
    told = subprocess.run(
        [sys.executable, "-m", "chatledger", "serve", "--help"], capture_output=True, text=True, check=True
    )
    for name in ("Dockerfile", "compose.yaml", "chatledger.service"):
        started = [line for line in (DEPLOY / name).read_text().splitlines() if re.search(r"\bserve\b.*--", line)]
        given = re.findall(r"--[a-z-]+", " ".join(started))

        assert given, name
        assert [] == [option for option in given if option not in told.stdout], name


def _free_ports() -> int:
    """The first of some ports in a row that nobody listens at."""
    for first in range(21_000, 29_000, PORTS):
        try:
            for port in range(first, first + PORTS):
                with socket.create_server(("127.0.0.1", port)):
                    pass
        except OSError:
            continue
        return first
    pytest.fail("no ports are free")


@pytest.mark.guard
@pytest.mark.timeout(300)
def test_two_servers_are_one(tmp_path: Path) -> None:
    """What is written at one is read at the other, browsers stay signed in, and all ends with Ctrl-C; through nginx, if that is here."""
    port = _free_ports()
    command = [sys.executable, "-m", "tools.cluster", "--folder", str(tmp_path / "cluster"), "--port", str(port)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            told = dict(line.split(maxsplit=1) for line in iter(process.stdout.readline, "Ctrl-C ends it.\n") if line)
            key = told["key"].split()[0]
            addresses = told["servers"].split() * 2 if "nginx" in told else [told["explore"].strip()] * 8
            # As a proxy would say it: the address that the browser knows.
            headers = {"Host": f"127.0.0.1:{port}", "Accept": "text/html"}
            with httpx.Client(timeout=60, headers=headers) as browser:
                for number, address in enumerate(told["servers"].split()):
                    api = {"X-Api-Key": key, "Accept": "application/json"}
                    chat = {"id": f"team/{number}", "user_id": "ada", "title": f"Dinner {number}"}
                    browser.post(f"{address}api/v1/chats", json=chat, headers=api).raise_for_status()
                origin = {"Origin": f"http://127.0.0.1:{port}"}
                entered = browser.post(f"{addresses[0]}sign-in", data={"key": key}, headers=origin)
                assert 303 == entered.status_code
                cookie = {"Cookie": entered.headers["set-cookie"].partition(";")[0]}
                for address in addresses:
                    page = browser.get(address, headers=cookie)
                    deadline = time.monotonic() + 10
                    while "Dinner 1" not in page.text and time.monotonic() < deadline:
                        time.sleep(0.1)  # a server takes in within moments what another one wrote
                        page = browser.get(address, headers=cookie)
                    assert 200 == page.status_code
                    assert 'href="/ledger/c/team%2F0"' in page.text
                    assert "Dinner 1" in page.text
        finally:
            process.send_signal(signal.SIGINT)
        assert 0 == process.wait(120)
    with socket.create_server(("127.0.0.1", port + 1)):
        pass
    for log in (tmp_path / "cluster").glob("*.log"):
        assert "Traceback" not in log.read_text(), log
