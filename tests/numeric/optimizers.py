#!/usr/bin/env python3
"""Compares every optimizer and its variants with torch.optim, from the same gradients.

usage: optimizers.py --build DIR [OPTIMIZER…] [--all]

The loss is the sum of parameters times samples, so the gradients are the samples: those that tests/models/optimizers.py gave
to torch. Prints for each variant the largest error after the first step and after the last: of the change of a tensor,
relative in L2, which is a stricter measure than the tensor's own. Then

  average     asgd's averaged parameter
  written     Lion as a user writes it (tests/models/lion.mlir): the bits of --optimizer=lion
  emulated    each optimizer's last variant as kernels of the emulated GPU: within the same limit
  wrong       the same with one constant of a dump changed by a hundredth: beyond the limit (--all: each constant)
  bits        of zero1 and ddp: those of zero3, on one to four ranks (--all: of each optimizer)
"""
import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor

import harness
import numpy as np
import onnx_wire as onnx
from compare import read_safetensors
from harness import Failure

LIMIT = 1e-6
WORKERS = 2
STRATEGIES = ("zero3", "zero1", "ddp")
SAMPLED = ("nadam", "rprop")                  # whose bits are compared without --all


class Reference:
    """What torch made of the gradients."""

    def __init__(self):
        arrays = np.load(harness.MODELS / "optimizers.npz")
        description = json.loads(str(arrays["description"]))
        self.shapes = {name: tuple(shape) for name, shape in description["shapes"].items()}
        self.variants = description["variants"]
        self.start, self.gradients = arrays["parameters"], arrays["gradients"]
        self.rows = {when: dict(zip(self.variants, arrays[when])) for when in ("first", "last")}
        averaged = [name for name in self.variants if name.startswith("asgd")]
        self.rows["average"] = dict(zip(averaged, arrays["average"]))
        self.steps = {"first": 1, "last": len(self.gradients), "average": len(self.gradients)}

    def tensors(self, row: np.ndarray) -> dict[str, np.ndarray]:
        ends = np.cumsum([np.prod(shape) for shape in self.shapes.values()])
        return dict(zip(self.shapes, np.split(row, ends[:-1])))

    def of(self, optimizer: str) -> list[str]:
        return [name for name in self.variants if name.split("-")[0] == optimizer]

    def error(self, variant: str, when: str, found: dict[str, np.ndarray]) -> float:
        """Returns the largest error of a tensor's change."""
        start, expected = self.tensors(self.start), self.tensors(self.rows[when][variant])
        errors = [np.linalg.norm(found[name].ravel().astype(np.float64) - value) / np.linalg.norm(value.astype(np.float64) - start[name])
                  for name, value in expected.items()]
        return max(error if error == error else np.inf for error in errors)


class Trials:
    def __init__(self, bench):
        self.bench, self.reference = bench, Reference()
        self.model, self.data = bench.path("model.onnx"), []
        nodes, inputs, total = [], [], ""
        for name, shape in self.reference.shapes.items():
            samples = self.reference.tensors(np.arange(len(self.reference.start)))[name]
            values = self.reference.gradients[:, samples].reshape(-1, *shape)
            np.save(bench.path(f"{name}.npy"), np.ascontiguousarray(values))
            self.data += ["--data", f"x_{name}={bench.path(name)}.npy"]
            inputs.append(onnx.value(f"x_{name}", (1, *shape)))
            nodes += [onnx.node("Mul", [name, f"x_{name}"], [f"product_{name}"]),
                      onnx.node("ReduceSum", [f"product_{name}"], [f"sum_{name}"], onnx.integer("keepdims", 0))]
            if total:
                nodes.append(onnx.node("Add", [total, f"sum_{name}"], [f"total_{name}"]))
            total = f"total_{name}" if total else f"sum_{name}"
        start = self.reference.tensors(self.reference.start)
        weights = [onnx.tensor(name, shape, start[name].astype("<f4").tobytes()) for name, shape in self.reference.shapes.items()]
        self.model.write_bytes(onnx.model(nodes, inputs, [onnx.value(total, ())], weights))

    def compile(self, variant: str, name: str, *flags: str):
        return self.bench.compile(self.model, name, "-q", *self.reference.variants[variant], *flags)

    def train(self, program, steps: int, ranks: int = 1) -> bytes:
        saved = program.with_name(f"{program.name}-{steps}-{ranks}.safetensors")
        harness.run([program, "--ranks", ranks, *self.data, "--steps", steps, "--threads", 1, "--save", saved])
        return saved

    def errors(self, program, variant: str) -> list[float]:
        return [self.reference.error(variant, when, read_safetensors(self.train(program, self.reference.steps[when])))
                for when in ("first", "last")]


# Each check returns a line to print, and one for a failure or an empty one.

def exact(trials: Trials, variant: str) -> tuple[str, str]:
    errors = trials.errors(trials.compile(variant, variant, f"--dump-ir={trials.bench.path(variant + '.ir')}"), variant)
    return ("  ".join(f"{error:7.1e}" for error in errors) + "  " + " ".join(trials.reference.variants[variant]),
            "" if max(errors) <= LIMIT else f"{variant}: over the limit of {LIMIT:.0e}")


def emulated(trials: Trials, variant: str) -> tuple[str, str]:
    errors = trials.errors(trials.compile(variant, f"{variant}-emulated", "--target=cuda-emulation"), variant)
    return ("  ".join(f"{error:7.1e}" for error in errors) + f"  {variant} on the emulated GPU",
            "" if max(errors) <= LIMIT else f"{variant} on the emulated GPU: over the limit of {LIMIT:.0e}")


def average(trials: Trials, variant: str) -> tuple[str, str]:
    """The averaged parameter changes no other number, so a dump is edited to return it in the last step."""
    steps = trials.reference.steps["average"]

    def edit(text: str) -> str:
        return re.sub(r"^( +)fsdp\.yield (%\S+), (%\S+) : f32, f32(.*)$",
                      rf"\1%last = arith.constant {steps}.0 : f64\n\1%is_last = arith.cmpf oeq, %STEP, %last : f64\n"
                      r"\1%shown = arith.select %is_last, \3, \2 : f32\n\1fsdp.yield %shown, \3 : f32, f32\4", text, flags=re.M)

    dump = harness.dump(trials.bench.path(variant + ".ir"), "build-update")
    step = re.search(r"\^bb0\((?:%\w+: f32[^,]*, )+%\w+: f64[^,]*, (%\w+): f64", dump.read_text())[1]
    program = trials.bench.compile(harness.edited(dump, "average", lambda text: edit(text).replace("%STEP", step)), f"{variant}-average", "-q")
    error = trials.reference.error(variant, "average", read_safetensors(trials.train(program, steps)))
    return f"         {error:7.1e}  averaged parameter of {variant}", "" if error <= LIMIT else f"{variant}: the average is over the limit"


def written(trials: Trials, variant: str) -> tuple[str, str]:
    flags = [flag for flag in trials.reference.variants[variant] if not flag.startswith(("--optimizer", "--betas"))]
    differ = []
    for target in ("host", "cuda-emulation"):
        file = trials.bench.compile(trials.model, f"written-{target}", "-q", f"--optimizer={harness.MODELS}/lion.mlir", f"--target={target}", *flags)
        known = trials.compile(variant, f"known-{target}", f"--target={target}")
        if len({trials.train(program, 3, 2).read_bytes() for program in (file, known)}) != 1:
            differ.append(target)
    return f"lion.mlir gives {'other bits than' if differ else 'the bits of'} {variant}", f"lion.mlir: other bits on {differ}" if differ else ""


def programs(text: str) -> list[list[re.Match]]:
    """Returns the constants of each layout's program, in the same order for all layouts."""
    starts = [match.start() for match in re.finditer(r"fsdp\.optimizer @", text)] + [len(text)]
    pattern = re.compile(r"= arith\.constant (\S+) : f64 loc\((#\w+)\)")
    return [list(pattern.finditer(text, start, end)) for start, end in zip(starts, starts[1:])]


def name_of(text: str, match: re.Match) -> str:
    return re.search(rf'^{match[2]} = loc\("(.*)"\)$', text, re.M)[1]


def wrong_constants(text: str, every: bool) -> list[int]:
    """Returns the numbers of the constants to change: all that these steps can show, or the first of the optimizer's own."""
    program = programs(text)[0]
    names = [name_of(text, match) for match in program]
    shown = [number for number, name in enumerate(names)
             # asgd's average alone depends on t0, and 32 coefficients of a series are more than f32 shows.
             if name != "t0" and (name != "coefficient" or "coefficient" not in names[number + 1:])]
    return shown if every else [number for number in shown if float(program[number][1]) not in (0, 1, -1)][:1]


def wrong(trials: Trials, variant: str, number: int) -> tuple[str, str]:
    """Changes the constant of this number in the programs of all layouts by a hundredth."""
    dump = harness.dump(trials.bench.path(variant + ".ir"), "build-update")
    text, name = dump.read_text(), f"{variant}-wrong-{number}"
    matches = [program[number] for program in programs(text)]
    value = float(matches[0][1])
    label = name_of(text, matches[0])

    def edit(text: str) -> str:
        for match in reversed(matches):
            text = text[:match.start(1)] + repr(value * 0.99 if value else 0.01) + text[match.end(1):]
        return text

    program = trials.bench.compile(harness.edited(dump, name, edit), name, "-q")
    try:
        error = max(trials.errors(program, variant))
    except Failure as failure:                # some constants lead to NaN, at which a run stops
        if "the loss is" not in str(failure) and "not finite" not in str(failure):
            raise
        error = np.inf
    changed = f"'{label}' = {value:g} of {variant} changed by 1 %"
    return f"         {error:7.1e}  {changed}", "" if error > LIMIT else f"no limit detects {changed}"


def bits(trials: Trials, variant: str) -> tuple[str, str]:
    saved = {}
    for strategy in STRATEGIES:
        program = trials.compile(variant, f"{variant}-{strategy}", f"--strategy={strategy}")
        saved[strategy] = [trials.train(program, 2, ranks).read_bytes() for ranks in (1, 2, 3, 4)]
    differ = [strategy for strategy in STRATEGIES if saved[strategy] != saved[STRATEGIES[0]]]
    return (f"{variant}: {', '.join(STRATEGIES)} give {'other' if differ else 'the same'} bits",
            f"{variant}: {', '.join(differ)} give other bits than {STRATEGIES[0]}" if differ else "")


def test(bench, options):
    trials = Trials(bench)
    optimizers = options.optimizers or list(dict.fromkeys(name.split("-")[0] for name in trials.reference.variants))
    last = [trials.reference.of(optimizer)[-1] for optimizer in optimizers]
    failed = []

    def each(check, *cases):
        with ThreadPoolExecutor(WORKERS) as pool:
            for line, failure in pool.map(lambda case: check(trials, *case), cases):
                print(line, flush=True)
                failed.extend([failure] if failure else [])

    print(f"first    last     (limit {LIMIT:.0e})")
    each(exact, *[(variant,) for optimizer in optimizers for variant in trials.reference.of(optimizer)])
    each(average, *[(variant,) for variant in trials.reference.of("asgd") if "asgd" in optimizers])
    each(written, *[(variant,) for variant in last if variant.startswith("lion")])
    each(emulated, *[(variant,) for variant in last])
    each(wrong, *[(variant, number) for variant in last for number in wrong_constants(
        harness.dump(bench.path(f"{variant}.ir"), "build-update").read_text(), options.all)])
    each(bits, *[(variant,) for variant in last if options.all or variant.split("-")[0] in SAMPLED])
    if failed:
        raise Failure("\n".join(failed))


def arguments(parser):
    parser.add_argument("optimizers", nargs="*", metavar="OPTIMIZER", help="default: all")
    parser.add_argument("--all", action="store_true", help="change each constant, and compare the bits of each optimizer")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, arguments))
