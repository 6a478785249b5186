"""Scripts and styles: read once from the package, under a path that names their content, so that browsers keep them."""

import gzip
import hashlib
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from ..http.problems import RequestError
from .page import SAFE_HEADERS

PREFIX: Final = "/static"
ICON: Final = "/favicon.ico"
_MEDIA_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FOR_EVER: Final = "public, max-age=31536000, immutable"


class StaticFiles:
    """
    All static files of the explorer, in memory.

    One hash of all of them is part of their path, so that modules import each other by relative paths and never mix versions.
    """

    def __init__(self) -> None:
        self._files: dict[str, tuple[bytes, bytes, str]] = {}
        whole = hashlib.sha256()
        for file in sorted(
            files("chatledger.infra.entrypoints.explorer").joinpath("static").iterdir(), key=lambda file: file.name
        ):
            suffix = file.name[file.name.rfind(".") :]
            if suffix not in _MEDIA_TYPES:
                continue
            content = file.read_bytes()
            whole.update(file.name.encode() + b"\0" + content)
            self._files[file.name] = content, gzip.compress(content, 9, mtime=0), _MEDIA_TYPES[suffix]
        self.version: Final = whole.hexdigest()[:16]

    def path(self, name: str) -> str:
        """Return the path of a file, for templates."""
        assert name in self._files, f"no static file {name!r}"
        return f"{PREFIX}/{self.version}/{name}"

    @property
    def names(self) -> list[str]:
        """The names of all files."""
        return list(self._files)

    @property
    def gzipped_bytes(self) -> int:
        """Bytes of all files, compressed."""
        return sum(len(compressed) for _, compressed, _ in self._files.values())

    async def answer(self, request: Request) -> Response:
        """
        Answer with a file.

        Raises:
            RequestError: There is none of this name.
        """
        file = self._files.get(request.path_params["name"])
        if file is None:
            raise RequestError(404, "there is no such file", name="NotFound")
        return self._answer(request, file, is_current=request.path_params["version"] == self.version)

    async def answer_icon(self, request: Request) -> Response:
        """Answer with the icon, for which browsers ask by themselves where no page names one."""
        # Its path has no hash, so browsers ask each time whether it changed.
        return self._answer(request, self._files["icon.svg"], is_current=False)

    @staticmethod
    def _answer(request: Request, file: tuple[bytes, bytes, str], *, is_current: bool) -> Response:
        content, compressed, media_type = file
        headers = SAFE_HEADERS | {"Cache-Control": _FOR_EVER if is_current else "no-cache", "Vary": "Accept-Encoding"}
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(compressed, 200, headers | {"Content-Encoding": "gzip"}, media_type)
        return Response(content, 200, headers, media_type)
