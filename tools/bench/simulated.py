# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Published training throughputs beside what `fsdpc simulate` says of their descriptions, and ZeRO's communication volumes.

Machines are the committed ones, with the rates that others have measured on them, and with the network and the memory bandwidth that
the source names; nothing is fitted to the published figures. Models have no weights and are not run. Jobs with pipeline or
tensor parallelism, which fsdpc has not, are left out: Llama 3 of 405 B on 16,384 H100 and MegaScale on 12,288 A100.
"""
import json
import re
from dataclasses import dataclass
from pathlib import Path

from published_plans import ZERO, ZERO_RANKS
from report import Report
from workbench import Shape, Workbench, demand

MACHINES = Path(__file__).resolve().parents[2] / "compiler" / "schedule" / "machines"
NODE = 8                                      # GPUs of a node in all of them
RULE = "--init-rule=*=normal(0,0.02)"
H100 = ["--target=cuda", "--gpu-arch=sm_90", "--machine=h100"]
A100 = ["--target=cuda", "--gpu-arch=sm_80", "--machine=a100"]
BF16 = ["--param-dtype=bf16", "--reduce-dtype=bf16"]
MIXED = ["--param-dtype=bf16", "--reduce-dtype=f32"]   # torchtitan's default

SOURCES = {
    "torchtitan": "https://github.com/pytorch/torchtitan/blob/main/benchmarks/llama3_h100_202412_torchtitan.md, tables 1 and 3",
    "torchtitan, A100": "https://github.com/pytorch/torchtitan/blob/041336434916bdc0f88c1f89fda176fd3c2092e4/docs/performance.md",
    "IBM": "https://pytorch.org/blog/maximizing-training/, table 1; HSDP by https://github.com/foundation-model-stack/fms-fsdp",
    "IBM, compiled": "https://pytorch.org/blog/maximizing-training-throughput/, table 1",
    "FSDP": "Zhao et al., PyTorch FSDP, 2023, https://arxiv.org/abs/2304.11277, section 5.4",
    "ZeRO-3": "Narayanan et al., 2021, https://arxiv.org/abs/2104.04473, table 2 (no model parallelism)",
}

LLAMA3_8B = "L32,D4096,H32,K8,F14336,T8192,V128256"
LLAMA2_7B = "L32,D4096,H32,K32,F11008,T4096,V32000"
FSDP_175B = "L96,D12288,H96,T2048,V50000"
GPT_175B = "L96,D12288,H96,T2048,V51200"
GPT_530B = "L105,D20480,H128,T2048,V51200"

FOUR_HUNDRED, TWO_TB, HDR = 6.25, 31.25, 25      # 400 Gb/s and 2 Tb/s per node of eight; 200 Gb/s per GPU
HYBRID = "--strategy=hybrid"
CHEAP, UNITS, NOTHING = (f"--recompute={what}" for what in ("cheap", "units", "none"))


@dataclass
class Job:
    source: str
    name: str
    shape: Shape
    ranks: int
    published: str                            # as printed there
    tokens: float                             # per second and GPU
    flags: list[str]
    port: float | None = None                 # GB/s of a GPU's share of its node's network, or None within a node
    gib: float | None = None                  # published peak
    memory: float | None = None               # GB/s by the source's data sheet, or None for the machine's


def of_tflops(tflops: float, text: str) -> float:
    """Returns tokens per second from TFLOP/s that count the forward twice, as equation 3 of Narayanan et al. does under recomputation."""
    part = {word[0]: int(word[1:]) for word in text.split(",")}
    layers, width, length = part["L"], part["D"], part["T"]
    return tflops * 1e12 / (96 * layers * width**2 * (1 + length / (6 * width) + part["V"] / (16 * layers * width)))


def tflops(source: str, name: str, text: str, batch: int, ranks: int, value: float, port: float) -> Job:
    return Job(source, name, Shape(text, batch), ranks, f"{value} TFLOP/s", of_tflops(value, text), [*A100, *BF16, UNITS], port)


TITAN, TITAN_MEMORY = [*H100, *MIXED, CHEAP], 2400   # HBM2e
JOBS = [
    Job("torchtitan", "Llama 3.1 8 B, 8 H100", Shape(LLAMA3_8B, 2), 8, "5,762 tokens/s", 5762, TITAN, None, 82.4, TITAN_MEMORY),
    Job("torchtitan", "Llama 3.1 8 B, 8 H100, compiled", Shape(LLAMA3_8B, 2), 8, "6,667 tokens/s", 6667, TITAN, None, 77.0, TITAN_MEMORY),
    Job("torchtitan", "Llama 3.1 8 B, 128 H100, compiled", Shape(LLAMA3_8B, 2), 128, "6,514 tokens/s", 6514, TITAN, 50, 62.0, TITAN_MEMORY),
    Job("torchtitan, A100", "Llama 3 8 B, 64 A100", Shape(LLAMA3_8B, 1), 64, "2,973 tokens/s, MFU 58.2 %", 2973,
        [*A100, *MIXED, CHEAP], 50),
    Job("IBM", "Llama 2 7 B, 128 A100, hybrid", Shape(LLAMA2_7B, 2), 128, "3,700 tokens/s, MFU 57 %", 3700,
        [*A100, *BF16, NOTHING, HYBRID], FOUR_HUNDRED),
    Job("IBM, compiled", "Llama 2 7 B, 128 A100, hybrid, compiled", Shape(LLAMA2_7B, 2), 128, "MFU 68 %", 3700 * 68 / 57,
        [*A100, *BF16, NOTHING, HYBRID], FOUR_HUNDRED),
    tflops("FSDP", "GPT of 175 B, 512 A100, batch 1", FSDP_175B, 1, 512, 173, TWO_TB),
    tflops("FSDP", "GPT of 175 B, 512 A100, batch 2", FSDP_175B, 2, 512, 186, TWO_TB),
    tflops("ZeRO-3", "GPT of 175 B, 384 A100, batch 4", GPT_175B, 4, 384, 144, HDR),
    tflops("ZeRO-3", "GPT of 175 B, 768 A100, batch 2", GPT_175B, 2, 768, 88, HDR),
    tflops("ZeRO-3", "GPT of 175 B, 1,536 A100, batch 1", GPT_175B, 1, 1536, 44, HDR),
    tflops("ZeRO-3", "GPT of 530 B, 2,240 A100, batch 1", GPT_530B, 1, 2240, 48, HDR),
]
QUICK = 3                                     # torchtitan's, which share an export
# By their place in JOBS.
PAIRS = [(2, 1), (7, 6), (9, 8), (10, 8)]

# Rajbhandari et al., ZeRO, 2020, section 7: elements that a rank sends per step, in parameters.
VOLUMES = [("ddp", 2), ("zero1", 2), ("zero2", 2), ("zero3", 3)]


def volumes(bench: Workbench, report: Report) -> None:
    report.title(f"Elements that a rank sends per step, in parameters, beside ZeRO's: {ZERO}, f32, {ZERO_RANKS} ranks, × (N-1)/N")
    folder, rows = bench.export(ZERO, "--no-weights"), []
    for strategy, published in VOLUMES:
        out = demand(bench.fsdpc, folder / "gpt.onnx", RULE, f"--strategy={strategy}", f"--plan-ranks={ZERO_RANKS}", "--compile-to=memory",
                     "-v", "-o", bench.out / "volume.mlir").out
        parameters = int(re.search(r"P = (\d+) trainable", out)[1])
        sent = {name: int(count) / 4 / parameters for name, count in re.findall(r"^  (\w+): (\d+) bytes per (?:microbatch|step)$", out, re.MULTILINE)}
        total = sum(sent.values())
        report.keep("simulated", f"volume {strategy}", sent)
        rows.append([strategy, f"{published} P", f"{total:.3f} P", f"{100 * (total / published - 1):+.1f}",
                     ", ".join(f"{name} {count:.3f}" for name, count in sent.items())])
    report.table(["strategy", "ZeRO", "fsdpc", "error %", "by collective"], rows)


def with_memory(bench: Workbench, name: str, stated: float) -> Path:
    """Writes the machine with memory of another bandwidth, of which the same share is reached."""
    machine = json.loads((MACHINES / f"{name}.json").read_text())
    for rates in (rates for types in machine["rates"].values() for rates in types.values()):
        for figures in (rates.get("measured", {}), rates):
            if "memory_gbs" in figures:
                figures["memory_gbs"] *= stated / rates["memory_gbs"]
    path = bench.out / f"{name}-{stated}.json"
    path.write_text(json.dumps(machine))
    return path


def simulate(bench: Workbench, job: Job) -> dict:
    folder, path = bench.export(job.shape, "--no-weights"), bench.out / "simulated.json"
    flags = job.flags
    if job.memory:
        flags = [flag if not flag.startswith("--machine=") else f"--machine={with_memory(bench, flag.partition('=')[2], job.memory)}"
                 for flag in flags]
    links = [] if job.port is None else [f"--plan-ranks-per-node={NODE}", f"--plan-cross-node-gbs={job.port}"]
    demand(bench.fsdpc, "simulate", folder / "gpt.onnx", "--optimizer=adamw", RULE, *flags, *links, f"--ranks={job.ranks}", f"--json={path}")
    step = json.loads(path.read_text())["step"]
    return {"tokens": step["tokens_per_second"] / job.ranks, "mfu": step["mfu"], "gib": step["peak_bytes"] / 2**30,
            "links": (step["exposed_node_us"] + step["exposed_cross_us"]) / step["step_us"]}


def error(found: float, published: float) -> str:
    return f"{100 * (found / published - 1):+.0f}"


def throughputs(bench: Workbench, report: Report, jobs: list[Job]) -> list[dict]:
    report.title("Tokens per second and GPU, published and simulated")
    found, rows = [], []
    for job in jobs:
        row = simulate(bench, job)
        found.append(row)
        report.keep("simulated", f"{job.source}: {job.name}, {job.published}", {"published": job.tokens, **row})
        rows.append([job.source, job.name, job.published, f"{job.tokens:,.1f}", f"{row['tokens']:,.1f}", error(row["tokens"], job.tokens),
                     f"{100 * row['mfu']:.0f}", f"{100 * row['links']:.0f}", job.gib or "–", f"{row['gib']:.1f}"])
    report.table(["source", "job", "published", "tokens/s per GPU", "simulated", "error %", "simulated MFU %", "waits for links %",
                  "published GiB", "planned"], rows)
    for source in dict.fromkeys(job.source for job in jobs):
        print(f"- {source}: {SOURCES[source]}")
    return found


def scaling(report: Report, jobs: list[Job], found: list[dict]) -> None:
    report.title("Throughput per GPU of one job ÷ that of another")
    rows = []
    for first, second in PAIRS:
        if max(first, second) < len(jobs):
            published = jobs[first].tokens / jobs[second].tokens
            ours = found[first]["tokens"] / found[second]["tokens"]
            rows.append([jobs[first].source, f"{jobs[first].name} ÷ {jobs[second].name}", f"{published:.3f}", f"{ours:.3f}",
                         error(ours, published)])
    report.table(["source", "jobs", "published", "simulated", "error %"], rows)


def simulated(bench: Workbench, report: Report, quick: bool) -> None:
    volumes(bench, report)
    jobs = JOBS[:QUICK] if quick else JOBS
    scaling(report, jobs, throughputs(bench, report, jobs))
