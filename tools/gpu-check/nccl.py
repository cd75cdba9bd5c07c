# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks NCCL on one card: a rank alone that uses it, and two processes on one GPU where NCCL can do that."""
import re
import socket
import tempfile
from pathlib import Path

import notes
import speed
from correctness import WATCHDOG, Place, Training, train
from results import Failed, Results, Skipped
from running import run_together

SHARES_GPU = 23000                            # NCCL 2.30, the first with NCCL_MULTI_RANK_GPU_ENABLE
SECONDS = 120
ALONE = {"FSDPC_NCCL_ALONE": "1"}


def losses_of(trainings: list[Training]) -> list[list[float]]:
    return [training.losses() for training in trainings]


def alone(place: Place, results: Results, program: dict):
    """A single rank that joins, registers, captures and ends NCCL's communicators has the bits of one that does not."""
    plain = train(place, results, program, 1, "--deterministic")
    used, unshared = (train(place, results, program, 1, "--deterministic", *flags, environment=ALONE)
                      for flags in ([], ["--no-symmetric-memory"]))
    for other in (used, unshared):
        if plain.bits() != other.bits():
            raise Failed("the bits of a rank alone change with NCCL", f"losses {losses_of([plain, other])}")
    return "; ".join([f"{len(plain.losses())} losses, gradients and parameters", *map(memory_of, (used, unshared))]), notes.figures(used.log)


def memory_of(training: Training) -> str:
    """Returns what the log says of NCCL's memory; programs for the host say nothing."""
    said = re.search(r"NCCL \d[^\"]*", training.log.read_text())
    return said[0] if said else "no NCCL"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def processes(place: Place, results: Results, program: dict, ranks: int) -> list[float]:
    """Trains as torchrun starts ranks, all on the first GPU. Returns the losses."""
    folder = Path(tempfile.mkdtemp(dir=place.work))
    data = [argument.replace("=data/", f"={place.folder}/models/data/") for argument in program["data"]]
    command = [place.work / "programs" / program["file"], *data, "--seed", program["seed"], "--steps", program["steps"],
               "--accumulate", program["microbatches"] // ranks, "--log", folder / "log", "--deterministic",
               "--watchdog", WATCHDOG, "--first-step-timeout", 2 * WATCHDOG, "--join-timeout", 2 * WATCHDOG]
    port, environments = free_port(), []
    for rank in range(ranks):
        of_rank = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": port, "NCCL_MULTI_RANK_GPU_ENABLE": 1}
        environments.append({**place.environment, **{name: str(value) for name, value in of_rank.items()}})
    run_together(results, [command] * ranks, environments, SECONDS)
    return Training(folder / "log", folder / "none", folder / "none").losses()


def shared(place: Place, results: Results, program: dict, ranks: int):
    """Processes that share the GPU over NCCL have the losses of one rank, bit for bit."""
    expected = train(place, results, program, 1, "--deterministic").losses()
    losses = processes(place, results, program, ranks)
    if losses != expected:
        raise Failed("the losses are not those of one rank", f"{ranks} ranks: {losses}\none rank: {expected}")
    return f"{len(losses)} losses", {}


def check(place: Place, results: Results, versions: dict, gpu: str) -> None:
    version = versions.get("libnccl", 0)

    def only_if_shared(run):
        if place.pack["target"] == "cuda" and version < SHARES_GPU:
            raise Skipped(f"NCCL {version} refuses ranks that share a GPU; 2.30 and later take NCCL_MULTI_RANK_GPU_ENABLE")
        if place.pack["target"] == "host":
            raise Skipped("programs for the host have no NCCL")
        return run()

    for dtype in ("f32", "bf16"):
        programs = sorted((p for p in place.pack["parity"] if p["dtype"] == dtype), key=lambda p: p["bytes"])
        for program in programs[:3]:
            results.check("nccl", f"{program['model']} {dtype}, a rank alone", lambda: alone(place, results, program))
        for program in programs[:1]:
            if program["microbatches"] % 2 == 0:
                results.check("nccl", f"{program['model']} {dtype}, 2 processes on the GPU",
                              lambda: only_if_shared(lambda: shared(place, results, program, 2)))
    for bench in place.pack["bench"][:1]:
        for flags in ([], ["--no-symmetric-memory"], ["--nccl-max-ctas", "8"]):
            results.check("speed", " ".join([bench["name"], "fsdpc over NCCL", *flags]),
                          lambda: speed.ours(place, results, bench, gpu, *flags, environment=ALONE))
