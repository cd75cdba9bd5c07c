#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Shows reports (--report) in a real browser without a window, and checks the page.

usage: report.py --build DIR [--screenshots DIR]

Exit code 77, which CTest counts as skipped, if there is no browser.
"""
import html
import json
import re
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
import onnx_wire as onnx
from harness import Failure

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
HOSTILE = "</script><img src=x onerror=alert(1)><!--"
# Does what a user does, after the page has drawn itself. Errors of any script end in the
# DOM.
BEFORE = "<script>window.faults = []; window.onerror = (text, file, line) => { window.faults.push(text + ' in line ' + line); };</script>"
AFTER = """<script>
const canvas = document.getElementById('lanes'), box = canvas.getBoundingClientRect();
const coloured = () => { const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data; return new Set(new Uint32Array(data.buffer)).size; };
const said = {};
said.colours = coloured();
const first = ops.find(op => op.us > 0), lane = 8;
view.set(first.begin_us - 1e-3, first.begin_us + first.us * 1.1);
const x = box.left + left + (first.begin_us + first.us / 2 - view.from) / (view.to - view.from) * (canvas.clientWidth - left);
canvas.dispatchEvent(new PointerEvent('pointermove', {clientX: x, clientY: box.top + lane, pointerId: 1, bubbles: true}));
said.tip = document.getElementById('tip').hidden ? '' : document.getElementById('tip').textContent;
said.first = [first.name, first.node];
const width = () => view.to - view.from;
document.querySelector('[data-zoom=all]').click();
const whole = width();
document.querySelector('[data-zoom=in]').click();
said.zoomed = width() / whole;
canvas.dispatchEvent(new WheelEvent('wheel', {clientX: box.left + 200, deltaY: -1, cancelable: true}));
said.wheeled = width() / whole;
document.querySelector('[data-zoom=all]').click();
document.querySelector('#unit-rows th').click();
said.wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
said.images = document.images.length;
said.title = document.title;
said.heading = document.querySelector('h1').textContent;
const boxes = [...document.querySelectorAll('#roof .label')].map(label => [label.textContent, label.getBoundingClientRect()]);
said.labels = boxes.length;
said.overprinted = boxes.flatMap(([one, a], i) => boxes.slice(i + 1).filter(([, b]) =>
  Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4).map(([other]) => one + ' over ' + other));
said.ticks = [...document.querySelectorAll('#roof text:not(.label)')].map(tick => tick.textContent);
said.tables = [...document.querySelectorAll('table')].map(table => {
  const frame = table.parentElement, hidden = table.offsetWidth - frame.clientWidth;
  frame.scrollLeft = 1e6;
  return {id: table.id, hidden, scrolled: frame.scrollLeft, first: table.rows.length ? table.rows[0].cells[0].getBoundingClientRect().left - frame.getBoundingClientRect().left : 0};
});
said.background = getComputedStyle(document.body).backgroundColor;
said.faults = window.faults;
document.body.append(Object.assign(document.createElement('pre'), {id: 'said', textContent: JSON.stringify(said)}));
</script>"""


def demand(holds: bool, what: str) -> None:
    if not holds:
        raise Failure(what)


class Browser:
    def __init__(self, program: str, folder: Path):
        self.program, self.folder, self.count = program, folder, 0

    def command(self, page: Path, *flags: str) -> list:
        self.count += 1
        # Not root's sandbox, and nothing of an earlier run.
        return [self.program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage",
                f"--user-data-dir={self.folder}/profile-{self.count}", "--virtual-time-budget=3000", *flags, page.as_uri()]

    def visit(self, page: Path, *flags: str) -> tuple[dict, str]:
        """Returns what the script at the end said, and the DOM."""
        text = page.read_text()
        probe = self.folder / f"probe-{page.name}"
        # The page's own rules on scripts stay.
        probe.write_text(text.replace("</title>", "</title>" + BEFORE).replace("</body>", AFTER + "</body>"))
        dom = harness.run(self.command(probe, "--dump-dom", *flags)).stdout
        said = re.search(r'<pre id="said">(.*?)</pre>', dom, re.S)
        demand(said is not None, f"the page's script has not come to its end:\n{dom[-2000:]}")
        return json.loads(html.unescape(said[1])), dom

    def screenshot(self, page: Path, to: Path, *flags: str) -> None:
        harness.run(self.command(page, f"--screenshot={to}", *flags))
        demand(to.stat().st_size > 5000, f"the screenshot '{to}' is empty")


def rows_of(dom: str, table: str) -> list[list[str]]:
    body = re.search(rf'<table id="{table}">.*?<tbody>(.*?)</tbody>', dom, re.S)[1]
    return [[html.unescape(cell) for cell in re.findall(r"<td>(.*?)</td>", row, re.S)] for row in re.findall(r"<tr>(.*?)</tr>", body, re.S)]


def plan_of(page: Path) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="plan">(.*?)</script>', page.read_text(), re.S)[1])


def check_page(browser: Browser, page: Path, screenshots: Path) -> str:
    plan = plan_of(page)
    for name, flags, dark in (("light", ("--window-size=1200,1600",), False),
                              ("dark", ("--window-size=1200,1600", "--blink-settings=preferredColorScheme=0"), True),
                              ("phone", ("--window-size=390,844",), False)):
        said, dom = browser.visit(page, *flags)
        demand(said["faults"] == [], f"{name}: errors of scripts: {said['faults']}")
        demand(said["wide"] <= 0, f"{name}: the page is {said['wide']} pixels wider than the window")
        demand(plan["model"] in said["title"] and plan["model"] in said["heading"], f"{name}: the title is '{said['title']}'")
        demand(said["overprinted"] == [], f"{name}: labels of the roofline overprint: {said['overprinted']}")
        demand("0" not in said["ticks"], f"{name}: a logarithmic axis has 0: {said['ticks']}")
        stuck = [table for table in said["tables"] if table["hidden"] > 1 and (table["scrolled"] < table["hidden"] - 1 or abs(table["first"]) > 1)]
        demand(not stuck, f"{name}: tables do not scroll under their first column: {stuck}")
        demand(name != "phone" or any(table["hidden"] > 1 for table in said["tables"]), "no table is wider than a phone")
        demand(said["colours"] > 20, f"{name}: the timeline has {said['colours']} colours only")
        demand(all(part in said["tip"] for part in said["first"]), f"{name}: the tip of {said['first']} says: {said['tip']}")
        demand(0.45 < said["zoomed"] < 0.55 and said["wheeled"] < said["zoomed"], f"{name}: zooming does not: {said}")
        dark_page = sum(map(int, re.findall(r"\d+", said["background"])[:3])) < 200
        demand(dark_page == dark, f"{name}: the background is {said['background']}")
        browser.screenshot(page, screenshots / f"{page.stem}-{name}.png", *flags)
    units = rows_of(dom, "unit-rows")
    demand(sorted(row[0] for row in units) == sorted(row[0] for row in plan["units"]["rows"]), f"units are missing: {units}")
    owners = rows_of(dom, "owners")
    demand(len(owners) == len(plan["memory"]["owners"]), "owners at the peak are missing")
    # No memory is shown as none. The page's smallest unit is a tenth of a KiB.
    shown = {name: float(size.split()[0].replace(",", "")) for name, size in owners}
    vanished = [name for name, size in plan["memory"]["owners"] if size > 100 and not shown.get(name)]
    demand(not vanished, f"owners of memory are shown without any: {vanished}")
    demand(said["images"] == 0, "a name became markup")
    return dom


def hostile_page(bench, browser: Browser, screenshots: Path) -> None:
    nodes = [onnx.node("MatMul", ["x", "w"], ["y"], name=HOSTILE), onnx.node("Mul", ["y", "y"], ["z"], name=HOSTILE + "2"),
             onnx.node("ReduceMean", ["z"], ["loss"], onnx.integer("keepdims", 0))]
    model, page = bench.path("hostile.onnx"), bench.path("hostile.html")
    model.write_bytes(onnx.model(nodes, [onnx.value("x", (4, 2))], [onnx.value("loss", ())], [onnx.tensor("w", (2, 2), onnx.IDENTITY)]))
    harness.run([bench.build / "bin" / "fsdpc", model, "--compile-to=memory", "-o", bench.path("hostile.mlir"), f"--report={page}"])
    demand(HOSTILE in json.dumps(plan_of(page)), "the report does not name the node")
    check_page(browser, page, screenshots)


def traced_page(bench, browser: Browser, screenshots: Path) -> None:
    """With a trace, every op is compared; the trace of another program is refused."""
    gpt, fsdpc = harness.fixture("gpt"), bench.build / "bin" / "fsdpc"
    flags = (*gpt.compiling, "--unit-class=*Block", "--plan-ranks=2")
    program, trace, page = bench.compile_fixture(gpt, "traced", "--unit-class=*Block", "--plan-ranks=2"), bench.path("run.json"), bench.path("traced.html")
    bench.train(program, gpt, 1, "--trace", trace, steps=4)
    harness.run([fsdpc, gpt.model, *flags, "--compile-to=memory", "-o", bench.path("traced.mlir"), f"--report={page}", f"--report-trace={trace}"])
    dom = check_page(browser, page, screenshots)
    compared = rows_of(dom, "comparison")
    demand(compared[0][0] == "all ops" and len(compared) > 5, f"the trace is not compared: {compared}")
    classes = {row[0] for row in compared}
    demand({"class matmul", "class map kernel", "class row kernel", "unit h.0, backward"} <= classes, f"classes and units are missing: {classes}")
    for other, text in (("llama", "is a trace of another program"), ("absent", "cannot be read")):
        model = harness.fixture("llama") if other == "llama" else gpt
        path = trace if other == "llama" else bench.path("absent.json")
        refused = harness.run([fsdpc, model.model, *model.compiling, "--compile-to=memory", "-o", bench.path("other.mlir"),
                               f"--report={bench.path('other.html')}", f"--report-trace={path}"], 1).stderr
        demand(text in refused and refused.count("error:") == 1, f"{other}: {refused}")
    demand(not bench.path("other.html").exists(), "a report was written after an error")
    refused = harness.run([fsdpc, gpt.model, *flags, "-o", bench.path("p"), f"--report={bench.path('none') / 'x.html'}"], 1).stderr
    demand("no such folder" in refused, refused)


def add_screenshots(parser) -> None:
    parser.add_argument("--screenshots", type=Path, metavar="DIR", help="keep the screenshots here")


def test(bench, options):
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not program:
        print("skipped: no browser; apt-get install chromium-headless-shell (tools/test.sh does)")
        sys.exit(77)
    screenshots = options.screenshots or bench.path("screenshots")
    screenshots.mkdir(parents=True, exist_ok=True)
    browser = Browser(program, bench.folder)
    hostile_page(bench, browser, screenshots)
    traced_page(bench, browser, screenshots)


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, add_screenshots))
