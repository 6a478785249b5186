"""Scripts and styles: read once from the package, under a path that names their content, so that browsers keep them."""

import gzip
import hashlib
import re
from importlib.resources import files
from typing import Final

from markupsafe import Markup
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
_FOR_READERS: Final = re.compile(
    rb"^[ \t]*(?:(?://[^\n]*|/\*(?:[^*]|\*(?!/))*\*/[ \t]*)\n)?|/\*\* @type [^*\n]*\*/ ?", re.MULTILINE
)
"""Comments on lines of their own, types, and indentation: a fifth of what browsers would load."""
_IMPORT: Final = re.compile(rb'^import (?:[^"]* from )?"\./([^"]+)"', re.MULTILINE)


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
            content = _FOR_READERS.sub(b"", file.read_bytes())
            whole.update(file.name.encode() + b"\0" + content)
            self._files[file.name] = content, gzip.compress(content, 9, mtime=0), _MEDIA_TYPES[suffix]
        self.version: Final = whole.hexdigest()[:16]
        self._scripts = {name: self._tags(name) for name in self._files if name.endswith(".js")}

    def path(self, name: str) -> str:
        assert name in self._files, f"no static file {name!r}"
        return f"{PREFIX}/{self.version}/{name}"

    def script(self, name: str) -> Markup:
        """Return the tags of a script, for templates, and of the modules that it needs."""
        return self._scripts[name]

    def _tags(self, name: str) -> Markup:
        # A browser learns of an import only when it has read the module that has it. A page would wait for three rounds of
        # requests; what is named beforehand comes in one.
        modules: dict[str, None] = {}
        unread = [name]
        while unread:
            imported = [match.decode() for match in _IMPORT.findall(self._files[unread.pop()][0])]
            unread += [module for module in imported if module not in modules]
            modules |= dict.fromkeys(imported)
        preloaded = (Markup('<link rel="modulepreload" href="{}">\n').format(self.path(module)) for module in modules)
        return Markup().join(preloaded) + Markup('<script type="module" src="{}"></script>').format(self.path(name))

    @property
    def names(self) -> list[str]:
        return list(self._files)

    @property
    def gzipped_bytes(self) -> int:
        return sum(len(compressed) for _, compressed, _ in self._files.values())

    async def answer(self, request: Request) -> Response:
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
