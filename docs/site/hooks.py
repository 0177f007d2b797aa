"""The site's hooks: pages from outside docs/, pages that the code makes, links between them all.

Documents link to each other as they lie in the repository, so that they can be read there. Here a
link to a page of the site leads to it, and one to any other file of the repository to its source.
"""

from __future__ import annotations

import posixpath
import re
import sys
from importlib.metadata import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parent.parent.parent
OUTSIDE: Final = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "benchmarks.md",
    "examples/README.md": "examples.md",
}
"""Pages of the site that lie elsewhere, by their place in the repository."""
BRANCH: Final = "main"

_LINK: Final = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")
_FETCHED: Final = re.compile(
    r"""<(?:script|img|iframe|link(?=[^>]*\brel="?(?:stylesheet|preload|preconnect)))\b[^>]*?"""
    r"""\b(?:src|href)="?((?:https?:)?//[^"\s>]+)"""
)
_NESTED: Final = re.compile(r"^( +)(?=[-*] |[0-9]+\. )")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Take the places of project and site from where the package says them."""
    package = metadata("pytest-dlperf")
    urls = dict(text.split(", ", 1) for text in package.get_all("Project-URL") or ())
    config.site_description = package["Summary"]
    config.site_url = urls["Documentation"]
    config.repo_url = urls["Source"]
    config.repo_name = posixpath.basename(config.repo_url)
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages from outside docs/, and those that the code makes."""
    sys.path.insert(0, str(Path(__file__).parent))
    try:
        import reference
    finally:
        sys.path.pop(0)
    for source, page in OUTSIDE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        if page == "index.md":
            text = f"---\nhide: [navigation]\n---\n{text}"
        files.append(File.generated(config, page, content=text))
    for page, text in reference.pages(ROOT).items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links between files into links between pages, and lists into those of this Markdown."""
    here = {page: source for source, page in OUTSIDE.items()}.get(
        page.file.src_uri, f"docs/{page.file.src_uri}"
    )

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(here), match[1]))
        site = OUTSIDE.get(target, target.removeprefix("docs/"))
        if (target in OUTSIDE or target.startswith("docs/")) and files.get_file_from_path(site):
            return posixpath.relpath(site, posixpath.dirname(page.file.src_uri) or ".")
        kind = "tree" if (ROOT / target).is_dir() else "blob"
        # A link that leads nowhere stays as it is: the build then fails with it.
        exists = (ROOT / target).exists()
        return f"{config.repo_url}/{kind}/{BRANCH}/{target}" if exists else match[1]

    return "\n".join(
        line if is_code else _LINK.sub(link, _NESTED.sub(r"\1\1", line))
        for line, is_code in _lines(markdown)
    )


def on_post_page(output: str, *, page: Page, config: MkDocsConfig) -> str:
    """Refuse a page that would fetch something from elsewhere."""
    for fetched in _FETCHED.findall(output):
        if not fetched.startswith(config.site_url or ""):
            raise PluginError(f"{page.file.src_uri} fetches {fetched}")
    return output


def _lines(markdown: str) -> Iterator[tuple[str, bool]]:
    """Give the lines of a document, and whether each belongs to a block of code."""
    inside = False
    for line in markdown.splitlines():
        fence = line.lstrip().startswith("```")
        yield line, inside or fence or line.startswith("    ")
        inside ^= fence
