# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains the same model with PyTorch's FSDP2 (fully_shard), with equal batch, optimizer and clipping;
on CPUs with gloo, on GPUs with NCCL.

usage: torchrun --nproc_per_node 2 torch_fsdp.py L6,D384,H6,T256 --batch 4 --steps 6
            [--dtype f32|bf16] [--device cuda] [--compile] [--lora RANK]

Rank 0 prints one line of JSON: tokens/s over all ranks and core time of rank 0 (medians over steps
without the first), and the most resident memory of a rank, on GPUs the most allocated memory. Each
rank has one thread. The units are the blocks and the rest, as in PyTorch's tutorial. --compile
compiles each block, and the head with the loss, as is usual for FSDP2 with torch.compile: a graph
over several units would gather all of them at once.

With --lora the model is frozen in bf16, and adapters in f32 of that rank are trained. No rank then
ever has all parameters: they are made on the meta device, sharded, and then filled. The peak is
that of the steps alone, and rss_before_mib is what the process had before there was a model.
"""
import argparse
import json
import os
import statistics
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from gpt import GPT, Shape, adapt

arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
arguments.add_argument("shape", type=Shape.parse)
arguments.add_argument("--batch", type=int, default=4)
arguments.add_argument("--steps", type=int, default=6)
arguments.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
arguments.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
arguments.add_argument("--compile", action="store_true")
arguments.add_argument("--leave-out", type=int, default=1, metavar="N", help="number of first steps that are not measured (default: %(default)s)")
arguments.add_argument("--lora", type=int, metavar="RANK")
options = arguments.parse_args()


def memory_mib(kind: str) -> float:
    """Returns the process's resident set now (VmRSS), or its peak (VmHWM)."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(kind))
    return int(line.split()[1]) / 1024


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def fill(model) -> None:
    """Gives shards of parameters without values those with which a model begins, or similar ones."""
    model.to_empty(device=options.device)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            own = parameter.to_local()
            own.fill_(1) if "norm.weight" in name else own.zero_() if "lora_B" in name else own.normal_(std=0.02)

torch.set_num_threads(1)
on_gpu = options.device == "cuda"
if on_gpu:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl" if on_gpu else "gloo")
ranks, rank = dist.get_world_size(), dist.get_rank()
torch.manual_seed(0)
before = memory_mib("VmRSS")
with torch.device("meta" if options.lora else options.device):
    model = GPT(options.shape)
    if options.lora:
        adapt(model, options.lora)
# A rank alone keeps parameters whole from the forward to the backward.
sharding = {"mesh": init_device_mesh(options.device, (ranks,)), "reshard_after_forward": False if ranks == 1 else None}
if options.dtype == "bf16":
    sharding["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
if options.compile:
    model.loss = torch.compile(model.loss)
    for block in model.blocks:
        block.compile()
for block in model.blocks:
    fully_shard(block, **sharding)
fully_shard(model, **sharding)
if options.lora:
    fill(model)
    forget_peak()
trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=1e-3, fused=True)

torch.manual_seed(1 + rank)
ids, labels = torch.randint(options.shape.vocabulary, (2, options.batch, options.shape.length), device=options.device)
seconds, core = [], []
for _ in range(options.steps):
    began, core_began = time.perf_counter(), time.process_time()
    model(ids, labels).backward()
    torch.nn.utils.clip_grad_norm_(trained, 1.0)
    optimizer.step()
    optimizer.zero_grad()
    if on_gpu:
        torch.cuda.synchronize()
    seconds.append(time.perf_counter() - began)
    core.append(time.process_time() - core_began)

peak_mib = torch.cuda.max_memory_allocated() / 2**20 if on_gpu else memory_mib("VmHWM")
peak = torch.tensor([peak_mib], device=options.device)
dist.all_reduce(peak, dist.ReduceOp.MAX)
if rank == 0:
    tokens = ranks * options.batch * options.shape.length
    print(json.dumps({"torch": torch.__version__, "tokens_per_s": tokens / statistics.median(seconds[options.leave_out:]),
                      "step_ms": 1e3 * statistics.median(seconds[options.leave_out:]),
                      "core_ms": 1e3 * statistics.median(core[options.leave_out:]), "rss_before_mib": before,
                      "peak_memory_mib" if on_gpu else "peak_rss_mib": peak.item()}), flush=True)
dist.destroy_process_group()
os._exit(0)                                   # gloo's threads may outlive the interpreter
