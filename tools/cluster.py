"""
The topology of `deploy/compose.yaml` without Docker: three NATS servers, two `chatledger serve`, and nginx if that is installed.

`make cluster` runs it in `build/cluster` until Ctrl-C. The files in `deploy/` are those that are used. What was written stays for the
next time.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from secrets import token_hex
from typing import Self
from urllib.request import urlopen

from chatledger.infra.log.nats_server.launcher import find_nats_server

DEPLOY = Path(__file__).parents[1] / "deploy"
PREFIX = "/ledger"
COPIES = 3
SERVERS = 2
PATIENCE_S = 60.0
HOST = "127.0.0.1"
_NGINX = """daemon off;
pid nginx.pid;
error_log stderr;
events {}
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    include site.conf;
}
"""


class Cluster:
    """Processes in a folder, at the ports after `port`, which is that of the proxy."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder.absolute(), port
        self.addresses = [f"{HOST}:{port + 1 + number}" for number in range(SERVERS)]
        self.nats_ports = [port + 1 + SERVERS + number for number in range(COPIES)]
        self._processes = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as started:
            self._processes = started
            self._start()
            self._processes = started.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.close()

    @property
    def keys(self) -> Path:
        """The file of API keys of both servers."""
        return self.folder / "api.keys"

    @property
    def has_proxy(self) -> bool:
        """Whether nginx stands before the servers."""
        return shutil.which("nginx") is not None

    @property
    def location(self) -> str:
        """Where the ledger is, for `chatledger --location`."""
        return f"nats://chatledger:{self._passwords()['APP_PASSWORD']}@{','.join(f'{HOST}:{port}' for port in self.nats_ports)}/chats"

    def _start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        passwords = self._passwords()
        routes = [f"nats://route:{passwords['ROUTE_PASSWORD']}@{HOST}:{port + COPIES}" for port in self.nats_ports]
        for number, port in enumerate(self.nats_ports, 1):
            settings = passwords | {
                "SERVER_NAME": f"nats-{number}",
                "HOST": HOST,
                "PORT": str(port),
                "ROUTE_PORT": str(port + COPIES),
                "MONITOR": f"{HOST}:{port + 2 * COPIES}",
                "STORE": str(self.folder / f"nats-{number}"),
                "ROUTES": f"[{', '.join(routes)}]",
            }
            self._run(f"nats-{number}", [find_nats_server(), "--config", str(DEPLOY / "nats.conf")], settings)
        for port in self.nats_ports:
            self._wait(f"http://{HOST}:{port + 2 * COPIES}/healthz")
        for number, address in enumerate(self.addresses, 1):
            serve = [sys.executable, "-m", "chatledger", "serve", "--create", "--port", address.rpartition(":")[2]]
            serve += ["--keys", str(self.keys), "--root-path", PREFIX, "--no-access-log"]
            settings = {"CHATLEDGER_LOCATION": self.location, "XDG_CACHE_HOME": str(self.folder / f"serve-{number}")}
            self._run(f"serve-{number}", serve, settings)
        for address in self.addresses:
            self._wait(f"http://{address}/readyz")
        if self.has_proxy:
            self._run_proxy()

    def _run_proxy(self) -> None:
        site = (DEPLOY / "nginx.conf").read_text().replace("listen 8080", f"listen {HOST}:{self.port}")
        for number, address in enumerate(self.addresses, 1):
            site = site.replace(f"serve-{number}:8230", address)
        folder = self.folder / "nginx"
        folder.mkdir(exist_ok=True)
        (folder / "site.conf").write_text(site)
        (folder / "nginx.conf").write_text(_NGINX)
        self._run("nginx", ["nginx", "-p", str(folder), "-c", "nginx.conf", "-e", "stderr"], {})
        self._wait(f"http://{HOST}:{self.port}{PREFIX}/livez")

    def _passwords(self) -> dict[str, str]:
        path = self.folder / "passwords"
        if not path.exists():
            # One that begins with a digit would be a number to nats-server.
            names = ("APP_PASSWORD", "ROUTE_PASSWORD", "SYS_PASSWORD")
            path.touch(0o600)
            path.write_text("".join(f"{name}=p{token_hex(16)}\n" for name in names))
        return dict(line.split("=", 1) for line in path.read_text().splitlines())

    def _run(self, name: str, command: list[str], settings: dict[str, str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            # A group of its own: Ctrl-C in the terminal ends this program, which ends these in turn.
            process = subprocess.Popen(command, env=os.environ | settings, stdout=log, stderr=log, process_group=0)
        self._processes.callback(_end, process)

    def _wait(self, url: str) -> None:
        ends_at = time.monotonic() + PATIENCE_S
        while True:
            with suppress(OSError), urlopen(url, timeout=5):
                return
            if time.monotonic() > ends_at:
                sys.exit(f"{url} does not answer; the logs are in {self.folder}")
            time.sleep(0.1)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main() -> None:
    """Run the cluster until it is interrupted."""
    parser = argparse.ArgumentParser(
        description="Three NATS servers, two chatledger servers, and nginx if it is installed."
    )
    parser.add_argument("--folder", type=Path, default=Path("build/cluster"), help="data, passwords and logs")
    parser.add_argument("--port", type=int, default=8240, help="the proxy's; the 11 after it are used too")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell that starts it in the background has the first one ignored
        signal.signal(number, signal.default_int_handler)
    cluster = Cluster(options.folder, options.port)
    if not cluster.keys.exists():
        cluster.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        add = ["keys", "add", "admin", "--all-users", "--scope", "admin", "--keys", str(cluster.keys)]
        key = subprocess.run([sys.executable, "-m", "chatledger", *add], check=True, capture_output=True, text=True)
        print(f"key       {key.stdout.split()[0]} (shown this once)")
    with suppress(KeyboardInterrupt), cluster:
        print(f"location  {cluster.location}")
        print(f"servers   {' '.join(f'http://{address}{PREFIX}/' for address in cluster.addresses)}")
        print(
            f"explore   http://{HOST}:{cluster.port}{PREFIX}/"
            if cluster.has_proxy
            else "nginx is not installed: no proxy"
        )
        print("Ctrl-C ends it.", flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
