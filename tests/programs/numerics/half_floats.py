#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that the 16-bit floats train nearly as well as f32, and only with f32 master weights.

usage: half_floats.py --build DIR [--ranks 2] [--steps 50]

Trains the GPT on text at lr 3e-4. The mean loss of the last ten steps must be within 0.2 % of f32's, in bf16 and in f16, with
gradients reduced in f32 or in the type itself. If each update is rounded to bf16 (by editing a dump), it must not be. Ten steps of
models with convolutions, pooling and normalisation must have losses within the same limit in f16.
"""
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
from harness import Failure

LIMIT = 2e-3
LR = "3e-4"


def round_update(text: str) -> str:
    """Rounds the result of each optimizer to bf16, as if there were no f32 master weights."""
    def rounded(match):
        return (f"{match[1]}%mut0 = arith.truncf {match[2]} : f32 to bf16\n"
                f"{match[1]}%mut1 = arith.extf %mut0 : bf16 to f32\n"
                f"{match[1]}fsdp.yield %mut1")

    # A weight of the loss yields a tensor.
    return re.sub(r"^(\s+)fsdp\.yield (%\S+?)(?=[ ,])(?!.* : tensor)", rounded, text, flags=re.MULTILINE)


def other_models(bench, options) -> list[str]:
    """Returns the models whose losses in f16 differ too much from those in f32."""
    failed = []
    for name in ("conv_net", "vit", "llama"):
        fixture = harness.fixture(name)
        wide, half = (bench.train(bench.compile_fixture(fixture, f"{name}-{dtype}", f"--param-dtype={dtype}", *flags), fixture,
                                  options.ranks, local=True, steps=10, accumulate=2).losses()
                      for dtype, *flags in (("f32",), ("f16", "--loss-scale=1024")))
        found = max(abs(x / y - 1) for x, y in zip(half, wide))
        print(f"{name} in f16: differs by {found:.2e}, limit {LIMIT:.0e}", flush=True)
        if found > LIMIT:
            failed.append(f"{name} in f16 exceeds the limit")
    return failed


def test(bench, options):
    fixture = harness.fixture("gpt")
    fixture.compiling = [flag for flag in fixture.compiling if not flag.startswith("--lr=")] + [f"--lr={LR}"]

    def last_losses(program) -> float:
        losses = bench.train(program, fixture, options.ranks, steps=options.steps).losses()[-10:]
        return sum(losses) / len(losses)

    folder = bench.path("ir")
    exact = last_losses(bench.compile_fixture(fixture, "f32"))
    print(f"f32: mean of the last ten losses {exact:.6f}")

    def deviation(name: str, program) -> float:
        found = abs(last_losses(program) / exact - 1)
        print(f"{name}: differs by {found:.2e}, limit {LIMIT:.0e}", flush=True)
        return found

    failed = other_models(bench, options)
    for dtype, reduce in (("bf16", "f32"), ("bf16", "bf16"), ("f16", "f32"), ("f16", "f16")):
        name = f"{dtype}, reduced in {reduce}"
        # The scale is low enough that no step is skipped, which would leave the run behind.
        program = bench.compile_fixture(fixture, f"{dtype}-{reduce}", f"--param-dtype={dtype}", f"--reduce-dtype={reduce}",
                                        f"--loss-scale={'4096' if dtype == 'f16' else 'none'}",
                                        *([f"--dump-ir={folder}"] if (dtype, reduce) == ("bf16", "f32") else []))
        if deviation(name, program) > LIMIT:
            failed.append(f"{name} exceeds the limit")
    source = harness.edited(harness.dump(folder, "build-update"), "rounded-update", round_update)
    if deviation("bf16, masters rounded to bf16", bench.compile(source, "rounded-update")) <= LIMIT:
        failed.append("rounding the master weights stays within the limit")
    if failed:
        raise Failure("; ".join(failed))


def arguments(parser):
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=50)


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, arguments))
