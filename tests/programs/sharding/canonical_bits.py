# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that V microbatches per step have the same bits on any number of ranks: one hash of the weights, equal losses and norms.

The fixture has dropout, samples are shuffled and clipping is active, so samples, random numbers, the order of each sum and the
norm's last bit all count. The strategies, kept and ignored parameters and a resumption on other ranks must not change them either.
A program that sums in another order, as --reduce=step does, must fail the comparison.
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import Failure, fixture, main

MODEL, CLIP = "gpt_dropout", 0.25
# strategy and other flags -> numbers of ranks in CI
PROGRAMS = {("zero3",): (1, 2, 4), ("zero2",): (2, 4), ("ddp",): (4,), ("zero1", "--strategy-of=h.0=ddp"): (2,),
            ("zero3", "--persist=1000"): (4,), ("zero2", "--ignored=bias|norm"): (2,)}
# ranks before and after the checkpoint, as threads or under mpirun
RESUMED = [(4, 1, True), (1, 2, False)]


def test(bench, options) -> None:
    chosen = fixture(MODEL)
    chosen.compiling = [flag for flag in chosen.compiling if not flag.startswith("--clip-grad-norm")]
    microbatches, steps, at = (8, 20, 7) if options.all else (4, 6, 2)

    def compiled(*flags: str):
        return bench.compile_fixture(chosen, "-".join(flags).replace("|", "-"), f"--clip-grad-norm={CLIP}", *flags)

    def train(program, ranks: int, *flags, steps: int = steps, local: bool = True):
        return bench.train(program, chosen, ranks, "--shuffle", *flags, steps=steps, accumulate=microbatches // ranks, local=local)

    different, expected, programs = [], None, {}

    def expect_same(name: str, found: tuple) -> None:
        same = found == (expected[0][-len(found[0]):], *expected[1:])
        print(f"{'same     ' if same else 'DIFFERENT'} {name}", flush=True)
        if not same:
            different.append(name)

    for flags, some in PROGRAMS.items():
        programs[flags] = compiled(f"--strategy={flags[0]}", *flags[1:])
        for ranks in (1, 2, 4, 8) if options.all else some:
            for local in (True, False) if options.all else (ranks != 2,):
                bits = train(programs[flags], ranks, local=local).bits()
                expected = expected or bits
                expect_same(f"{' '.join(flags)}, {ranks} {'threads' if local else 'processes'}", bits)
    if min(norm for _, norm in expected[0]) <= CLIP:
        raise Failure(f"clipping is not active: losses and norms {expected[0]}")

    for before, after, local in RESUMED:
        folder = bench.path(f"resumed-{before}-{after}")
        begin, end = list(programs.values())[:2]
        train(begin, before, "--checkpoint", folder, steps=at)
        training = train(end, after, "--checkpoint", folder, "--resume", local=local)
        numbers, _, weights = training.bits()
        # The first gradients are those of the step that it resumed with.
        expect_same(f"{at} steps on {before} ranks, the others on {after}", (numbers, expected[1], weights))

    other = train(compiled("--reduce=step"), 2).bits()
    if other[2] == expected[2]:
        raise Failure("the weights do not show the order of the sums: --reduce=step has the same")
    if different:
        raise Failure(f"bits differ: {'; '.join(different)}")


def arguments(parser):
    parser.add_argument("--all", action="store_true", help="V = 8, 20 steps, and every number of ranks for each program")


if __name__ == "__main__":
    sys.exit(main(__doc__, test, arguments))
