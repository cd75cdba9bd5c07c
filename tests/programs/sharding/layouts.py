#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares --layout=parameter, which cuts each parameter over the ranks by itself, with flat layouts, to the bit.

usage: layouts.py --build DIR

  strategies   the GPT on four ranks: losses, norms, gradients and weights under every strategy are those of zero3 with flat layouts
  models       the same of Llama and of the conv net under zero3, with several microbatches per rank
  calls        a unit is gathered in one call, and reduced in one
"""
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
from harness import Failure

STRATEGIES = {("zero3",): [], ("zero3", "--prefetch=none"): [], ("zero2",): [], ("zero1",): [], ("ddp",): [], ("oss",): [],
              ("hybrid",): ["--shard-group", 2], ("hybrid_zero2",): ["--shard-group", 2], ("zero3", "--reshard-to=2"): [],
              ("zero3", "--target=cuda-emulation"): []}


def check(bench, chosen, flags: tuple, launch: list, ranks: int, first: tuple | None) -> tuple:
    """Trains with either kind of layouts. An emulated GPU is compared with itself."""
    for layout in ("flat", "parameter") if first is None else ("parameter",):
        program = bench.compile_fixture(chosen, "layout", f"--layout={layout}", f"--strategy={flags[0]}", *flags[1:])
        found = bench.train(program, chosen, ranks, *launch, local=True, steps=2).bits()
        first = first or found
        if found != first:
            raise Failure(f"{chosen.name}: --layout={layout} --strategy={' '.join(flags)} on {ranks} ranks: other bits than flat zero3")
    return first


def check_calls(bench, chosen) -> None:
    """Counts the gathers and reductions in the dump of the schedule."""
    counts = []
    for layout in ("flat", "parameter"):
        folder = bench.path(f"dump-{layout}")
        bench.compile_fixture(chosen, "calls", f"--layout={layout}", f"--dump-ir={folder}")
        text = harness.read_dump(folder, "fuse-small-collectives")
        counts.append([len(re.findall(rf"fsdp\.{op} \[", text)) for op in ("all_gather", "reduce_scatter")])
    if counts[0] != counts[1]:
        raise Failure(f"gathers and reductions: {counts[0]} with flat layouts, {counts[1]} with --layout=parameter")
    print(f"calls: {counts[1][0]} gathers and {counts[1][1]} reductions, as with flat layouts", flush=True)


def test(bench, options):
    chosen, first = harness.fixture("gpt"), None
    for flags, launch in STRATEGIES.items():
        emulated = "--target=cuda-emulation" in flags
        found = check(bench, chosen, flags, launch, 4, None if emulated else first)
        first = first or found
    print(f"strategies: {len(STRATEGIES)} have the same bits", flush=True)
    for name in ("llama", "conv_net"):
        check(bench, harness.fixture(name), ("zero3",), [], 2, None)
    print("models: Llama and the conv net have the same bits", flush=True)
    check_calls(bench, chosen)


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
