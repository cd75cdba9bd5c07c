#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks --skip-corrupt: a sample that is bad is replaced by the next one, at every number of ranks, and counted.

usage: corrupt_samples.py --build DIR
"""
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
from training.evaluation import refuse
from harness import Failure, MODELS, run


def test(bench, options):
    fixture = harness.fixture("conv_net")
    program = bench.compile_fixture(fixture, "conv_net")
    labels = np.load(MODELS / "data" / "conv_net.labels.npy")
    images = np.load(MODELS / "data" / "conv_net.pixel_values.npy")
    bad, good = bench.path("bad.npy"), [bench.path("labels.npy"), bench.path("images.npy")]
    wrong = [5, 6, 20]                        # each takes the place of the one before the first good one
    broken = labels.astype(np.int32)
    broken[wrong] = 1000
    np.save(bad, broken)
    order = np.arange(len(labels))
    order[[5, 6, 20]] = [7, 7, 21]
    for path, array in zip(good, (labels, images)):
        np.save(path, array[order])
    own = [word for word in fixture.data if "labels" not in word]
    saved = bench.path("saved.safetensors")
    common = ["--steps", 3, "--threads", 1, "--save", saved]
    run([program, f"--data=labels={good[0]}", f"--data=pixel_values={good[1]}", *common, "--accumulate", 4])
    expected = saved.read_bytes()
    for ranks in (1, 2, 4):
        log = bench.path("log.jsonl")
        done = run([program, *own, f"--data=labels={bad}", *common, "--ranks", ranks, "--accumulate", 4 // ranks,
                    "--skip-corrupt", "--log", log])
        counts = [json.loads(line)["corrupt_samples"] for line in log.read_text().splitlines()[1:]]
        if saved.read_bytes() != expected:
            raise Failure(f"at {ranks} ranks the replaced samples are others")
        if counts[-1] != 3 or "bad.npy' sample" not in done.stderr:
            raise Failure(f"at {ranks} ranks the log counts {counts}:\n{done.stderr}")
    refuse([program, *own, f"--data=labels={bad}", "--steps", 3], 1, "bad.npy' sample 5")
    np.save(bad, np.full_like(broken, 1000))
    refuse([program, *own, f"--data=labels={bad}", "--steps", 3, "--skip-corrupt"], 1, "nor can the 57 samples after it be read")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
