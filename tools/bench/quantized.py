# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures how blocks of 8 and 4 bits between ranks change the training (--gather-dtype, --reduce-dtype): the loss of the demo's GPT after 300 steps on
text, beside that of the same model in bf16, and the bytes that both send. ZeRO++ claims half for weights, a quarter for gradients."""
import json
import re
from pathlib import Path

from report import Report
from workbench import HERE, Workbench, demand

MODELS = HERE.parent.parent / "tests" / "models"
STEPS = 300
LIMIT = 1.0                                   # % that the loss may differ from bf16's
RULES = ["--init-rule=*.bias=zeros", "--init-rule=*ln_*.weight=ones", "--init-rule=*=normal(0,0.02)"]
PROGRAMS = {"bf16": [], "i8": ["--gather-dtype=i8", "--reduce-dtype=i8"], "f8e4m3": ["--gather-dtype=f8e4m3", "--reduce-dtype=f8e4m3"],
            "i8, gradients in i4": ["--gather-dtype=i8", "--reduce-dtype=i4"]}


def train(bench: Workbench, name: str, flags: list[str], steps: int) -> tuple[float, dict[str, int]]:
    """Returns the mean loss of the last ten steps, and the bytes per collective and microbatch."""
    program, log = bench.out / f"quantized-{name}", bench.out / f"quantized-{name}.jsonl"
    summary = demand(bench.fsdpc, MODELS / "demo_gpt.onnx", "-o", program, "-v", "--unit-class=*Block", f"--plan-ranks={bench.ranks}", "--optimizer=adamw",
                     "--lr=1e-3", "--clip-grad-norm=1.0", "--param-dtype=bf16", *RULES, *flags).out
    text = MODELS / "data" / "licence.txt"
    demand(program, "--ranks", bench.ranks, "--threads", 1, "--tokens", f"input_ids={text}:u8", "--tokens", f"labels={text}:u8+1",
           "--steps", steps, "--shuffle", "--lr-schedule=cosine,warmup=20,min=1e-4", "--log", log)
    losses = [line["loss"] for line in map(json.loads, Path(log).read_text().splitlines()) if "loss" in line][-10:]
    return sum(losses) / len(losses), {what: int(size) for what, size in re.findall(r"^  (\w+): (\d+) bytes per microbatch$", summary, re.MULTILINE)}


def quantized(bench: Workbench, report: Report, quick: bool) -> None:
    steps = 50 if quick else STEPS
    report.title(f"Blocks of 8 and 4 bits between ranks: the demo's GPT in bf16 after {steps} steps, {bench.ranks} ranks, the mean of the last ten losses")
    found = {name: train(bench, name, flags, steps) for name, flags in PROGRAMS.items()}
    base, sent = found["bf16"]
    report.keep("quantized", "figures", {name: {"loss": loss, **bytes_} for name, (loss, bytes_) in found.items()})
    report.table(["on the wire", "loss", "% from bf16's", "all_gather ÷ bf16", "reduce_scatter ÷ bf16", "reduce_scatter ÷ f32"],
                 [[name, f"{loss:.4f}", report.held(f"loss in {name}", abs(loss / base - 1) * 100, most=LIMIT),
                   *(f"{bytes_[what] / sent[what] * part:.3f}" for what, part in (("all_gather", 1), ("reduce_scatter", 1), ("reduce_scatter", 0.5)))]
                  for name, (loss, bytes_) in found.items()])
