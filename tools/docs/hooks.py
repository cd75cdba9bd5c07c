# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hooks of mkdocs.yml: what the pages need that they do not on a repository's web page.

- Adds the reference pages that tools/gen-docs.sh has written to the folder $FSDPC_GENERATED_DOCS.
- Turns links to the TableGen files of dialects and passes into links to these pages.
- Copies the other sources that pages link to, as texts, so that each link works without a repository.
- Writes Markdown as Python-Markdown reads it: GitHub ends a paragraph before a list, and takes `\\|` in code for `|`.
"""
import os
import posixpath
import re
from pathlib import Path

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ("passes.md", "dialects/nn.md", "dialects/fsdp.md", "dialects/rt.md")
FENCE = re.compile(r"^( *(?:```|~~~).*?^ *(?:```|~~~) *$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files, config):
    folder = os.environ.get("FSDPC_GENERATED_DOCS")
    if not folder:
        raise PluginError("FSDPC_GENERATED_DOCS names no folder of generated pages; use tools/docs.sh")
    for name in GENERATED:
        files.append(File.generated(config, name, content=(Path(folder) / name).read_text()))
    return files


def source_link(target: str, page, config, files) -> str | None:
    """Returns the page of a source outside of docs/, or a copy of the source. Returns None for a link within docs/."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), target))
    if re.match(r"\w+:", target) or path.startswith("docs/"):
        return None
    if path.startswith("..") or not (ROOT / path).is_file():
        raise PluginError(f"{page.file.src_uri} links to '{target}', which is not a file of the repository")
    dialect = re.fullmatch(r"compiler/dialects/(\w+)/\w+\.td", path)
    made = f"dialects/{dialect[1]}.md" if dialect else "passes.md" if re.fullmatch(r"passes/\w+/Passes\.td", path) else ""
    copy = made or f"source/{path}.txt"
    if copy not in files.src_uris:
        files.append(File.generated(config, copy, content=(ROOT / path).read_bytes()))
    return posixpath.relpath(copy, posixpath.dirname(page.file.src_uri) or ".")


def on_page_markdown(markdown, page, config, files):
    def link(match):
        copy = source_link(match[1], page, config, files)
        return f"]({copy})" if copy else match[0]

    parts = FENCE.split(markdown)
    for place in range(0, len(parts), 2):
        text = LINK.sub(link, parts[place])
        text = re.sub(r"^(?![-*] |\s|\||#|\d+\. )(.*\S.*)\n(?=(?:[-*]|\d+\.) )", r"\1\n\n", text, flags=re.MULTILINE)
        text = re.sub(r"^\|.*$", lambda row: re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), row[0]), text,
                      flags=re.MULTILINE)
        parts[place] = text
    return "".join(parts)
