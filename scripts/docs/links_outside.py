"""Links from the documentation into the rest of the repository become plain names on the site."""

import posixpath
import re

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)#\s]*)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: object, **_: object) -> str:
    """Called by MkDocs for every page: what lies outside the documentation is not part of the site."""
    folder = posixpath.dirname(page.file.src_uri)  # type: ignore[attr-defined]

    def plain(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", folder, link[2]))
        if target.startswith("docs/"):
            return link[0]
        return link[1] if link[1].startswith("`") else f"{link[1]} (`{target}`)"

    return _LINK.sub(plain, markdown)
