#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that what torch.onnx.export drops from the graph trains as in torch.

usage: torch_export.py --build DIR

That is detach(), torch.no_grad(), requires_grad=False, label smoothing, and batch norms that keep their statistics. Metadata alone
says so in these models, which models/torch_export.py makes and trains in f64. One takes bytes as its input.
"""
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
from harness import MODELS, Failure, run

LIMIT = 1e-5  # relative, of each loss


def test(bench, options):
    references = json.loads((MODELS / "references" / "torch_export.json").read_text())
    for name, case in references["cases"].items():
        program = bench.compile(MODELS / "torch_export" / f"{name}.onnx", name, "-q", "--optimizer=sgd", f"--lr={references['rate']}")
        inputs = []
        for key, values in case["data"].items():
            np.save(bench.path(f"{name}.{key}.npy"), np.array(values, dtype=case["types"][key]))
            inputs.append(f"--data={key}={bench.path(f'{name}.{key}.npy')}")
        log = bench.path(f"{name}.jsonl")
        run([program, *inputs, "--threads", 1, "--steps", len(case["losses"]), "--log", log])
        losses = [line["loss"] for line in map(json.loads, log.read_text().splitlines()) if "loss" in line]
        worst = max(abs(ours - theirs) / abs(theirs) for ours, theirs in zip(losses, case["losses"], strict=True))
        print(f"{name}: {worst:.1e}")
        if not worst <= LIMIT:
            raise Failure(f"{name}: losses {losses}, but torch has {case['losses']}")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
