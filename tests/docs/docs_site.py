#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds docs/ as a site with broken links as errors, and shows pages of it in a browser without a window.

usage: docs_site.py --build DIR [--python PYTHON]

The site stays in DIR/site, screenshots in DIR/screenshots. TableGen's pages are those of DIR/docs (tools/gen-docs.sh).
Exit code 77, which CTest counts as skipped, if PYTHON (DIR/python/bin/python) has no mkdocs-material.
"""
import argparse
import functools
import html
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
# The first page, one of wide tables, one of long blocks of code, and one from TableGen.
SHOWN = ("index.html", "from-pytorch.html", "tour.html", "dialects/nn.html")
PROBE = """<script>addEventListener('load', () => document.body.append(Object.assign(document.createElement('pre'), {id: 'said',
  textContent: JSON.stringify({wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
                               search: !document.querySelector('[data-md-component=search]').hidden,
                               background: getComputedStyle(document.body).backgroundColor})})));</script>"""


class Failure(Exception):
    pass


def build(python: Path, generated: Path, pages: Path, site: Path) -> subprocess.CompletedProcess:
    """Builds the pages as mkdocs.yml says, but from another folder."""
    config = (ROOT / "mkdocs.yml").read_text().replace("docs_dir: docs", f"docs_dir: {pages}")
    config = config.replace("hooks: [", f"hooks: [{ROOT}/")
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        file.write(config)
        file.flush()
        return subprocess.run([python, "-m", "mkdocs", "build", "--strict", "-f", file.name, "-d", site],
                              env={**os.environ, "FSDPC_GENERATED_DOCS": str(generated)}, capture_output=True, text=True)


def check_site(site: Path) -> None:
    index = json.loads((site / "search/search_index.json").read_text())
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    wanted = {path.relative_to(ROOT / "docs").with_suffix(".html").as_posix().replace("README.", "index.")
              for path in (ROOT / "docs").rglob("*.md")} | {"passes.html", "dialects/nn.html", "dialects/fsdp.html", "dialects/rt.html"}
    if wanted - {location or "index.html" for location in found}:
        raise Failure(f"pages that the search does not know: {sorted(wanted - found)}")
    # A link to TableGen leads to its page, one to another source to a copy.
    for page, link in (("architecture.html", "dialects/rt.html"), ("guide/optimizers.html", "../source/tests/models/lion.mlir.txt")):
        if f'href="{link}"' not in (site / page).read_text():
            raise Failure(f"{page} does not link to '{link}'")


def check_strict(python: Path, generated: Path, folder: Path) -> None:
    """A broken link, a heading that does not exist, and a source that does not are errors."""
    pages = folder / "pages"
    pages.mkdir()
    for link, text in (("absent.md", "absent.md"), ("README.md#absent", "absent"), ("../absent.cpp", "not a file of the repository")):
        (pages / "README.md").write_text(f"# Page\n\nA [link]({link}).\n")
        built = build(python, generated, pages, folder / "broken")
        if built.returncode == 0 or text not in built.stderr + built.stdout:
            raise Failure(f"a link to '{link}' is no error: {built.stderr}{built.stdout}")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def show(browser: str, site: Path, folder: Path, screenshots: Path) -> None:
    """Shows pages at the widths of a desk and of a phone, over HTTP, which the search needs."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    for name in SHOWN:
        page = site / name
        probe = page.with_name("probe-" + page.name)
        for kind, flags in (("wide", ("--window-size=1400,1200",)), ("phone", ("--window-size=390,844",)),
                            ("dark", ("--window-size=1400,1200", "--blink-settings=preferredColorScheme=0"))):
            if kind == "dark" and name != SHOWN[0]:
                continue
            command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage",
                       f"--user-data-dir={folder}/profile-{kind}-{page.stem}", "--virtual-time-budget=3000", *flags]
            probe.write_text(page.read_text().replace("</body>", PROBE + "</body>"))
            dom = subprocess.run([*command, "--dump-dom", f"{address}/{probe.relative_to(site)}"], capture_output=True, text=True).stdout
            probe.unlink()
            said = re.search(r'<pre id="said">(.*?)</pre>', dom, re.DOTALL)
            if not said:
                raise Failure(f"{name}, {kind}: the page's script has not come to its end")
            said = json.loads(html.unescape(said[1]))
            if not said["search"]:
                raise Failure(f"{name}, {kind}: the page has no search")
            if said["wide"] > 0:
                raise Failure(f"{name}, {kind}: the page is {said['wide']} pixels wider than the window")
            if (sum(map(int, re.findall(r"\d+", said["background"])[:3])) < 200) != (kind == "dark"):
                raise Failure(f"{name}, {kind}: the background is {said['background']}")
            subprocess.run([*command, f"--screenshot={screenshots}/docs-{page.stem}-{kind}.png", f"{address}/{name}"], capture_output=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--python", type=Path, help="has mkdocs-material")
    options = parser.parse_args()
    python = options.python or options.build / "python/bin/python"
    if not python.exists() or subprocess.run([python, "-c", "import material, mkdocs"], capture_output=True).returncode:
        print(f"skipped: '{python}' has no mkdocs-material; run tools/docs.sh")
        return 77
    site, screenshots, generated = (options.build.resolve() / name for name in ("site", "screenshots", "docs"))
    screenshots.mkdir(exist_ok=True)
    built = build(python, generated, ROOT / "docs", site)
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    with tempfile.TemporaryDirectory() as folder:
        try:
            if built.returncode:
                raise Failure(f"the site has faults:\n{built.stdout}{built.stderr}")
            check_site(site)
            check_strict(python, generated, Path(folder))
            if browser:
                show(browser, site, Path(folder), screenshots)
            else:
                print("shown in no browser; apt-get install chromium-headless-shell (tools/test.sh does)")
        except Failure as failure:
            print(f"error: {failure}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
