#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that bad input ends a compile or a run with the right exit code and one line "error: …", and that nothing is written.

usage: bad_input.py --build DIR [CASE…]

Exit codes: 1 invalid input, 2 invalid command line, 3 the run failed. Each case has a time limit, which detects a job whose
ranks wait for a failed one.
"""
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
import onnx_wire as onnx
from harness import MODELS, Failure

SECONDS = 30                                  # time limit of a failing run, also under mpirun
EXTERNAL = {"location": "data.bin", "offset": 0, "length": 16}


def check(name: str, command: list, code: int, *mentions: str, **more) -> str:
    began = time.monotonic()
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=120, **more)
    seconds = time.monotonic() - began
    output = done.stdout + done.stderr
    errors = [line for line in output.splitlines() if line.startswith("error:")]
    wrong = []
    if done.returncode != code:
        wrong.append(f"exit code {done.returncode}, expected {code}")
    if len(errors) != 1:
        wrong.append(f"{len(errors)} lines begin with 'error:', expected 1")
    wrong += [f"the output does not mention '{word}'" for word in mentions if word not in output]
    if seconds > SECONDS:
        wrong.append(f"took {seconds:.0f} s")
    print(f"{'ok   ' if not wrong else 'WRONG'} {name}: {errors[0] if errors else output[-300:]}", flush=True)
    return "".join(f"\n  {name}: {w}" for w in wrong)


def compile_cases(bench):
    """Returns (name, model as bytes or file, exit code, words in the error, flags, files next to the model)."""
    def external(**changes):
        return onnx.small(onnx.tensor("w", (2, 2), external=EXTERNAL | changes))

    gpt = (MODELS / "gpt.onnx").read_bytes()
    good = onnx.small()
    two = [onnx.tensor(n, (2, 2), external=EXTERNAL | {"offset": o}) for n, o in (("w", 0), ("v", 8))]
    overlapping = onnx.model(
        [onnx.node("MatMul", ["x", "w"], ["y"]), onnx.node("MatMul", ["y", "v"], ["z"]),
         onnx.node("ReduceMean", ["z"], ["loss"], onnx.integer("keepdims", 0))],
        [onnx.value("x", (4, 2))], [onnx.value("loss", ())], two)
    data = {"data.bin": onnx.IDENTITY * 2}
    return [
        ("no such file", bench.path("absent.onnx"), 1, ["absent.onnx"], [], {}),
        ("a folder", bench.folder, 1, [], [], {}),
        ("not ONNX", b"The quick brown fox\n" * 50, 1, [], [], {}),
        ("empty", b"", 1, [], [], {}),
        ("truncated", gpt[:len(gpt) // 2], 1, [], [], {}),
        ("external data missing", external(), 1, ["data.bin"], [], {}),
        ("external data short", external(), 1, ["data.bin"], [], {"data.bin": b"short"}),
        ("external data absolute", external(location="/etc/hostname"), 1, ["/etc/hostname"], [], data),
        ("external data in the parent folder", external(location="../data.bin"), 1, ["../data.bin"], [], data),
        ("external data through a link", external(location="link.bin"), 1, ["link.bin"], [], {"link.bin": None}),
        ("external data of negative offset", external(offset=-16), 1, ["-16"], [], data),
        ("external data of wrong length", external(length=12), 1, [], [], data),
        ("external data overlapping", overlapping, 1, ["data.bin"], [], data),
        ("unknown op", onnx.small(op="Frobnicate"), 1, ["Frobnicate", "'y'"], [], {}),
        ("unknown opset", onnx.small(opset=99), 1, ["99"], [], {}),
        ("wrong shapes", onnx.small(width=3), 1, ["MatMul"], [], {}),
        ("weight of wrong size", onnx.small(onnx.tensor("w", (2, 2), b"1234")), 1, ["'w'"], [], {}),
        ("dynamic shape", onnx.small(width="width"), 1, ["width"], [], {}),
        ("dynamic shape of a fixture", MODELS / "gpt_dynamic.onnx", 1, ["batch"], [], {}),
        ("unknown dimension", MODELS / "gpt_dynamic.onnx", 1, ["bath"], ["--dim=bath=2", "--dim=batch=2"], {}),
        ("no parameters", onnx.small(parameters=False, reads_weight=False), 1, [], [], {}),
        ("loss without parameters", onnx.small(reads_weight=False), 1, [], [], {}),
        ("all frozen", good, 1, [], ["--frozen=.*"], {}),
        ("two losses", onnx.small(outputs=("loss", "other")), 1, ["loss", "other"], [], {}),
        ("unknown loss", good, 1, ["lost"], ["--loss=lost"], {}),
        ("unknown flag", good, 2, ["--strategy"], ["--stratgy=zero3"], {}),
        ("torch's spelling of a flag", good, 2, ["write '--clip-grad-norm' of fsdpc"], ["--clip_grad_norm=1"], {}),
        ("a config's key", good, 2, ["write '--gather-dtype=i8' of fsdpc"], ["--zero_quantized_weights=1"], {}),
        ("unknown value", good, 2, ["zero3"], ["--strategy=zero4"], {}),
        ("strategy of no unit", good, 1, ["'x=zero2'", "available: '"], ["--strategy-of=x=zero2"], {}),
        ("ignored parameter", good, 1, ["--ignored 'x'"], ["--ignored=x"], {}),
        ("invalid number", good, 2, ["fast"], ["--lr=fast"], {}),
        ("unknown phase", good, 2, ["runtime"], ["--compile-to=runtme"], {}),
        ("bad init rule", MODELS / "gpt_untied.onnx", 2, ["normal"], ["--init-rule=*=gauss(0,1)"], {}),
        ("bad regex", good, 2, ["("], ["--frozen=("], {}),
    ]


def test_compile(bench) -> str:
    wrong = ""
    folder = bench.path("model")
    for name, model, code, mentions, flags, beside in compile_cases(bench):
        if not wanted(name):
            continue
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (bench.path("data.bin")).write_bytes(onnx.IDENTITY)
        for file, content in beside.items():
            if content is None:
                (folder / file).symlink_to(bench.path("data.bin"))
            else:
                (folder / file).write_bytes(content)
        if isinstance(model, bytes):
            (folder / "model.onnx").write_bytes(model)
            model = folder / "model.onnx"
        out = bench.path("out")
        out.mkdir(exist_ok=True)
        wrong += check(name, [bench.build / "bin" / "fsdpc", model, "-o", out / "train", *flags], code, *mentions)
        if list(out.iterdir()):
            wrong += f"\n  {name}: wrote {[p.name for p in out.iterdir()]}"
            shutil.rmtree(out)
    return wrong


def small_program(bench, folder, name: str, *flags: str):
    """Compiles the small model with its weight in a file, and writes valid samples."""
    folder.mkdir(exist_ok=True)
    (folder / "data.bin").write_bytes(onnx.IDENTITY)
    model = folder / "model.onnx"
    model.write_bytes(onnx.small(onnx.tensor("w", (2, 2), external=EXTERNAL)))
    np.save(folder / "x.npy", np.ones((16, 2), np.float32))
    return bench.compile(model, name, *flags)


def run_cases(bench, folder):
    program = small_program(bench, folder, "small")
    groups = small_program(bench, folder, "groups", "--strategy=hybrid")
    gpt = bench.compile(MODELS / "gpt_opset23.onnx", "gpt")
    # The small model's only unit turns with one gather; gpt's are gathered twice.
    resharded = bench.compile(MODELS / "gpt_opset23.onnx", "resharded", "--reshard-to=3")
    good = [f"--data=x={folder}/x.npy", "--steps=2"]
    text = [f"--tokens={n}={MODELS}/data/licence.txt:u8" for n in ("input_ids", "labels")] + ["--steps=2"]

    def array(name, value):
        np.save(folder / f"{name}.npy", value)
        return [f"--data=x={folder}/{name}.npy", "--steps=2"]

    (folder / "high.txt").write_bytes(bytes([200]) * 4096)
    high = [f"--tokens={n}={folder}/high.txt:u8" for n in ("input_ids", "labels")] + ["--steps=2"]
    (folder / "bad.safetensors").write_bytes(b"\xff" * 64)
    torchrun = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "20998",
                "FSDPC_JOIN_SECONDS": "2"}
    slurm = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2"}
    return [                                  # name, program, arguments, code, words, environment
        ("wrong dtype", program, array("ints", np.ones((16, 2), np.complex64)), 1, ["ints.npy"], {}),
        ("wrong rank", program, array("flat", np.ones(16, np.float32)), 1, ["flat.npy"], {}),
        ("wrong width", program, array("wide", np.ones((16, 3), np.float32)), 1, ["wide.npy", "3"], {}),
        ("too few samples", program, array("few", np.ones((3, 2), np.float32)), 1, ["few.npy"], {}),
        ("missing data file", program, [f"--data=x={folder}/none.npy", "--steps=2"], 1, ["none.npy"], {}),
        ("not a .npy file", program, [f"--data=x={folder}/data.bin", "--steps=2"], 1, ["data.bin"], {}),
        ("token out of range", gpt, high, 1, ["200"], {}),
        ("NaN in the data", program, array("nan", np.full((16, 2), np.nan, np.float32)), 3, ["step 0"], {}),
        ("loss that diverges", program, [*good[:1], "--steps=9", "--lr=1e38"], 3, ["step"], {}),
        ("--init without a file", gpt, [*text, f"--init={folder}/none.safetensors"], 1, ["none.safetensors"], {}),
        ("--init with an invalid file", gpt, [*text, f"--init={folder}/bad.safetensors"], 1, ["bad.safetensors"], {}),
        ("--save to a missing folder", program, [*good, f"--save={folder}/none/out.safetensors"], 1, ["none"], {}),
        ("unknown flag", program, [*good, "--acumulate=2"], 2, ["--accumulate"], {}),
        ("bad value", program, [*good, "--lr=fast"], 2, ["fast"], {}),
        ("unknown input", program, [f"--data=y={folder}/x.npy", "--steps=2"], 2, ["'x'"], {}),
        ("input without data", program, ["--steps=2"], 2, ["'x'"], {}),
        ("a shard group that does not divide the ranks", groups, [*good, "--shard-group=3"], 2, ["--shard-group '3'", " rank"], {}),
        ("--reshard-to that does not divide the ranks", resharded, text, 2, ["--reshard-to '3'", " rank", "--shard-group"], {}),
        ("a shard group without a hybrid strategy", program, [*good, "--shard-group=1"], 2, ["'zero3'", "--strategy=hybrid"], {}),
        ("no steps", program, good[:1], 2, ["--steps"], {}),
        ("missing rank under torchrun", program, good, 5, ["rank 1 of 2", "WORLD_SIZE"], torchrun),
        ("incomplete environment of srun", program, good, 1, ["SLURM"], slurm),
    ]


def test_runs(bench) -> str:
    wrong = ""
    folder = bench.path("run")
    for name, program, arguments, code, mentions, variables in run_cases(bench, folder):
        if not wanted(name):
            continue
        launches = {"one rank": [program], "threads": [program, "--ranks", 2], "mpirun": [*harness.mpirun(2), program]}
        for way, launch in launches.items():
            if variables and way != "one rank":
                continue
            wrong += check(f"{name}, {way}", [*launch, *arguments], code, *mentions, env=os.environ | variables)
    return wrong


def test_weights(bench) -> str:
    """Checks that missing or changed weights are reported before the first step."""
    wrong = ""
    folder = bench.path("weights")
    program = small_program(bench, folder, "weights-program")
    command = [program, "--ranks", 2, f"--data=x={folder}/x.npy", "--steps=2"]
    harness.run(command)
    data = folder / "data.bin"
    data.write_bytes(np.full(4, 2, np.float32).tobytes())
    wrong += check("weights changed", command, 1, "data.bin")
    data.write_bytes(b"1234")
    wrong += check("weights cut short", command, 1, "data.bin")
    data.unlink()
    wrong += check("weights gone", command, 1, "data.bin")
    moved = bench.path("moved")
    moved.mkdir()
    (moved / "data.bin").write_bytes(onnx.IDENTITY)
    harness.run([*command, f"--weights={moved}"])
    print("ok    weights moved: found with --weights")
    return wrong


def test_full_disk(bench) -> str:
    """Simulates a full disk with a limit on file sizes. The previously saved file must stay."""
    gpt = bench.compile(MODELS / "gpt_opset23.onnx", "full-disk")
    folder = bench.path("disk")
    folder.mkdir()
    saved = folder / "out.safetensors"
    saved.write_bytes(b"what was there")
    text = [f"--tokens={n}={MODELS}/data/licence.txt:u8" for n in ("input_ids", "labels")]
    wrong = check("full disk", ["bash", "-c", 'ulimit -f 8; exec "$@"', "-", gpt, "--ranks", 2, *text, "--steps=2",
                                f"--save={saved}"], 3, "out.safetensors")
    if saved.read_bytes() != b"what was there" or len(list(folder.iterdir())) != 1:
        wrong += f"\n  full disk: the old file is gone, or other files were left: {os.listdir(folder)}"
    return wrong


def test_killed(bench) -> str:
    """Checks that killing a rank ends the job."""
    folder = bench.path("killed")
    program = small_program(bench, folder, "killed-program")
    log = folder / "log.jsonl"
    job = subprocess.Popen([str(w) for w in [*harness.mpirun(2), program, f"--data=x={folder}/x.npy", "--steps=100000000",
                                             f"--log={log}"]], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
    try:
        while not (log.exists() and log.stat().st_size > 2000):
            if job.poll() is not None:
                return f"\n  killed rank: the job exited early with code {job.returncode}"
            time.sleep(0.1)
        children = [int(p) for p in subprocess.run(["ps", "-o", "pid=", "--ppid", str(job.pid)], capture_output=True,
                                                   text=True).stdout.split()]
        began = time.monotonic()
        os.kill(children[-1], signal.SIGKILL)
        code = job.wait(timeout=SECONDS)
        print(f"ok    killed rank: the job ended after {time.monotonic() - began:.1f} s with exit code {code}")
        return "" if code else "\n  killed rank: the job ended with exit code 0"
    except subprocess.TimeoutExpired:
        job.kill()
        return f"\n  killed rank: the job was still running after {SECONDS} s"


WANTED: list[str] = []


def wanted(name: str) -> bool:
    return not WANTED or name in WANTED


def test(bench, options):
    WANTED.extend(options.cases)
    wrong = test_compile(bench) + test_runs(bench)
    for further in (test_weights, test_full_disk, test_killed):
        if wanted(further.__name__.removeprefix("test_").replace("_", " ")):
            wrong += further(bench)
    if wrong:
        raise Failure(f"failed cases:{wrong}")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, lambda parser: parser.add_argument("cases", nargs="*", metavar="CASE")))
