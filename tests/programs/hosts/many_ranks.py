# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Starts many ranks of a tiny model on this machine over TCP.

256 processes meet, train to the bits of threads, and end within a minute. No rank has more connections than
runtime/abi/connections.h says is usual, and none takes more than 4 MiB of memory of its own: neither of libraries, nor shared.
A smaller job shows how the time grows. Another one has shard groups, whose ranks connect directly too, and shards larger than what
ranks pass on in rounds. It stays within the most connections that any job has.
"""
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
import onnx_wire as onnx
from harness import Failure

SIZES = (64, 256)
WIDTH, STEPS, SECONDS = 16, 2560, 60
GROUPED, GROUP, WIDE = 16, 8, 256             # ranks, those of a group, width
MOST = 4 << 10                                # KiB


def model(width: int) -> bytes:
    """Returns the model loss = mean((x · w)^2)."""
    weight = np.eye(width, dtype="<f4")
    nodes = [onnx.node("MatMul", ["x", "w"], ["y"]), onnx.node("Mul", ["y", "y"], ["square"]),
             onnx.node("ReduceMean", ["square"], ["loss"], onnx.integer("keepdims", 0))]
    return onnx.model(nodes, [onnx.value("x", (1, width))], [onnx.value("loss", ())], [onnx.tensor("w", weight.shape, weight.tobytes())])


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def connections(process: int, established: set) -> int:
    """Returns how many established TCP connections a process has."""
    folder, count = Path(f"/proc/{process}/fd"), 0
    for entry in folder.iterdir():
        try:
            count += os.readlink(entry)[8:-1] in established
        except FileNotFoundError:
            pass
    return count


def established() -> set:
    """Returns the inodes of this machine's established TCP connections."""
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {words[9] for words in lines if words[3] == "01"}


def own(process: int) -> int:
    """Returns the KiB of a process's memory that belong to no file, no other process and no code that a library generates."""
    total, counts = 0, False
    for line in Path(f"/proc/{process}/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0]:
            counts = "x" not in words[1] and (len(words) < 6 or words[5].startswith("["))
        elif words[0] == "Anonymous:" and counts:
            total += int(words[1])
    return total


def run(bench, words: list, ranks: int, steps: int) -> tuple[float, list]:
    """Trains. Returns the seconds, and for each rank its connections and its KiB after the first steps."""
    log, port, seen = bench.path(f"{ranks}.jsonl"), free_port(), []
    words = [str(word) for word in [*words, "--steps", steps, "--log", log, "--save", bench.path(f"{ranks}.safetensors")]]
    began, processes = time.monotonic(), []
    for rank in range(ranks):
        variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "localhost",
                     "MASTER_PORT": port}
        processes.append(subprocess.Popen(words, env={**os.environ, **{name: str(value) for name, value in variables.items()}},
                                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE if rank == 0 else subprocess.DEVNULL))
    try:
        while not seen and processes[0].poll() is None and time.monotonic() - began < SECONDS:
            time.sleep(0.02)
            if log.exists() and '"loss"' in log.read_text():
                for each in processes:         # so that none ends meanwhile
                    each.send_signal(signal.SIGSTOP)
                inodes = established()
                seen = [(connections(each.pid, inodes), own(each.pid)) for each in processes]
                for each in processes:
                    each.send_signal(signal.SIGCONT)
        codes = {each.wait(timeout=max(1.0, SECONDS + began - time.monotonic())) for each in processes}
    finally:
        for each in processes:
            each.kill()
    if codes != {0}:
        raise Failure(f"{ranks} ranks ended with {codes}: {processes[0].stderr.read().decode()}")
    return time.monotonic() - began, seen


def program(bench, name: str, width: int, *flags) -> list:
    """Compiles a model. Returns the command that trains it."""
    bench.path(f"{name}.onnx").write_bytes(model(width))
    np.save(bench.path(f"{name}.npy"), np.ones((max(SIZES), width), "<f4"))
    return [bench.compile(bench.path(f"{name}.onnx"), name, *flags), "--data", f"x={bench.path(f'{name}.npy')}", "--threads", 1]


def check(bench, words: list, ranks: int, steps: int, may: list) -> list:
    """Trains. Returns the connections of rank 0 and of the rank with most of the others; `may` are the most of both."""
    seconds, seen = run(bench, words, ranks, steps)
    if not seen:
        raise Failure(f"{ranks} ranks ended before anybody looked at them")
    found = [seen[0][0], max(count for count, _ in seen[1:])]
    memory = max(kib for _, kib in seen)
    print(f"{ranks} ranks: {seconds:.1f} s, {found[0]} connections of rank 0 (at most {may[0]}), {found[1]} of another one "
          f"(at most {may[1]}), {memory} KiB of a rank's own memory", flush=True)
    # The watch's, and one to agree with the others at least.
    least = [ranks - 1, 2]
    if any(not low <= count <= high for low, count, high in zip(least, found, may)):
        raise Failure(f"{ranks} ranks have {found} connections, not {least} to {may}")
    if min(count for count, _ in seen[1:]) < least[1]:
        raise Failure(f"a rank of {ranks} has too few connections: {seen}")
    if not 0 < memory <= MOST:
        raise Failure(f"a rank of {ranks} has {memory} KiB of its own, more than {MOST} or none")
    threads = bench.path("threads.safetensors")
    harness.run([*words, "--ranks", ranks, "--steps", steps, "--save", threads])
    if threads.read_bytes() != bench.path(f"{ranks}.safetensors").read_bytes():
        raise Failure(f"{ranks} processes have other bits than threads")
    return found


def test(bench, options) -> None:
    def counts(ranks: int) -> list:
        """Returns the usual connections of rank 0 and of another one, and the most of both."""
        return [int(word) for word in harness.run([bench.build / "bin" / "rank_model", ranks, ranks]).stdout.split()]

    words = program(bench, "grouped", WIDE, "--strategy=hybrid")
    usual, most = counts(GROUPED)[:2], counts(GROUPED)[2:]
    found = check(bench, [*words, "--shard-group", GROUP], GROUPED, 10, most)
    if found[0] <= usual[0] and found[1] <= usual[1]:
        raise Failure(f"groups have {found} connections, no more than {usual}: this test sees nothing that joins further pairs")
    words = program(bench, "train", WIDTH)
    for ranks in SIZES:
        check(bench, words, ranks, STEPS // ranks + 10, counts(ranks)[:2])


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
