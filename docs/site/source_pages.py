"""Links to files that are not pages lead to a page with the file's text, or with the names in a folder."""

import html
import os
import re
from pathlib import Path
from urllib.parse import quote

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename
from pygments.lexers.special import TextLexer
from pygments.util import ClassNotFound

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(?<!!)(\[(?:[^\[\]]|\[[^\[\]]*\]|!\[[^\]]*\]\([^)]*\))*\])\(([^)\s]+)\)")
CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.S)
MOST = 400_000  # characters of a file that are shown


def page_of(path: Path) -> str:
    return f"source/{path.relative_to(ROOT)}" if path != ROOT else "source/index"


def link(app, docname: str, target: str) -> str | None:
    """What a link to a file or folder becomes; None for other links."""
    name, _, fragment = target.partition("#")
    if not name or "://" in target or name.startswith("mailto:"):
        return None
    path = (ROOT / docname).parent / name
    path = Path(os.path.normpath(path))
    if not path.exists() or ROOT not in (path, *path.parents):
        return None
    if path.suffix == ".md" and str(path.relative_to(ROOT).with_suffix("")) in app.env.found_docs:
        return None
    for index in ("index", "README"):
        inside = path / f"{index}.md"
        if path.is_dir() and str(inside.relative_to(ROOT).with_suffix("")) in app.env.found_docs:
            return os.path.relpath(inside, (ROOT / docname).parent)
    app.env.convoy_source_files.add(str(path))
    relative = os.path.relpath(page_of(path) + ".html", os.path.dirname(docname))
    return f"source:{quote(relative)}" + (f"#{fragment}" if fragment else "")


def rewrite(app, docname: str, content: list[str]) -> None:
    if not hasattr(app.env, "convoy_source_files"):
        app.env.convoy_source_files = set()

    def replaced(found):
        return f"{found[1]}({link(app, docname, found[2]) or found[2]})"

    # Code in a link's text is no reason to leave the link as it is: only whole blocks are.
    parts = re.split(r"(```.*?```)", content[0], flags=re.S)
    content[0] = "".join(part if part.startswith("```") else LINK.sub(replaced, part) for part in parts)


def listing(path: Path) -> str:
    rows = []
    for child in sorted(path.iterdir(), key=lambda one: (one.is_file(), one.name)):
        name = html.escape(child.name)
        rows.append(f"<li><code>{name}/</code></li>" if child.is_dir() else
                    f'<li><a href="{quote(os.path.relpath(page_of(child), os.path.dirname(page_of(path))))}.html">'
                    f"<code>{name}</code></a></li>")  # fmt: skip
    return f"<ul>{''.join(rows)}</ul>"


def text_of(path: Path) -> str:
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        return "<p>This file is not text.</p>"
    cut = f"<p>The first {MOST:,} of {len(text):,} characters:</p>" if len(text) > MOST else ""
    try:
        lexer = get_lexer_for_filename("x.cu" if path.suffix == ".cuh" else path.name)
    except ClassNotFound:
        lexer = TextLexer()
    shown = highlight(text[:MOST], lexer, HtmlFormatter(lineanchors="L", cssclass="highlight"))
    return cut + re.sub(r'(name|id)="L-(\d+)"', r'\1="L\2"', shown).replace("<pre>", '<pre tabindex="0">')


def pages(app):
    wanted = {Path(path) for path in app.env.convoy_source_files}
    wanted |= {child for path in list(wanted) if path.is_dir() for child in path.iterdir() if child.is_file()}
    for path in sorted(wanted):
        name = str(path.relative_to(ROOT)) or "."
        body = f"<h1><code>{html.escape(name)}</code></h1>" + (listing(path) if path.is_dir() else text_of(path))
        yield page_of(path), {"title": name, "body": body}, "page.html"


def setup(app):
    app.connect("source-read", rewrite, priority=400)
    app.connect("html-collect-pages", pages)
    return {"parallel_read_safe": False}
