#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks programs that are compiled for several lengths of their samples (--dim NAME=6,12).

usage: buckets.py --build DIR [--target cuda-emulation]

A run over samples of two lengths has the bits of programs of one length each, which take its steps in turn and hand the
parameters on by --save and --init. The order of the lengths is the same at every number of ranks, and so are all bits. On a GPU
each length has graphs of its own, and ranks are threads or communicate over NCCL.
"""
import itertools
import json
import re
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import MODELS, Failure, info, main, mpirun, run

MODEL, BATCH, LENGTHS = MODELS / "gpt_lengths.onnx", 2, (6, 12)
MICROBATCHES, STEPS = 4, 9
SAMPLES = {6: 20, 12: 12}                     # of training; a step takes 8
HELD_OUT = {6: 5, 12: 3}                      # the last microbatch of each is not full
INPUTS = ("input_ids", "labels")


def write_samples(bench) -> dict:
    """Returns the samples by kind, input and length, which are also files."""
    draw, samples = np.random.default_rng(3), {}
    for kind, counts in (("train", SAMPLES), ("held", HELD_OUT)):
        for length, count in counts.items():
            text = draw.integers(0, 128, (count, length + 1))
            for shift, name in enumerate(INPUTS):
                samples[kind, name, length] = text[:, shift:shift + length]
                np.save(bench.path(f"{kind}.{name}.{length}.npy"), samples[kind, name, length])
    return samples


def flags(bench, flag: str, kind: str, lengths=LENGTHS) -> list:
    """Returns --data or --eval for the files of some lengths."""
    return [f"{flag}={name}={','.join(str(bench.path(f'{kind}.{name}.{length}.npy')) for length in lengths)}" for name in INPUTS]


def log_of(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def train(bench, program, data: list, steps: int, *more, ranks: int = 1, accumulate: int = MICROBATCHES, local: bool = True) -> tuple:
    """Returns the lines of the steps, and the bytes of the saved parameters. `program` is its path, with flags."""
    log, saved = bench.path("log.jsonl"), bench.path("saved.safetensors")
    log.unlink(missing_ok=True)
    launch = [*program, "--ranks", ranks] if local else [*mpirun(ranks), *program]
    run([*launch, "--threads", 1, "--accumulate", accumulate, "--steps", steps, *data, "--log", log, "--save", saved, *more])
    return [line for line in log_of(log) if "loss" in line], saved.read_bytes()


def numbers(lines: list[dict]) -> list:
    return [(line["loss"], line["grad_norm"], line["bucket"]) for line in lines]


def check_single(bench, both, singles: dict, samples: dict) -> None:
    """The programs of one length take the same steps."""
    lines, saved = train(bench, both, flags(bench, "--data", "train"), STEPS)
    order = [int(line["bucket"].removeprefix("length=")) for line in lines]
    expected = STEPS * SAMPLES[6] / sum(SAMPLES.values())
    if abs(order.count(6) - expected) > 1:
        raise Failure(f"the lengths {order} are not in proportion to their samples")
    taken, parameters, bytes_of = {6: 0, 12: 0}, [], b""
    for line, length in zip(lines, order, strict=True):
        rows = np.arange(taken[length], taken[length] + MICROBATCHES * BATCH) % SAMPLES[length]
        taken[length] += MICROBATCHES * BATCH
        for name in INPUTS:
            np.save(bench.path(f"step.{name}.{length}.npy"), samples["train", name, length][rows])
        own, bytes_of = train(bench, singles[length], flags(bench, "--data", "step", (length,)), 1, *parameters)
        if own[0]["loss"] != line["loss"] or own[0]["grad_norm"] != line["grad_norm"]:
            raise Failure(f"step {line['step']} of length {length}: {line}, but alone {own[0]}")
        bench.path("next.safetensors").write_bytes(bytes_of)
        parameters = ["--init", bench.path("next.safetensors")]
    if bytes_of != saved:
        raise Failure("the parameters after the last step differ")
    print(f"same bits as programs of one length: {order}")


def check_ranks(bench, both, ways: dict) -> None:
    """Other ranks, other ways to run them, and a resumed run have the same bits."""
    data = [*flags(bench, "--data", "train"), *flags(bench, "--eval", "held"), "--eval-every", 4, "--shuffle"]
    lines, saved = train(bench, both, data, STEPS)
    evaluated = [line["eval_loss"] for line in log_of(bench.path("log.jsonl")) if "eval_loss" in line]
    for ranks, (name, (more, local)) in itertools.product((2, 4), ways.items()):
        others = train(bench, both, data, STEPS, *more, ranks=ranks, accumulate=MICROBATCHES // ranks, local=local)
        own = [line["eval_loss"] for line in log_of(bench.path("log.jsonl")) if "eval_loss" in line]
        if (numbers(others[0]), others[1], own) != (numbers(lines), saved, evaluated):
            raise Failure(f"other bits on {ranks} ranks, {name}")
    kept = ["--checkpoint", bench.path("checkpoints")]
    train(bench, both, data, STEPS, *kept, "--checkpoint-every", 4)
    rest = train(bench, both, data, STEPS, *kept, "--resume=4", ranks=2, accumulate=2)
    if (numbers(rest[0]), rest[1]) != (numbers(lines)[4:], saved):
        raise Failure("other bits after resuming")
    for accumulate in (1, 2, 3):  # the buckets would have other turns, though 1 and 2 divide the steps
        refuse([*both, "--threads", 1, "--accumulate", accumulate, "--steps", STEPS, *data, *kept, "--resume=4"], 1,
               f"the run that is resumed has had {MICROBATCHES * BATCH} samples per step, and this one {accumulate} microbatches of {BATCH}")


def evaluate(bench, program, lengths, *more) -> dict:
    log = bench.path("evaluation.jsonl")
    log.unlink(missing_ok=True)
    run([*program, "--threads", 1, "--steps", 0, *flags(bench, "--data", "train", lengths), *flags(bench, "--eval", "held", lengths),
         "--log", log, *more])
    return next(line for line in log_of(log) if "eval_loss" in line)


def check_evaluation(bench, both, singles: dict) -> None:
    """The loss is the mean over the targets of all lengths."""
    found = evaluate(bench, both, LENGTHS)
    alone = {length: evaluate(bench, singles[length], (length,))["eval_loss"] for length in LENGTHS}
    targets = {length: count * length for length, count in HELD_OUT.items()}
    expected = sum(alone[length] * targets[length] for length in LENGTHS) / sum(targets.values())
    if abs(found["eval_loss"] / expected - 1) > 1e-7 or found["eval_samples"] != sum(HELD_OUT.values()):
        raise Failure(f"evaluation: {found}, expected {expected}")


def refuse(command: list, code: int, *mentions: str) -> None:
    done = run(command, expected=code)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    if len(errors) != 1 or not all(text in errors[0] for text in mentions):
        raise Failure(f"{command}: {done.stderr}")


def check_refusals(bench, both) -> None:
    fsdpc = bench.build / "bin" / "fsdpc"
    compiling = [fsdpc, MODEL, "-o", bench.path("none")]
    two = "--dim=length=6,12"
    refuse([*compiling, two, "--compile-to=grad"], 2, "'--compile-to' is of one shape")
    refuse([*compiling, "--dim=length=6,6"], 2, "the bucket 'length=6' twice")
    for lengths in ("6,13", "13,6"):  # 12 positions are embedded
        refuse([*compiling, f"--dim=length={lengths}"], 1, "is out of range", "(bucket 'length=13')")
    refuse([*compiling, two, "--memory-limit=60000"], 1, "60000", "(bucket 'length=")
    refuse([*compiling, "--dim=length=6,x"], 2, "is not of the form NAME=VALUE")
    refuse([fsdpc, "simulate", MODEL, two], 2, "'fsdpc simulate' is of one shape")
    refuse([fsdpc, MODELS / "gpt_dynamic.onnx", "-o", bench.path("none"), "--dim=batch=2,4"], 1,
           "has 2 samples in bucket 'batch=2' and 4 in bucket 'batch=4'")
    running = [both, "--steps", 1]
    train_data = flags(bench, "--data", "train")
    for name in INPUTS:
        np.save(bench.path(f"odd.{name}.7.npy"), np.zeros((8, 7), np.int64))
        np.save(bench.path(f"few.{name}.6.npy"), np.zeros((1, 6), np.int64))
    refuse([*running, *flags(bench, "--data", "odd", (7,))], 1, "takes [samples, 6]; the program has the buckets length=6, length=12")
    mixed = [flags(bench, "--data", "train", (6,))[0], flags(bench, "--data", "train", (12,))[1]]
    refuse([*running, *mixed], 1, "have the shapes of different buckets")
    refuse([*running, *flags(bench, "--data", "few", (6,))], 1, "contains 1 samples")
    refuse([*running, *train_data, "--mix=1,1"], 2, "omit --mix")
    few = [f"{flag},{bench.path(f'few.{name}.6.npy')}" for flag, name in zip(flags(bench, "--data", "train", (12,)), INPUTS, strict=True)]
    refuse([*running, *few], 1, "bucket 'length=6' has 1 samples, but one step takes 1 microbatches of 2 of one bucket")
    refuse([*running, *(flag.replace("--data", "--tokens") for flag in train_data)], 2, "cannot be a token stream", "length=6, length=12")


def test(bench, options) -> None:
    samples = write_samples(bench)
    order = [] if options.target == "host" else ["--deterministic"]

    def compiled(name: str, lengths: str, *more) -> list:
        return [bench.compile(MODEL, name, f"--dim=length={lengths}", f"--target={options.target}", *more), *order]

    plain = ("--optimizer=sgd", "--lr=0.1", "--clip-grad-norm=1")
    both = compiled("both", "6,12", *plain)
    singles = {length: compiled(f"length-{length}", length, *plain) for length in LENGTHS}
    if info(both[0]).get("buckets") != "length=6 length=12":
        raise Failure("--info does not list the buckets")
    if not re.search(r"input_ids +i64\[2, 6\] or \[2, 12\]", run([both[0], "--info"]).stdout):
        raise Failure("--info does not list the shapes of the inputs")
    check_single(bench, both, singles, samples)
    check_evaluation(bench, both, singles)
    ways = {"threads": ([], True)}
    if order:
        ways |= {"NCCL": ([], False), "NCCL without graphs": (["--no-graph"], False)}
    check_ranks(bench, compiled("adamw", "6,12", "--dump-ir", bench.path("ir")), ways)
    if not (bench.path("ir") / "length=12").is_dir():
        raise Failure("--dump-ir has no folder of a bucket")
    if not order:
        check_refusals(bench, both[0])


def add_target(parser):
    parser.add_argument("--target", default="host")


if __name__ == "__main__":
    sys.exit(main(__doc__, test, add_target))
