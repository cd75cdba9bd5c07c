#!/usr/bin/env python3
"""An edit of a dump is refused by the verifier of its phase, or the program still trains alike.

usage: phase_edits.py --build DIR [PHASE…] [--edits M] [--samples N]

For the dumps that close the phases `units`, `shard` and `collectives`, under several strategies: each line with a
collective, a layout or a weight is deleted, written twice and moved, and units and offsets are changed. Prints for each
kind of edit how many are refused by a rule of the verifier, how many by MLIR (SSA, types, symbols), and how many are
accepted. With --edits, only M of each kind are tried. Of those accepted, N of each kind are compiled and trained: they
must stay within the limits of the fixture.
"""
import collections
import re
import subprocess
import sys

import harness
from harness import Failure

RANKS = 2
COLLECTIVES = (r"all_gather|free|reduce_scatter|accumulate|enter|exit|replicated|gather_parameters|gather_gradients|"
               r"reduce_gradients|sum_squares|all_reduce|clip_scale")
# phase -> (the dump, the lines that are deleted, written twice and moved, the flags of the compiles)
PHASES = {
    "units": ("verify-units", None, [[]]),
    "shard": ("verify-shard", r"flat|view|pack|reduce|layout|sum_squares|all_reduce|clip_scale",
              [[], ["--strategy=ddp"], ["--param-dtype=bf16"]]),
    "collectives": ("verify-collectives", COLLECTIVES,
                    [["--strategy=" + strategy] for strategy in ("zero3", "zero2", "zero1", "ddp")] +
                    [["--reduce=step"], ["--reduce=step", "--strategy=ddp"]]),
}
MOVES = (-40, -5, -1, 1, 5, 40)               # lines


def without_locations(bench, path) -> list[str]:
    """Returns a dump's lines; locations would make each edit much longer."""
    return harness.run([bench.build / "bin" / "fsdpc-opt", path]).stdout.splitlines()


def again(line: str) -> str:
    """The line with other names for its results."""
    return re.sub(r"^( *)%(\S+?)(:\d+)? = ", r"\1%again_\2\3 = ", line)


def edits(lines: list[str], moved: str | None):
    """Yields (kind, edited lines)."""
    units = re.findall(r"^ *fsdp\.unit (@\S+)", "\n".join(lines), flags=re.M)
    following = dict(zip(units, units[1:] + units[:1]))
    for i, line in enumerate(lines):
        before, after = lines[:i], lines[i + 1:]
        if found := re.search(r"fsdp\.unit = (@[\w.\"]+)", line):
            yield "another unit", [*before, line.replace(found[0], f"fsdp.unit = {following[found[1]]}", 1), *after]
        if found := re.match(r"( *fsdp\.parameter .* unit )(@[\w.]+)(.*)", line):
            yield "another owner", [*before, found[1] + following[found[2]] + found[3], *after]
        if moved and re.search(r" at \d+\]", line):
            yield "another offset", [*before, re.sub(r" at (\d+)\]", lambda m: f" at {int(m[1]) + 16}]", line), *after]
        for member in re.finditer(r"(member<@[\w.]+\[)(\d+)", line):
            changed = line[:member.start()] + member[1] + str(int(member[2]) + 16) + line[member.end():]
            yield "another offset", [*before, changed, *after]
        if not moved or not re.match(rf" *(%\S+ = )?fsdp\.({moved})\b", line):
            continue
        yield "deleted", [*before, *after]
        yield "twice", [*before, line, again(line), *after]
        for by in MOVES:
            rest = before + after
            if 0 < i + by < len(rest):
                yield "moved", [*rest[:i + by], line, *rest[i + by:]]


def spread(items: list, count: int) -> list:
    """Returns `count` of the items at equal distances, or all of them if there are fewer."""
    return [items[i * len(items) // count] for i in range(count)] if count < len(items) else items


def verify(bench, phase: str, mutants: list[str]) -> tuple[set[int], collections.Counter]:
    """Runs the phase's verifier on all mutants. Returns the accepted ones, and how often each rule refused one."""
    text = "\n// -----\n".join(mutant.replace("module attributes {", f"module attributes {{edit.id = {i} : i64, ", 1)
                               for i, mutant in enumerate(mutants))
    path = bench.path(f"{phase}.mlir")
    path.write_text(text)
    done = subprocess.run([bench.build / "bin" / "fsdpc-opt", path, f"--verify-{phase}", "--split-input-file",
                           "--allow-unregistered-dialect"], capture_output=True, text=True)
    accepted = {int(found) for found in re.findall(r"edit\.id = (\d+)", done.stdout)}
    rules = collections.Counter(re.findall(r"error: .*?breaks rule '([\w-]+)'", done.stderr))
    return accepted, rules


def trains_alike(bench, fixture, folder, name: str, text: str) -> str | None:
    """Returns None if the dump compiles and trains within the fixture's limits, or if a later phase refuses it."""
    path = folder / f"{name}.mlir"            # beside the dump's constants
    path.write_text(text)
    done = subprocess.run([bench.build / "bin" / "fsdpc", path, "-o", bench.path(name)], capture_output=True, text=True)
    if done.returncode == 1 and "error:" in done.stderr:
        return None
    if done.returncode != 0:
        return f"the compile ends with {done.returncode}: {done.stderr[-500:]}"
    within, report = harness.compare(fixture, bench.train(bench.path(name), fixture, RANKS))
    return None if within else report


def test(bench, options):
    fixture = harness.fixture("gpt")
    faults = []
    print(f"{'phase':12} {'flags':30} {'edit':15} {'edits':>6} {'by rule':>8} {'by MLIR':>8} {'accepted':>9} {'trained':>8}")
    for phase in options.phases or PHASES:
        dump, moved, variants = PHASES[phase]
        for number, flags in enumerate(variants):
            folder = bench.path(f"ir-{phase}-{number}")
            bench.compile_fixture(fixture, "program", *flags, f"--dump-ir={folder}", "--compile-to=" + phase)
            lines = without_locations(bench, harness.dump(folder, dump))
            kinds = collections.defaultdict(list)
            for kind, edited in edits(lines, moved):
                kinds[kind].append("\n".join(edited))
            for kind, all_mutants in kinds.items():
                mutants = spread(all_mutants, options.edits or len(all_mutants))
                accepted, rules = verify(bench, phase, ["\n".join(lines), *mutants])
                if 0 not in accepted:
                    raise Failure(f"verify-{phase} refuses the unedited dump: {rules}")
                accepted.remove(0)
                # The fixture's limits are those of f32.
                samples = 0 if "--param-dtype=bf16" in flags else options.samples
                chosen = spread(sorted(accepted), samples)
                for index in chosen:
                    if fault := trains_alike(bench, fixture, folder, f"{phase}-{number}-{kind.replace(' ', '-')}-{index}", mutants[index - 1]):
                        faults.append(f"{phase} {' '.join(flags)}: '{kind}', number {index}, is accepted and trains otherwise: {fault}")
                by_rule = sum(rules.values())
                print(f"{phase:12} {' '.join(flags):30} {kind:15} {len(mutants):6} {by_rule:8} "
                      f"{len(mutants) - by_rule - len(accepted):8} {len(accepted):9} {len(chosen):8}", flush=True)
    if faults:
        raise Failure("\n".join(faults))


def arguments(parser):
    parser.add_argument("phases", nargs="*", metavar="PHASE", help=f"of {', '.join(PHASES)}; default: all")
    parser.add_argument("--edits", type=int, metavar="M", help="edits of each kind to try; default: all")
    parser.add_argument("--samples", type=int, default=2, metavar="N", help="accepted edits of each kind to train")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, arguments))
