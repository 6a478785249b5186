"""
The documentation as a site that is read without a network: `make site`, which writes `build/site`.

The pages are those of `docs/`, in the order in which `docs/index.md` lists them. What they link to outside of `docs/`, such as a source,
comes along as a text, so that nothing of the site leads to another host. For agents there are `llms.txt`, which lists the pages, and
`llms-full.txt`, which has them.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, TypeAlias

DOCS: Final = Path(__file__).parent
ROOT: Final = DOCS.parent
PAGES, SITE = "site-pages", "site"
"""The folders of what the site is built from, and of the site."""
_LINK: Final = re.compile(r"(?<=\]\()(?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?(?=\))")
_ENTRY: Final = re.compile(r"^- \[(?P<title>[^\]]+)\]\((?P<page>[^)]+\.md)\)(?P<more>.*)$", re.MULTILINE)
_FENCE: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
Entry: TypeAlias = "str | list[Entry] | dict[str, Entry]"
"""An entry of the navigation: a page by its title, or the entries below a heading."""
BESIDE: Final = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md")
"""Pages that lie beside `docs/`."""


def place_of(path: Path) -> Path:
    """Return where a file of the project is in the site."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS)
    inside = path.relative_to(ROOT)
    if inside.name in BESIDE:
        return Path("about", inside.name.lower())
    return Path("source") / f"{inside}.txt"  # as a text, which browsers show


def page_text(path: Path, linked: set[Path]) -> str:
    """Return a page with its links as they are in the site; what they lead to outside of `docs/` is added to `linked`."""
    here = place_of(path).parent

    def link(match: re.Match[str]) -> str:
        target = (path.parent / match[1]).resolve()
        if not target.is_relative_to(DOCS) and target.name not in BESIDE:
            linked.add(target)
        return Path(*[".."] * len(here.parts), place_of(target)).as_posix() + (match[2] or "")

    text = path.read_text(encoding="utf-8")
    fences = iter(_FENCE.findall(text))
    # What looks like a link in an example is none.
    return "".join(_LINK.sub(link, prose) + next(fences, "") for prose in _FENCE.split(text))


def sections() -> list[tuple[str, list[re.Match[str]]]]:
    """Return the headings of `docs/index.md` with the pages below each."""
    _, *parts = re.split(r"^## (.+)$", (DOCS / "index.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [(heading, list(_ENTRY.finditer(text))) for heading, text in zip(parts[::2], parts[1::2], strict=True)]


def write_pages(folder: Path) -> list[Path]:
    """Write the pages that the site is built from, and return those of the project in the order of the index."""
    shutil.rmtree(folder, ignore_errors=True)
    linked: set[Path] = set()
    listed = [(DOCS / entry["page"]).resolve() for _, entries in sections() for entry in entries]
    every = [*dict.fromkeys([DOCS / "index.md", *listed, *sorted(DOCS.rglob("*.md"))])]
    for path in every:
        target = folder / place_of(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(page_text(path, linked), encoding="utf-8")
    for file in [*linked, *DOCS.rglob("*.png"), *DOCS.rglob("*.svg"), *DOCS.rglob("*.json")]:
        target = folder / place_of(file)
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.is_dir():
            target.write_text(
                "\n".join(sorted(entry.name for entry in file.iterdir() if entry.suffix)) + "\n", encoding="utf-8"
            )
        else:
            shutil.copyfile(file, target)
    return every


def write_for_agents(pages: list[Path], site: Path) -> None:
    """Write `llms.txt`, the list of the pages, and `llms-full.txt`, their texts."""
    lines = [
        "# chatledger",
        "",
        "> State for conversations with AI agents: a DAG of immutable messages on an append-only log.",
    ]
    for heading, entries in sections():
        lines += ["", f"## {heading}", ""]
        lines += [
            f"- [{entry['title']}]({place_of((DOCS / entry['page']).resolve())}){entry['more']}" for entry in entries
        ]
    (site / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    texts = [path.read_text(encoding="utf-8") for path in pages]
    (site / "llms-full.txt").write_text("\n\n".join(texts), encoding="utf-8")
    for path in pages:  # so that an agent which follows a link of the list gets the text, and no HTML
        target = site / place_of(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(site.with_name(PAGES) / place_of(path), target)


def configuration() -> str:
    """Return the settings of the site: its navigation follows `docs/index.md`."""
    navigation: list[Entry] = [{"Documentation": "index.md"}]
    for heading, entries in sections():
        navigation.append(
            {heading: [{entry["title"]: str(place_of((DOCS / entry["page"]).resolve()))} for entry in entries]}
        )
    features = [
        "content.code.copy",
        "navigation.footer",
        "navigation.top",
        "navigation.tracking",
        "search.highlight",
        "toc.follow",
    ]
    palettes = "".join(
        f'[[project.theme.palette]]\nmedia = "(prefers-color-scheme: {scheme})"\nscheme = "{name}"\n'
        f'toggle.icon = "lucide/{icon}"\ntoggle.name = "Switch to {other} mode"\n'
        for scheme, name, icon, other in (("light", "default", "sun", "dark"), ("dark", "slate", "moon", "light"))
    )
    return f"""[project]
site_name = "chatledger"
site_description = "State for conversations with AI agents"
docs_dir = "{PAGES}"
site_dir = "{SITE}"
use_directory_urls = false
nav = {_toml(navigation)}
[project.theme]
language = "en"
font = false
features = {json.dumps(features)}
{palettes}
[project.markdown_extensions]
tables = {{}}
toc.permalink = true
pymdownx.highlight.pygments_lang_class = true
pymdownx.superfences = {{}}
"""


def _toml(value: Entry) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)


def build(folder: Path) -> int:
    """Build the site in a folder and return the status: a warning, such as of a link that leads nowhere, is an error."""
    pages = write_pages(folder / PAGES)
    settings = folder / "zensical.toml"
    settings.write_text(configuration(), encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "--config-file", str(settings)]
    status = subprocess.run(command, check=False).returncode  # noqa: S603 - nothing of it is from elsewhere
    if not status:
        write_for_agents(pages, folder / SITE)
    return status


if __name__ == "__main__":
    (ROOT / "build").mkdir(exist_ok=True)
    sys.exit(build(ROOT / "build"))
