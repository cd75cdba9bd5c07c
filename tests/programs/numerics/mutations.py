#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that the limits detect mistakes: each deliberate mistake, made by editing a dump, must exceed at least one limit.

usage: mutations.py --build DIR [MUTATION…]

Prints for each mistake the limit that it exceeds most, and by what factor. The unedited program must be within all limits.
Without this test a limit could be too loose to detect anything.
"""
import itertools
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
from harness import Failure

RANKS = 2


def eps_inside_root(text: str) -> str:
    """Changes sqrt(v) / c + eps to sqrt(v / c^2 + eps), a plausible misreading of the formula."""
    return re.sub(
        r"^(?P<pad> +)(?P<root>%\S+) = math\.sqrt (?P<v>%\S+) : f32.*\n"
        r" +(?P<quotient>%\S+) = arith\.divf (?P=root), (?P<c>%\S+) : f32.*\n"
        r" +(?P<sum>%\S+) = arith\.addf (?P=quotient), (?P<eps>%\S+) : f32.*\n",
        "\\g<pad>%mut0 = arith.divf \\g<v>, \\g<c> : f32\n"
        "\\g<pad>%mut1 = arith.divf %mut0, \\g<c> : f32\n"
        "\\g<pad>%mut2 = arith.addf %mut1, \\g<eps> : f32\n"
        "\\g<pad>\\g<sum> = math.sqrt %mut2 : f32\n", text, flags=re.MULTILINE)


def round_gradients(text: str) -> str:
    """Rounds each gradient to bf16 on its way to the unit's buffer."""
    number = itertools.count()

    def rounded(match) -> str:
        pad, name, value, attributes, shape = match.groups()
        wide, narrow, n = f"tensor<{shape}f32>", f"tensor<{shape}bf16>", next(number)
        return (f"{pad}%mut{n}a = nn.cast {value} {attributes}: {wide} -> {narrow}\n"
                f"{pad}%mut{n}b = nn.cast %mut{n}a {attributes}: {narrow} -> {wide}\n"
                f"{pad}fsdp.gradient {name}, %mut{n}b {attributes}: {wide}")

    return re.sub(r"^( +)fsdp\.gradient (@\S+), (%\S+) (\{.*\} )?: tensor<([\dx]*)f32>", rounded, text, flags=re.MULTILINE)


MUTATIONS = {                                 # name -> (the dump to edit, the edit)
    "tanh-for-erf": ("verify-input", harness.replace(r"nn\.gelu erf", "nn.gelu tanh")),
    "layer-norm-eps": ("verify-input", harness.replace(r"(nn\.layer_norm .*epsilon = )[\d.eE+-]+", r"\g<1>1.0e-06")),
    "adam-eps-inside-root": ("build-update", eps_inside_root),
    "bf16-gradients": ("verify-grad", round_gradients),
    "norm-weight-never-updated": ("shard-parameters", harness.replace(
        r"(member<@ln_f\.weight\[[^]]*\] rate )\S+ : f64 decay \S+ : f64", r"\g<1>0.0 : f64 decay 0.0 : f64")),
}


def worst(report: str) -> tuple[float, str]:
    """Returns compare.py's line with the least margin, as figure over limit."""
    figures = [(float(m[2]) / float(m[3]), m[1]) for m in (re.match(r"(\S+)\s+(\S+)\s+limit (\S+)", line) for line in report.splitlines()) if m]
    return max(figures)


def test(bench, options):
    fixture = harness.fixture("gpt")
    folder = bench.path("ir")
    program = bench.compile_fixture(fixture, "exact", f"--dump-ir={folder}")
    within, report = harness.compare(fixture, bench.train(program, fixture, RANKS))
    fraction, limit = worst(report)
    print(f"{'unedited':28} {fraction:9.3g} of the limit ({limit})")
    if not within:
        raise Failure("the unedited program exceeds a limit")
    unseen = []
    for name in options.mutations or MUTATIONS:
        source, edit = MUTATIONS[name]
        mutant = bench.compile(harness.edited(harness.dump(folder, source), name, edit), name)
        within, report = harness.compare(fixture, bench.train(mutant, fixture, RANKS))
        fraction, limit = worst(report)
        print(f"{name:28} {fraction:9.3g} times the limit ({limit})", flush=True)
        if within:
            unseen.append(name)
    if unseen:
        raise Failure(f"no limit detects: {', '.join(unseen)}")


def arguments(parser):
    parser.add_argument("mutations", nargs="*", metavar="MUTATION", help=f"of {', '.join(MUTATIONS)}; default: all")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, arguments))
