#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks evaluations: PyTorch's loss in evaluation mode, the same bits at any number of ranks, and what --eval leads to.

usage: evaluation.py --build DIR

The losses of PyTorch are in tests/models/references/evaluation.json, for the parameters and running statistics that the
references hold after their last step. The fixtures have a last microbatch that is not full.
"""
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
import numpy as np
from harness import Failure, MODELS, run

LIMIT = 1e-5                                  # relative, against PyTorch in f64
STRATEGIES = {"zero3": [], "ddp": ["--strategy=ddp"], "zero2": ["--strategy=zero2"]}


def save_safetensors(path, arrays: dict[str, np.ndarray]) -> None:
    header, offset = {}, 0
    for name, array in arrays.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(array.tobytes() for array in arrays.values()))


def eval_flags(fixture) -> list[str]:
    return [word.replace("--data=", "--eval=").replace("--tokens=", "--eval-tokens=") for word in fixture.data]


def trained(bench, fixture):
    """Writes the reference's final parameters and running statistics as a file for --init."""
    arrays = {key.removeprefix("final/"): np.ascontiguousarray(value, dtype="<f4")
              for key, value in np.load(fixture.reference).items() if key.startswith("final/")}
    path = bench.path(f"{fixture.name}.final.safetensors")
    save_safetensors(path, arrays)
    return path


def evaluations(log) -> list[dict]:
    return [line for line in map(json.loads, log.read_text().splitlines()) if "eval_loss" in line]


def evaluate(bench, program, ranks: int, *flags) -> dict:
    log = bench.path("evaluation.jsonl")
    run([program, "--ranks", ranks, "--threads", 1, "--steps", 0, "--log", log, *flags])
    lines = evaluations(log)
    if len(lines) != 1:
        raise Failure(f"an evaluation logs {len(lines)} lines, expected one")
    return lines[0]


def check_parity(bench, name: str, reference: dict) -> None:
    """PyTorch's loss; and one number whatever the ranks, the microbatches per round and the strategy."""
    fixture = harness.fixture(name)
    init = ["--init", trained(bench, fixture)]
    losses = {}
    for strategy, flags in STRATEGIES.items():
        program = bench.compile_fixture(fixture, f"{name}-{strategy}", *flags)
        for ranks, accumulate in ((1, 1), (2, 3), (4, 1)) if strategy == "zero3" else ((2, 1),):
            line = evaluate(bench, program, ranks, *eval_flags(fixture), *init, "--accumulate", accumulate)
            losses[strategy, ranks, accumulate] = line["eval_loss"]
            if line["eval_samples"] != reference["samples"]:
                raise Failure(f"{name}: evaluated {line['eval_samples']} of {reference['samples']} samples")
    first = next(iter(losses.values()))
    error = abs(first / reference["loss"] - 1)
    print(f"{name}: eval_loss {first}, PyTorch {reference['loss']}, off by {error:.1e}")
    if error > LIMIT:
        raise Failure(f"{name}: the loss is off by {error:.1e}, limit {LIMIT:.0e}")
    if len(set(losses.values())) != 1:
        raise Failure(f"{name}: losses differ: {losses}")


def check_training(bench) -> None:
    """Evaluations on the way change nothing that is learnt, and the best parameters give the loss that was logged."""
    fixture = harness.fixture("conv_net")
    program, flags = bench.path("conv_net-zero3"), eval_flags(fixture)
    best = bench.path("best")
    plain = bench.train(program, fixture, 2, local=True, steps=5)
    watched = bench.train(program, fixture, 2, "--eval-every", "2", "--best", best, *flags, local=True, steps=5)
    if plain.bits() != watched.bits():
        raise Failure("evaluations change the bits of the training")
    lines = evaluations(watched.log)
    if [line["eval_step"] for line in lines] != [2, 4, 5]:
        raise Failure(f"evaluated after steps {[line['eval_step'] for line in lines]}, expected 2, 4, 5")
    named = json.loads((best / "best.json").read_text())
    lowest = min(lines, key=lambda line: line["eval_loss"])
    if (named["step"], named["eval_loss"]) != (lowest["eval_step"], lowest["eval_loss"]):
        raise Failure(f"best.json names {named}, but the lowest line is {lowest}")
    if sorted(path.name for path in best.iterdir()) != sorted([".best.lock", "best.json", named["file"]]):
        raise Failure(f"'{best}' holds more than the best")
    again = evaluate(bench, program, 1, *flags, "--init", best / named["file"])
    if again["eval_loss"] != named["eval_loss"]:
        raise Failure(f"the best parameters give {again['eval_loss']}, logged was {named['eval_loss']}")
    refuse([program, "--steps", 0, *flags, "--best", best], 1, "holds the best parameters of another run")
    # The loss cannot fall at a learning rate of 0.
    log = bench.path("patience.jsonl")
    run([program, *fixture.data, *flags, "--steps", 9, "--lr", 0, "--eval-every", 1, "--eval-steps", 2, "--patience", 2,
         "--log", log])
    steps = len([line for line in log.read_text().splitlines() if '"loss"' in line])
    if steps > 8:
        raise Failure(f"--patience did not end the run: {steps} steps")


def check_resume(bench) -> None:
    """A run in two parts logs the evaluations of one, and goes on with the best of its first part."""
    fixture = harness.fixture("conv_net")
    program, checkpoints = bench.path("conv_net-zero3"), bench.path("checkpoints")
    logs = {name: bench.path(f"{name}.jsonl") for name in ("whole", "parts")}
    command = [program, *fixture.data, *eval_flags(fixture), "--eval-every", 2, "--threads", 1]
    run([*command, "--steps", 6, "--log", logs["whole"], "--ranks", 2, "--accumulate", 2, "--best", bench.path("whole")])
    for steps, ranks in ((3, 2), (6, 4)):
        run([*command, "--steps", steps, "--log", logs["parts"], "--ranks", ranks, "--accumulate", 4 // ranks,
             "--checkpoint", checkpoints, "--resume", "--best", bench.path("parts")])
    whole, parts = ([(line["eval_step"], line["eval_loss"]) for line in evaluations(log)] for log in logs.values())
    if [step for step, _ in parts] != [2, 3, 4, 6] or not set(whole) <= set(parts):
        raise Failure(f"the evaluations of the whole run are {whole}, of its parts {parts}")
    best = json.loads((bench.path("parts") / "best.json").read_text())
    if (best["step"], best["eval_loss"]) != min(parts, key=lambda pair: pair[1]):
        raise Failure(f"best.json names {best}, the evaluations were {parts}")


def check_full_disk(bench) -> None:
    """A best that cannot be written costs a warning, at the end of the run an error, and never the checkpoint of the last step."""
    fixture = harness.fixture("conv_net")
    # A file of weights has no name, which the shim sees as /full/#NUMBER, until it is whole. That of step 2 is the first.
    for times, code in (("FAULT_AT", 0), ("FAULT_FROM", 3)):
        best, checkpoints = bench.path("full"), bench.path("full-checkpoints")
        done = run([bench.path("conv_net-zero3"), *fixture.data, *eval_flags(fixture), "--ranks", 2, "--steps", 4, "--eval-every", 2,
                    "--best", best, "--checkpoint", checkpoints], code,
                   env={**os.environ, "LD_PRELOAD": str(bench.build / "lib" / "libruntime_fault_shim.so"), "FAULT_PATH": "/full/#",
                        "FAULT_CALL": "write", times: "1", "FAULT_ERRNO": "28"})
        index = best / "best.json"
        kept = json.loads(index.read_text())["step"] if index.exists() else None
        if kept != (4 if code == 0 else None) or not (checkpoints / "step-0000004").exists() or \
                "the run goes on without what the evaluation after step 2 found" not in done.stderr or \
                done.stderr.count("error:") != (code == 3):
            raise Failure(f"with a full disk the best is of step {kept}:\n{done.stderr}")
        shutil.rmtree(checkpoints)
        shutil.rmtree(best)


def check_shared_folder(bench) -> None:
    """Of two programs that keep their best in one folder at the same time, the lowest loss wins, beside its own parameters."""
    fixture, best = harness.fixture("conv_net"), bench.path("shared")
    program, flags = bench.path("conv_net-zero3"), eval_flags(fixture)
    for _ in range(3):
        logs, runs = [], []
        for lr in ("1e-3", "1e-2"):
            logs.append(bench.path(f"shared-{lr}.jsonl"))
            words = [program, *fixture.data, *flags, "--threads", 1, "--steps", 8, "--lr", lr, "--eval-every", 1, "--log", logs[-1],
                     # A run that resumes may find the best of another, which has begun a moment before.
                     "--checkpoint", bench.path(f"shared-checkpoints-{lr}"), "--resume", "--best", best]
            runs.append(subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
        errors = [one.communicate(timeout=harness.TIMEOUT)[1] for one in runs]
        if any(one.returncode for one in runs):
            raise Failure(f"two runs that share --best: {errors}")
        named = json.loads((best / "best.json").read_text())
        lowest = min(line["eval_loss"] for log in logs for line in evaluations(log))
        again = evaluate(bench, program, 1, *flags, "--init", best / named["file"])["eval_loss"]
        if not lowest == named["eval_loss"] == again:
            raise Failure(f"the lowest loss of two runs is {lowest}, best.json says {named}, its parameters give {again}")
        for path in (best, *bench.folder.glob("shared-checkpoints-*")):
            shutil.rmtree(path)


def check_no_locks(bench) -> None:
    """On a file system without locks the best is kept as well, and a warning says what that means."""
    fixture, best = harness.fixture("conv_net"), bench.path("unlocked")
    done = run([bench.path("conv_net-zero3"), *fixture.data, *eval_flags(fixture), "--steps", 2, "--eval-every", 1, "--best", best],
               env={**os.environ, "LD_PRELOAD": str(bench.build / "lib" / "libruntime_fault_shim.so"), "FAULT_PATH": ".best.lock",
                    "FAULT_CALL": "flock", "FAULT_FROM": "1", "FAULT_ERRNO": "37"})
    if not (best / "best.json").exists() or done.stderr.count("no other run may use this --best") != 1:
        raise Failure(f"without locks the best is not kept, or there is no warning:\n{done.stderr}")


def check_npz(bench) -> None:
    """Data in NumPy's archives, stored and deflated, gives the loss of the same data in .npy files, on all ranks."""
    fixture = harness.fixture("conv_net")
    program, flags = bench.path("conv_net-zero3"), eval_flags(fixture)
    arrays = {word.split("=")[1]: np.load(word.split("=", 2)[2]) for word in flags}
    stored, packed = bench.path("stored.npz"), bench.path("packed.npz")
    np.savez(stored, **arrays)
    np.savez_compressed(packed, **arrays)
    losses = [evaluate(bench, program, 2, *words)["eval_loss"]
              for words in (flags, *([f"--eval={name}={path}" for name in arrays] for path in (stored, packed)))]
    if len(set(losses)) != 1:
        raise Failure(f"the losses of .npy, stored and deflated data are {losses}")
    refuse([program, "--steps", 0, *(f"--eval={name}={stored}:labels" for name in arrays)], 1, "input 'pixel_values'")


def check_old_dump(bench) -> None:
    """A dump without @evaluate compiles, and its program refuses only --eval."""
    fixture = harness.fixture("conv_net")
    flags, dumps = eval_flags(fixture), bench.path("dumps")
    bench.compile_fixture(fixture, "dumped", f"--dump-ir={dumps}")
    without = r"\n  func\.func @evaluate\(.*?\n  }[^\n]*"
    old = harness.edited(harness.dump(dumps, "plan-memory"), "old", lambda text: re.sub(without, "", text, flags=re.S))
    program = bench.compile(old, "old")
    run([program, *fixture.data, "--steps", 1])
    refuse([program, *fixture.data, "--steps", 1, *flags], 2, "the program holds no '@evaluate'")


def refuse(command: list, code: int, text: str) -> None:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    if done.returncode != code or len(errors) != 1 or text not in errors[0]:
        raise Failure(f"{command}\nexit code {done.returncode}, expected {code}; {done.stderr}\nexpected '{text}'")


def check_refusals(bench) -> None:
    fixture = harness.fixture("conv_net")
    program, flags = bench.path("conv_net-zero3"), eval_flags(fixture)
    refuse([program, "--steps", 0], 2, "--steps 0 needs --eval")
    refuse([program, "--steps", 3, *fixture.data, "--eval-every", 2], 2, "--eval-every needs --eval")
    refuse([program, "--steps", 0, flags[0]], 2, "has no data: give --eval")
    wrong = bench.path("wrong.npy")
    np.save(wrong, np.zeros((8, 3, 17, 18), np.float32))
    other = [f"--eval=pixel_values={wrong}", *[flag for flag in flags if "pixel_values" not in flag]]
    refuse([program, "--steps", 3, *fixture.data, *other], 1, str(wrong))
    labels = bench.path("labels.npy")
    np.save(labels, np.full(58, 10, np.int32))
    beyond = [f"--eval=labels={labels}", *[flag for flag in flags if "labels" not in flag]]
    refuse([program, "--steps", 3, *fixture.data, *beyond], 1, str(labels))
    check_not_finite(bench, program, flags)
    one = [program, *fixture.data, *flags, "--steps", 3, "--eval-every"]
    refuse([*harness.mpirun(1), *one, 1, ":", "-np", 1, *one, 2], 1, "--eval-every is '2' on rank 1 and '1' on rank 0")


def check_not_finite(bench, program, flags) -> None:
    """A loss that is not a number is a warning that names the sample, or says that no target counts."""
    changed = {"pixel_values": bench.path("nan.npy"), "labels": bench.path("ignored.npy")}
    arrays = {word.split("=")[1]: np.load(word.split("=", 2)[2]) for word in flags}
    arrays["pixel_values"][5, 0, 0, 0] = np.nan
    arrays["labels"][:] = -100
    for name, why in (("pixel_values", "nan.npy' sample 5 element 0"), ("labels", "no target of its data counts")):
        np.save(changed[name], arrays[name])
        others = [word for word in flags if f"={name}=" not in word]
        done = run([program, "--steps", 0, f"--eval={name}={changed[name]}", *others])
        if done.stderr.count("warning:") != 1 or why not in done.stderr:
            raise Failure(f"expected one warning with '{why}':\n{done.stderr}")


def test(bench, options):
    references = json.loads((MODELS / "references" / "evaluation.json").read_text())
    for name in references if options.all else ("conv_net", "gpt_dropout"):
        check_parity(bench, name, references[name])
    check_training(bench)
    check_resume(bench)
    check_full_disk(bench)
    check_shared_folder(bench)
    check_no_locks(bench)
    check_npz(bench)
    check_old_dump(bench)
    check_refusals(bench)


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, lambda parser: parser.add_argument("--all", action="store_true", help="evaluate every fixture")))
