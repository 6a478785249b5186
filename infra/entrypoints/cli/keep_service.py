"""`keep --install` and `--uninstall`: the file by which systemd or launchd runs `keep --watch` for a user, from login on."""

import contextlib
import json
import os
import plistlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from chatledger.domain.errors import ConfigurationError

from ...operating_system import write_private
from .options import KEEP_ENV
from .output import print_note, print_text

UNIT, _LABEL = "chatledger-keep.service", "chatledger.keep"
_OURS: Final = "chatledger keep wrote this file, to be installed; to uninstall it removes it, and these folders: "
_CARRIED: Final = (
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "GEMINI_CLI_HOME",
    "OPENCODE_DB",
    "PI_CODING_AGENT_DIR",
    "PI_CODING_AGENT_SESSION_DIR",
    "XDG_DATA_HOME",
)
"""Variables that say where agents keep their files: a service does not get those of a shell."""


class LoginService(NamedTuple):
    """
    A file that has a program run for a user.

    Args:
        path: The file.
        text: What it says; the remark that it is ours goes in the place of `{}`.
        link: A link to it, by which it is run at login; None where it needs none.
        start: Commands that run the program now, in this order.
        stop: A command that ends it.
    """

    path: Path
    text: str
    link: Path | None
    start: Sequence[Sequence[str]]
    stop: Sequence[str]


def service_of(arguments: Sequence[str], environ: Mapping[str, str]) -> LoginService:
    """
    Return the service that runs `chatledger` with arguments and the variables that matter of an environment.

    Raises:
        ConfigurationError: On this system there is none.
    """
    command = [sys.executable, "-m", "chatledger", *arguments]
    carried = {name: environ[name] for name in (KEEP_ENV, *_CARRIED) if environ.get(name)}
    if sys.platform == "darwin":
        return launchd_agent(command, carried)
    if sys.platform.startswith("linux"):
        return systemd_unit(command, carried, Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"))
    msg = "on this system nothing is installed; have 'chatledger keep --watch' run at login, as by the Task Scheduler"
    raise ConfigurationError(msg)


def systemd_unit(command: Sequence[str], environ: Mapping[str, str], config: Path) -> LoginService:
    """Return the service as a unit of the user's systemd."""
    # Dollars are variables in commands only.
    run = " ".join(_quoted(argument).replace("$", "$$") for argument in command)
    lines = [
        "# {}",
        "[Unit]",
        "Description=chatledger keep: the transcripts of coding agents",
        "",
        "[Service]",
        f"ExecStart={run}",
        *(f"Environment={_quoted(f'{name}={value}')}" for name, value in environ.items()),
        "Restart=on-failure",
        "RestartSec=30",
        "Nice=10",
        "",
        "[Install]",
        "WantedBy=default.target",
        "",
    ]
    folder = config / "systemd" / "user"
    control = ("systemctl", "--user")
    start = ((*control, "daemon-reload"), (*control, "restart", UNIT))
    link = folder / "default.target.wants" / UNIT
    return LoginService(folder / UNIT, "\n".join(lines), link, start, (*control, "stop", UNIT))


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("\n", "\\n")
    return f'"{escaped}"'


def launchd_agent(command: Sequence[str], environ: Mapping[str, str]) -> LoginService:
    """Return the service as an agent of the user's launchd."""
    path = Path.home() / "Library" / "LaunchAgents" / f"{_LABEL}.plist"
    told = {
        "Label": _LABEL,
        "ProgramArguments": list(command),
        "EnvironmentVariables": dict(environ),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ProcessType": "Background",
    }
    text = plistlib.dumps(told).decode().replace("<dict>", "<!-- {} -->\n<dict>", 1)
    domain = f"gui/{os.getuid()}"
    stop = ("launchctl", "bootout", f"{domain}/{_LABEL}")
    return LoginService(path, text, None, (stop, ("launchctl", "bootstrap", domain, str(path))), stop)


def install(service: LoginService, *, is_dry: bool) -> None:
    """
    Write a service and start it, and say what was written and run; only say it, where `is_dry`.

    Raises:
        ConfigurationError: Somebody else wrote a file or a link of that name.
    """
    made_folders = _made_folders(service.path)
    if made_folders is None:
        ends = [service.path, *([] if service.link is None else [service.link])]
        above = {folder for end in ends for folder in end.parents if not folder.exists()}
        made_folders = sorted(map(str, above))
    # A comment of XML must not have `--`, which names of folders may.
    text = service.text.replace("{}", _OURS + json.dumps(made_folders).replace("--", "-\\u002d"), 1)
    is_linked = service.link is None or _leads_to(service.link, service.path)
    if is_linked and service.path.is_file() and service.path.read_text(encoding="utf-8") == text:
        print_text(f"{service.path} says so already.")
        return
    print_text(f"{service.path}:")
    for line in text.splitlines():
        print_text(line)
    if is_dry:
        return
    write_private(service.path, text)
    if service.link is not None and not is_linked:
        service.link.parent.mkdir(mode=0o700, exist_ok=True)
        service.link.symlink_to(service.path)
    if not [_is_run(command) for command in service.start][-1]:
        print_note("it could not be started now, and starts when you log in again")


def uninstall(service: LoginService, *, is_dry: bool) -> None:
    """
    End a service and remove what `install` wrote, and say what; only say it, where `is_dry`.

    Raises:
        ConfigurationError: Somebody else wrote a file or a link of that name.
    """
    made_folders = _made_folders(service.path)
    if made_folders is None:
        print_text(f"{service.path} is not there.")
        return
    ours = [service.path, *([service.link] if service.link and _leads_to(service.link, service.path) else [])]
    for path in ours:
        print_text(f"would remove {path}" if is_dry else f"removes {path}")
    if is_dry:
        return
    _is_run(service.stop)
    for path in ours:
        path.unlink()
    for folder in sorted(made_folders, reverse=True):
        with contextlib.suppress(OSError):  # somebody else uses it now
            Path(folder).rmdir()
    if service.link is not None:
        _is_run(service.start[0])  # systemd forgets the unit


def _made_folders(path: Path) -> list[str] | None:
    """The folders that were made for a service; None where it is not installed."""
    if not path.exists() and not path.is_symlink():
        return None
    _, is_ours, rest = path.read_text(encoding="utf-8", errors="replace").partition(_OURS)
    if not is_ours:
        msg = f"{path} is there, and not by 'chatledger keep --install'; move it away first"
        raise ConfigurationError(msg)
    folders: list[str] = json.JSONDecoder().raw_decode(rest)[0]
    return folders


def _leads_to(link: Path, path: Path) -> bool:
    if not link.is_symlink() and not link.exists():
        return False
    if link.is_symlink() and link.readlink() == path:
        return True
    msg = f"{link} is there, and not by 'chatledger keep --install'; move it away first"
    raise ConfigurationError(msg)


def _is_run(command: Sequence[str]) -> bool:
    print_text(f"$ {' '.join(command)}", "dim")
    try:
        run = subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603 - of the system, as a user would type it
    except OSError:
        return False
    return run.returncode == 0
