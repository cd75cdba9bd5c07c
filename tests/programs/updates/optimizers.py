#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares every optimizer and its variants with torch.optim or its paper's formula, from the same gradients.

usage: optimizers.py --build DIR [OPTIMIZER…] [--all] [--gpus]

The loss is the sum of parameters times samples, so the gradients are the samples: those that tests/models/optimizers.py gave
to torch. Prints for each variant the largest error after the first step and after the last: of the change of a tensor,
relative in L2, which is a stricter measure than the tensor's own. The formulas of optimizer_formulas.py are in f64 and do not round
as f32 does, so there the measure is the tensor's own. Then

  zeros       the formulas with a parameter and with a gradient that are zero
  average     asgd's averaged parameter
  written     Lion as a user writes it (tests/models/lion.mlir): the bits of --optimizer=lion
  emulated    each optimizer's last variant as kernels of the emulated GPU: within the same limit
  known       every optimizer that the compiler knows is compared here, or in muon.py
  wrong       the same with one constant of a dump, or of its sums, changed by a hundredth: beyond the limit (--all: each constant)
  bits        of zero1, ddp and hybrid in groups of half of the ranks: those of zero3, on one to four ranks (--all: of each
              optimizer)

With --gpus only

  on_gpus     on the emulated GPU, on one to four ranks that share one and on two that use NCCL, under zero3, ddp, hybrid and oss: the
              bits of the host
"""
import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
import numpy as np
from updates import optimizer_formulas as formulas
from compare import read_safetensors
from harness import Failure
from sample_gradients import sums_of_products

LIMIT = 1e-6
WORKERS = 2
STRATEGIES = ("zero3", "zero1", "ddp", "hybrid")
SAMPLED = ("nadam", "rprop", "lamb", "lars")  # whose bits are compared without --all


class Reference:
    """The parameters after torch's updates, or those of a formula."""

    def __init__(self, zeros: bool = False):
        arrays = np.load(harness.MODELS / "optimizers.npz")
        description = json.loads(str(arrays["description"]))
        self.shapes = {name: tuple(shape) for name, shape in description["shapes"].items()}
        self.variants = description["variants"]
        self.start, self.gradients = arrays["parameters"], arrays["gradients"]
        if zeros:
            self.tensors(self.start)["vector"][:] = 0
            for row in self.gradients:
                self.tensors(row)["scalar"][:] = 0
        self.rows = {when: dict(zip(self.variants, arrays[when])) for when in ("first", "last")}
        averaged = [name for name in self.variants if name.startswith("asgd")]
        self.rows["average"] = dict(zip(averaged, arrays["average"]))
        self.steps = {"first": 1, "last": len(self.gradients), "average": len(self.gradients)}
        self.formulas = set()
        for optimizer, (plain, *others) in formulas.VARIANTS.items():
            kind, defaults = plain
            for number, arguments in enumerate([defaults, *others]):
                self.add_formula(f"{optimizer}-{number}", kind, arguments)

    def add_formula(self, variant: str, kind, arguments: dict):
        found = formulas.train(kind, arguments, self.tensors(self.start), [self.tensors(row) for row in self.gradients])
        for when, tensors in (("first", found[0]), ("last", found[-1])):
            self.rows[when][variant] = np.concatenate([tensor.ravel() for tensor in tensors.values()])
        self.variants[variant] = flags(variant.split("-")[0], arguments)
        self.formulas.add(variant)

    def tensors(self, row: np.ndarray) -> dict[str, np.ndarray]:
        ends = np.cumsum([np.prod(shape, dtype=int) for shape in self.shapes.values()])
        return {name: part.reshape(shape) for (name, shape), part in zip(self.shapes.items(), np.split(row, ends[:-1]))}

    def measure(self, variant: str, name: str, value: np.ndarray) -> float:
        value = value.astype(np.float64)
        return np.linalg.norm(value if variant in self.formulas else value - self.tensors(self.start)[name])

    def of(self, optimizer: str) -> list[str]:
        return [name for name in self.variants if name.split("-")[0] == optimizer]

    def error(self, variant: str, when: str, found: dict[str, np.ndarray]) -> float:
        """Returns the largest error of a tensor's change, or of the tensor."""
        errors = [np.linalg.norm(found[name].reshape(value.shape).astype(np.float64) - value) / self.measure(variant, name, value)
                  for name, value in self.tensors(self.rows[when][variant]).items()]
        return max(error if error == error else np.inf for error in errors)


def flags(optimizer: str, arguments: dict) -> list[str]:
    """As tests/models/optimizers.py writes them."""
    words = [f"--optimizer={optimizer}"]
    for name, value in arguments.items():
        text = ",".join(map(repr, value)) if isinstance(value, tuple) else repr(value)
        words.append("--" + name.replace("_", "-") + ("" if value is True else f"={text}"))
    return words


class Trials:
    def __init__(self, bench, zeros: bool = False, reference: Reference | None = None):
        self.bench, self.reference = bench, reference or Reference(zeros)
        self.name = "zeros" if zeros else "model"
        self.model, self.data = bench.path(f"{self.name}.onnx"), []
        for name, shape in self.reference.shapes.items():
            samples = self.reference.tensors(np.arange(len(self.reference.start)))[name]
            values = self.reference.gradients[:, samples].reshape(-1, *shape)
            np.save(bench.path(f"{self.name}-{name}.npy"), np.ascontiguousarray(values))
            self.data += ["--data", f"x_{name}={bench.path(f'{self.name}-{name}.npy')}"]
        start = self.reference.tensors(self.reference.start)
        self.model.write_bytes(sums_of_products({name: start[name].reshape(shape) for name, shape in self.reference.shapes.items()}))

    def compile(self, variant: str, name: str, *flags: str):
        return self.bench.compile(self.model, name, "-q", *self.reference.variants[variant], *flags)

    def train(self, program, steps: int, ranks: int = 1, *flags: str):
        """Ranks are threads; with --deterministic, processes."""
        saved = program.with_name(f"{program.name}-{steps}-{ranks}.safetensors")
        launch = [*harness.mpirun(ranks), program] if "--deterministic" in flags else [program, "--ranks", ranks]
        self.told = harness.run([*launch, *self.data, "--steps", steps, "--threads", 1, "--save", saved, *flags]).stderr
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


def on_gpus(trials: Trials, variant: str) -> tuple[str, str]:
    """The gradients come from no product, so there is nothing that rounds in another way than on the host."""
    host, differ = trials.compile(variant, f"{variant}-host"), []
    expected = {ranks: trials.train(host, 2, ranks).read_bytes() for ranks in (1, 2, 3, 4)}
    for strategy in ("zero3", "ddp", "hybrid", "oss"):
        program = trials.compile(variant, f"{variant}-gpu-{strategy}", f"--strategy={strategy}", "--target=cuda-emulation")
        for ranks in expected:
            groups = ["--shard-group", ranks // 2 if ranks % 2 == 0 else ranks] if strategy == "hybrid" else []
            if trials.train(program, 2, ranks, *groups).read_bytes() != expected[ranks]:
                differ.append(f"{strategy} on {ranks} ranks")
        if trials.train(program, 2, 2, "--deterministic").read_bytes() != expected[2]:
            differ.append(f"{strategy} on 2 ranks over NCCL")
    return (f"{variant} on the emulated GPU gives {'other' if differ else 'the same'} bits",
            f"{variant} on the emulated GPU: other bits: {', '.join(differ)}" if differ else "")


def zeros(trials: Trials, variant: str) -> tuple[str, str]:
    """A ratio of norms is 1 where one of them is 0."""
    errors = trials.errors(trials.compile(variant, f"{variant}-zeros"), variant)
    return ("  ".join(f"{error:7.1e}" for error in errors) + f"  {variant} with zeros",
            "" if max(errors) <= LIMIT else f"{variant} with zeros: over the limit of {LIMIT:.0e}")


def average(trials: Trials, variant: str) -> tuple[str, str]:
    """The averaged parameter changes no other number, so a dump is edited to return it in the last step."""
    steps = trials.reference.steps["average"]

    def edit(text: str) -> str:
        return re.sub(r"^( +)fsdp\.yield (%\S+), (%\S+) : f32, f32(.*)$",
                      rf"\1%last = arith.constant {steps}.0 : f64\n\1%is_last = arith.cmpf oeq, %STEP, %last : f64\n"
                      r"\1%shown = arith.select %is_last, \3, \2 : f32\n\1fsdp.yield %shown, \3 : f32, f32\4", text, flags=re.M)

    dump = harness.dump(trials.bench.path(variant + ".ir"), "build-update")
    step = re.search(r"\^bb0\((?:%\w+: f32[^,]*, )+%\w+: f64[^,]*, (%\w+): f64", harness.op_lines(dump.read_text()))[1]
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


def known(trials: Trials, compared: list[str]) -> tuple[str, str]:
    """The compiler lists its optimizers when it refuses another name."""
    refused = harness.run([trials.bench.build / "bin" / "fsdpc", trials.model, "-o", trials.bench.path("none"), "--optimizer=none"], expected=2).stderr
    names = set(re.search(r"is none of ([\w|]+)", refused)[1].split("|"))
    left_out = sorted(names - {*compared, "muon"})   # muon.py: its parameters are matrices
    return f"{len(names)} optimizers are known", f"known, but not compared: {', '.join(left_out)}" if left_out else ""


def programs(text: str) -> list[list[re.Match]]:
    """Returns the constants of each layout's program, in the same order for all layouts."""
    starts = [match.start() for match in re.finditer(r"fsdp\.optimizer @", text)] + [len(text)]
    return [constants(text, start, end) for start, end in zip(starts, starts[1:])]


def constants(text: str, start: int, end: int) -> list[re.Match]:
    return list(re.compile(r"= arith\.constant (\S+) : f64 loc\((#\w+)\)").finditer(text, start, end))


def sums(text: str) -> list[re.Match]:
    """Returns the constants of the program whose results are summed over parameters; an optimizer may have none."""
    start = text.find("fsdp.member_sums [")
    return [] if start < 0 else constants(text, start, text.index("fsdp.optimizer @"))


def name_of(text: str, match: re.Match) -> str:
    return re.search(rf'^{match[2]} = loc\("(.*)"\)$', text, re.M)[1]


def wrong_constants(text: str, every: bool) -> list[int]:
    """Returns the numbers of the constants to change: all that these steps can show, or the first of the optimizer's own."""
    program = programs(text)[0] + sums(text)
    names = [name_of(text, match) for match in program]
    shown = [number for number, name in enumerate(names)
             # asgd's average alone depends on t0, and 32 coefficients of a series are more than f32 shows. `zeros` shows the
             # ratio where a norm is 0.
             if name not in ("t0", "ratio_of_none", "none") and (name != "coefficient" or "coefficient" not in names[number + 1:])]
    if every:
        return shown
    own = [number for number in shown if float(program[number][1]) not in (0, 1, -1)]
    ends = len(program) - len(sums(text))
    return own[:1] + [number for number in own if number >= ends][:1]


def wrong(trials: Trials, variant: str, number: int) -> tuple[str, str]:
    """Changes the constant of this number, in the programs of all layouts or in that of sums, by a hundredth."""
    dump = harness.dump(trials.bench.path(variant + ".ir"), "build-update")
    text, name = harness.op_lines(dump.read_text()), f"{variant}-wrong-{number}"
    matches = [program[number] for program in programs(text) if number < len(program)]
    matches = matches or [sums(text)[number - len(programs(text)[0])]]
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
        saved[strategy] = []
        for ranks in (1, 2, 3, 4):
            groups = ["--shard-group", ranks // 2 if ranks % 2 == 0 else ranks] if strategy == "hybrid" else []
            saved[strategy].append(trials.train(program, 2, ranks, *groups).read_bytes())
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

    if options.gpus:
        each(on_gpus, *[(variant,) for variant in last])
        if failed:
            raise Failure("\n".join(failed))
        return
    print(f"first    last     (limit {LIMIT:.0e})")
    each(exact, *[(variant,) for optimizer in optimizers for variant in trials.reference.of(optimizer)])
    of_formulas = [variant for variant in last if variant in trials.reference.formulas]
    zeroed = Trials(bench, zeros=True)
    each(lambda _, variant: zeros(zeroed, variant), *[(variant,) for variant in of_formulas])
    each(average, *[(variant,) for variant in trials.reference.of("asgd") if "asgd" in optimizers])
    each(written, *[(variant,) for variant in last if variant.startswith("lion")])
    if not options.optimizers:
        each(known, (optimizers,))
    each(emulated, *[(variant,) for variant in last])
    each(wrong, *[(variant, number) for variant in last for number in wrong_constants(
        harness.read_dump(bench.path(f"{variant}.ir"), "build-update"), options.all)])
    each(bits, *[(variant,) for variant in last if options.all or variant.split("-")[0] in SAMPLED])
    if failed:
        raise Failure("\n".join(failed))


def arguments(parser):
    parser.add_argument("optimizers", nargs="*", metavar="OPTIMIZER", help="default: all")
    parser.add_argument("--all", action="store_true", help="change each constant, and compare the bits of each optimizer")
    parser.add_argument("--gpus", action="store_true", help="compare only the bits of the emulated GPU with the host's")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, arguments))
