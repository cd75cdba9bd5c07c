#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests compare.py: a run equal to the reference passes, and each limit fails on its own if its value is changed.

usage: compare_test.py      needs numpy only
"""
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
REFERENCES = HERE.parent / "models" / "references"


def write_safetensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    header, offset = {}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [offset, offset + 4 * tensor.size]}
        offset += 4 * tensor.size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(t.astype("<f4").tobytes() for t in tensors.values()))


def compare(name: str, spoil: str = "") -> tuple[int, str]:
    """Returns the exit code and error line for the reference's own values, with one of them off by twice its limit."""
    reference = np.load(REFERENCES / f"{name}.npz")
    description = json.loads(str(reference["description"]))
    losses, norms = reference["losses"].copy(), reference["grad_norms"].copy()
    gradients = {p: reference[f"gradient/{p}"] for p in description["parameters"]}
    finals = {p: reference[f"final/{p}"] for kind in ("parameters", "buffers") for p in description[kind]}
    limits = description["limits"]
    first = next(iter(gradients))
    if spoil == "loss":
        losses[7] *= 1 + 2 * limits["loss"]
    elif spoil == "grad_norm":
        norms[7] *= 1 + 2 * limits["grad_norm"]
    elif spoil == "first_gradient":
        gradients[first] = gradients[first] * (1 + 2 * limits["first_gradient"])
    elif spoil in ("update", "buffer_update"):
        kind = "parameters" if spoil == "update" else "buffers"
        target, entry = next(iter(description[kind].items()))
        away = 2 * entry["update_norm"] * entry["update_limit"] / np.sqrt(finals[target].size)
        finals[target] = finals[target] + np.float32(away)
    elif spoil == "nan":
        losses[3] = float("nan")
    with tempfile.TemporaryDirectory() as folder:
        log, gradient_file, parameter_file = (Path(folder) / file for file in ("log", "gradients", "params"))
        steps = [{"step": s, "loss": l, "grad_norm": n} for s, (l, n) in enumerate(zip(losses, norms))]
        log.write_text("".join(json.dumps(line) + "\n" for line in [{"ranks": 1}, *steps]))
        write_safetensors(gradient_file, gradients)
        write_safetensors(parameter_file, finals)
        done = subprocess.run([sys.executable, HERE / "compare.py", REFERENCES / f"{name}.npz", "--log", log, "--gradients",
                               gradient_file, "--params", parameter_file], capture_output=True, text=True)
    return done.returncode, done.stderr.strip()


def main() -> int:
    for path in sorted(REFERENCES.glob("*.npz")):
        assert compare(path.stem) == (0, ""), path
    for spoil in ("loss", "grad_norm", "first_gradient", "update", "buffer_update"):
        status, error = compare("conv_net", spoil)
        assert status == 1 and error.endswith(f"over the limit: {spoil}"), (spoil, status, error)
    assert compare("linears", "nan")[0] == 1
    print("compare.py accepts the references and reports each exceeded limit")
    return 0


if __name__ == "__main__":
    sys.exit(main())
