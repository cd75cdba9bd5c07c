# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Computes planned arena ÷ lower bound (the maximum of bytes that are live at once, slack included) from dumps of phase memory."""
import re
import sys
from pathlib import Path

from report import Report
from shapes import SHAPES
from workbench import DTYPES, MIB, Workbench, demand

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests" / "models"
MOST = 1.01


def fixture_flags(name: str) -> list[str]:
    """Returns the flags with which the numeric tests compile a fixture."""
    sys.path.insert(0, str(ROOT / "tests" / "programs"))
    import harness
    if name == "gpt_lengths":                 # has no reference, and needs one of its lengths
        return ["--dim=length=12"]
    return harness.fixture(name).compiling if name in harness.fixtures() else []


def arena(command: list, dump: Path) -> tuple[int, int]:
    demand(*command, "--compile-to=memory", "-o", dump)
    with dump.open() as file:
        attribute = next(line for line in file if "fsdp.arena" in line)
    return tuple(int(re.search(rf"\b{name} = (\d+)", attribute)[1]) for name in ("bytes", "lower_bound"))


def against_bound(bench: Workbench, report: Report, quick: bool) -> None:
    report.title(f"Planned arena ÷ lower bound (at most {MOST})")
    models = [(f"{shape} {dtype}", bench.gpt_command(bench.export(shape), *shape.flags, *flags))
              for shape in (SHAPES[:1] if quick else SHAPES) for dtype, flags in DTYPES.items()]
    models += [(f"tests/models/{model.name}", [bench.fsdpc, model, *fixture_flags(model.stem)]) for model in sorted(MODELS.glob("*.onnx"))]
    rows = []
    for name, command in models:
        planned, bound = arena(command, bench.out / "plan.mlir")
        report.keep("plans", name, {"arena_bytes": planned, "lower_bound_bytes": bound})
        rows.append([name, f"{planned / MIB:.3f}", f"{bound / MIB:.3f}",
                     report.held(f"arena ÷ lower bound, {name}", planned / max(bound, 1), most=MOST, form=".4f")])
    report.table(["model", "arena MiB", "lower bound MiB", "ratio"], rows)
