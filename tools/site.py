"""What MkDocs needs to know of this repository: the README is the first page, and links may leave docs/.

MkDocs sees only docs/. GitHub and readers of the sources follow links such as ../campaigns/links.yaml. A file to which a page
links becomes part of the site, below files/, as plain text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

_LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")
_CODE = re.compile(r"```.*?^```|`[^`\n]*`|^    [^\n]*$", re.M | re.S)


def on_files(files: Files, *, config: Any) -> Files:
    """Add the README as index.md, and each file outside docs/ to which a page links."""
    root = Path(config.config_file_path).parent
    readme = (root / "README.md").read_text("utf-8")
    files.append(File.generated(config, "index.md", content=_from_readme(readme)))
    pages = {file.src_uri: file.content_string for file in files if file.is_documentation_page()}
    for page, text in pages.items():
        for target in _outside(page, text):
            if files.get_file_from_path(_inside(target)) is None and (root / target).is_file():
                files.append(File.generated(config, _inside(target), content=(root / target).read_bytes()))
    return files


#: Pages for those who change hpcq: a search is to find the others first.
_LATER = {"architecture.md", "decisions.md", "extending.md", "writing.md"}


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Let links that leave docs/ lead into files/, and the search find what users look for first."""
    if page.file.src_uri in _LATER:
        page.meta["search"] = {"boost": 0.001}  # a word in a title counts a thousand times

    def moved(match: re.Match[str]) -> str:
        target = _target(page.file.src_uri, match[2])
        if target is None:
            return match[0]
        return f"{match[1]}{posixpath.relpath(_inside(target), posixpath.dirname(page.file.src_uri))}{match[3] or ''}"

    return _LINK.sub(moved, markdown)


def _from_readme(text: str) -> str:
    """The README as a page of docs/: what it calls docs/x.md is x.md there, and what it calls x is ../x."""

    def moved(match: re.Match[str]) -> str:
        target = match[2]
        if "://" in target:
            return match[0]
        here = target.removeprefix("docs/") if target.startswith("docs/") else f"../{target}"
        here = "methods/change-points.md" if here == "methods/" else here  # a folder is no page
        return f"{match[1]}{here}{match[3] or ''}"

    return _LINK.sub(moved, text)


def _outside(page: str, text: str) -> set[str]:
    """Paths from the root of the repository that a page links to and that are not in docs/."""
    found = (_target(page, match[2]) for match in _LINK.finditer(_CODE.sub("", text)))
    return {target for target in found if target is not None}


def _target(page: str, link: str) -> str | None:
    """The path from the root of the repository of a link that leaves docs/; None for any other."""
    if "://" in link or not link.startswith(".."):
        return None
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))
    return None if path.startswith(("docs/", "..")) else path


def _inside(target: str) -> str:
    """Where a file of the repository stands in the site: as text, which browsers show instead of saving it."""
    return f"files/{target}" if Path(target).suffix == ".svg" else f"files/{target}.txt"


def on_post_build(*, config: Any) -> None:
    """Write the index of the search as a script, too: a page that is opened from disk may load no other file."""
    folder = Path(config.site_dir) / "search"
    index = (folder / "search_index.json").read_text("utf-8")
    (folder / "search_index.js").write_text(f"var __index = {index};\n", "utf-8")
