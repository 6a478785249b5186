"""Hostile markup: what people write who want a script of theirs to run in somebody else's browser, and a check that none can."""

import re
from html.parser import HTMLParser

RUN = "window.pwned=1"
PAYLOADS = [
    f"<script>{RUN}</script>",
    f"<ScRiPt>{RUN}</sCrIpT>",
    f"</script><script>{RUN}</script>",
    f"</title><script>{RUN}</script>",
    f"</textarea><script>{RUN}</script>",
    f"--><script>{RUN}</script><!--",
    f"]]><script>{RUN}</script>",
    f"<img src=x onerror={RUN}>",
    f"<img src=x onerror='{RUN}'//",
    f'"><img src=x onerror={RUN}>',
    f"'><img src=x onerror={RUN}>",
    f'" onmouseover="{RUN}" x="',
    f'" autofocus onfocus="{RUN}" x="',
    f"' onclick='{RUN}' x='",
    f"` onclick=`{RUN}` x=`",
    f"<svg onload={RUN}>",
    f"<svg><script>{RUN}</script></svg>",
    f"<svg><animate onbegin={RUN} attributeName=x></svg>",
    f'<math><mtext></form><form><mglyph><svg><mtext><style><path id="</style><img onerror={RUN} src>">',
    f"<body onload={RUN}>",
    f"<details open ontoggle={RUN}>",
    f"<video><source onerror={RUN}></video>",
    f'<iframe srcdoc="<script>parent.{RUN}</script>"></iframe>',
    f'<iframe src="javascript:{RUN}"></iframe>',
    f'<object data="javascript:{RUN}"></object>',
    f'<embed src="javascript:{RUN}">',
    f'<form action="javascript:{RUN}"><button>x</button></form>',
    f'<a href="javascript:{RUN}">x</a>',
    f'<meta http-equiv="refresh" content="0;url=javascript:{RUN}">',
    '<base href="https://evil.example/">',
    '<link rel="stylesheet" href="https://evil.example/x.css">',
    "<style>@import 'https://evil.example/x.css';</style>",
    '<img src="https://evil.example/pixel.png">',
    f'<noscript><p title="</noscript><img src=x onerror={RUN}>">',
    f"[x](javascript:{RUN})",
    f"[x](JaVaScRiPt:{RUN})",
    f"[x](java\tscript:{RUN})",
    f"[x](javascript&colon;{RUN})",
    f"[x](&#106;avascript:{RUN})",
    f"[x](\x01javascript:{RUN})",
    f"[x](<javascript:{RUN}>)",
    f"[x](vbscript:{RUN})",
    f"[x](data:text/html,<script>{RUN}</script>)",
    "[x](data:text/html;base64,PHNjcmlwdD53aW5kb3cucHduZWQ9MTwvc2NyaXB0Pg==)",
    f'[x](https://x "y\\" onmouseover={RUN}")',
    f'[x](https://x" onmouseover="{RUN})',
    "![x](https://evil.example/pixel.png)",
    f"![x](javascript:{RUN})",
    f'![x](data:image/svg+xml,<svg onload="{RUN}">)',
    f'![x" onerror="{RUN}](data:image/png;base64,AAAA)',
    f'![x](data:image/png;base64,AAAA" onerror="{RUN})',
    f"<javascript:{RUN}>",
    f"[x]: javascript:{RUN}\n\n[x]",
    f"```html\n<script>{RUN}</script>\n```",
    f'```"><script>{RUN}</script>\nx\n```',
    f"```python'onclick='{RUN}\nx\n```",
    f"| a |\n|---|\n| <img src=x onerror={RUN}> |",
    f"{{{{ {RUN} }}}}{{% raw %}}",
    "\u202e<script>gnp.exe\u202c",
    "\x00<script\x00>x</script>",
    "%3Cscript%3Ewindow.pwned=1%3C/script%3E",
    "//evil.example/",
    "/\\evil.example",
    "..",
    "../../sign-in?token=x",
]

_ADDRESSES = {"href", "src", "action", "formaction", "poster", "data", "srcset", "xlink:href"}
_HARMLESS = re.compile(r"(https?://|mailto:|/(?![/\\])|\?|#)", re.IGNORECASE)
_IMAGE = re.compile(r"data:image/(png|jpeg|gif|webp|avif);base64,", re.IGNORECASE)
_NEVER = {"iframe", "object", "embed", "base", "style", "svg", "math", "frame", "applet", "template"}


class _Reader(HTMLParser):
    """Collects what could run or be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Look at an element."""
        # Our own drawings are for the eye alone, and say so.
        if tag in _NEVER and not (tag == "svg" and dict(attrs).get("aria-hidden") == "true"):
            self.faults.append(f"<{tag}>")
        if tag == "script" and not str(dict(attrs).get("src") or "").startswith("/static/"):
            self.faults.append("a script that is not ours")
        if tag == "meta" and dict(attrs).get("http-equiv"):
            self.faults.append("a meta element that acts")
        for name, value in attrs:
            if name.startswith("on") or name in {"style", "srcdoc"}:
                self.faults.append(f"{tag} {name}={value}")
            if name in _ADDRESSES:
                self._look_at(tag, name, value or "")

    def _look_at(self, tag: str, name: str, value: str) -> None:
        is_fetched = name != "href" or tag == "link"
        is_ours = value.startswith("/") and not value.startswith(("//", "/\\"))
        is_image = tag == "img" and _IMAGE.match(value)
        if not (is_ours or is_image or (not is_fetched and _HARMLESS.match(value))):
            self.faults.append(f"{tag} {name}={value}")


def faults_in(page: str) -> list[str]:
    """List what in a page could run or be fetched from elsewhere; nothing, if all is well."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    return reader.faults


def hostile_messages(payload: str) -> list[tuple[str, object]]:
    """Messages, as names and data, that have a payload in each place that is shown."""
    call = {"type": "dynamic-tool", "toolName": payload, "toolCallId": payload, "state": "output-available"}
    return [
        ("user", payload),
        ("assistant", payload),
        (payload or "x", "a name"),
        ("assistant", {"role": payload, "parts": [{"type": "text", "text": payload}]}),
        (
            "assistant",
            {
                "role": "assistant",
                "metadata": {"model": payload, payload: payload},
                "parts": [
                    {"type": "reasoning", "text": payload},
                    {**call, "input": {payload: payload}, "output": payload},
                    {**call, "state": "output-error", "input": payload, "errorText": payload},
                    {"type": f"tool-{payload}", "toolCallId": payload, "state": payload, "input": [payload]},
                    {"type": "file", "mediaType": payload, "url": payload, "filename": payload},
                    {
                        "type": "file",
                        "mediaType": "image/png",
                        "url": "data:image/png;base64,AAAA",
                        "filename": payload,
                    },
                    {"type": "file", "mediaType": "image/svg+xml", "url": f"data:image/svg+xml,{payload}"},
                    {"type": "file", "mediaType": "text/html", "url": f"data:text/html,{payload}"},
                    {"type": "source-url", "sourceId": payload, "url": payload, "title": payload},
                    {"type": "source-document", "title": payload, "filename": payload},
                    {"type": f"data-{payload}", "data": payload},
                    {"type": payload, "text": payload},
                    payload,
                ],
            },
        ),
        ("user", {"role": "user", "content": [{"type": "image_url", "image_url": {"url": payload}}]}),
        ("tool", {"role": "tool", "tool_call_id": payload, "content": payload}),
        ("assistant", {"role": "assistant", "content": payload, "refusal": payload}),
        ("assistant", {"role": "assistant", "content": [{"type": "thinking", "thinking": payload, "signature": "x"}]}),
        ("assistant", {"role": "model", "parts": [{"functionCall": {"name": payload, "args": {payload: 1}}}]}),
        ("assistant", {"type": "function_call", "call_id": payload, "name": payload, "arguments": payload}),
        ("note", {payload: [payload]}),
    ]
