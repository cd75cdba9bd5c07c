# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the blocks of docs/fine-tune.md as they are printed there, and checks what they promise.

usage: fine_tune.py --build DIR --python PYTHON [--torch] [--update]

PYTHON has the packages tokenizers, numpy and onnx, and for --torch those of PACKAGES, or the test is left out. Without --torch the model is tests/models/fine_tune.onnx, and NumPy computes
the loss of the best weights and generates the text. With it, PyTorch exports the model and does both too, and the results must be
equal; --update then replaces that file.
"""
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import Failure, MODELS, main, run

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "fine-tune.md"
BLOCK = re.compile(r"^<!-- run( with torch)? -->\n```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PACKAGES = ("torch", "transformers", "safetensors", "onnxscript", "peft")
PROMPT, LENGTH, HEADS = "Status Trainer::", 48, 4
# Writes what the test compares: the tensors of an ONNX file, and tokens to text and back.
HELPER = """
import sys, numpy, onnx, tokenizers
if sys.argv[1] == "tensors":
    numpy.savez(sys.argv[3], **{t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(sys.argv[2]).graph.initializer})
else:
    tokenizer = tokenizers.Tokenizer.from_file("tokenizer.json")
    print(tokenizer.encode(sys.argv[2]).ids if sys.argv[1] == "encode" else tokenizer.decode(eval(sys.argv[2])))
"""

# Runs the page's Python, one JSON line a block, and answers each with a line of what it has printed.
SESSION = """
import contextlib, io, json, sys
scope = {"__name__": "__main__"}
for line in sys.stdin:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(json.loads(line), scope)
    print(json.dumps(printed.getvalue()), flush=True)
"""


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise Failure(what)


def safetensors(path: Path) -> dict[str, np.ndarray]:
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    return {name: np.frombuffer(data[start + entry["data_offsets"][0]:start + entry["data_offsets"][1]], np.float32)
            .reshape(entry["shape"]) for name, entry in header.items()}


# ---- GPT-2 in NumPy, f64 ----

def norm(x, weights, name):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred ** 2).mean(-1, keepdims=True) + 1e-5) * weights[name + ".weight"] + weights[name + ".bias"]


def linear(x, weights, name):  # GPT-2's Conv1D holds its matrix as [in, out]
    return x @ weights[name + ".weight"] + weights[name + ".bias"]


def logits(weights: dict[str, np.ndarray], ids: np.ndarray) -> np.ndarray:
    """The logits [batch, time, vocabulary] of ids [batch, time]."""
    batch, time = ids.shape
    x = weights["wte.weight"][ids] + weights["wpe.weight"][:time]
    for layer in range(sum(name.endswith("ln_1.weight") for name in weights)):
        here = f"h.{layer}."
        q, k, v = (part.reshape(batch, time, HEADS, -1).swapaxes(1, 2)
                   for part in np.split(linear(norm(x, weights, here + "ln_1"), weights, here + "attn.c_attn"), 3, -1))
        scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])
        scores = np.where(np.tri(time, dtype=bool), scores, -np.inf)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (scores / scores.sum(-1, keepdims=True) @ v).swapaxes(1, 2).reshape(x.shape)
        x = x + linear(mixed, weights, here + "attn.c_proj")
        inner = linear(norm(x, weights, here + "ln_2"), weights, here + "mlp.c_fc")
        inner = 0.5 * inner * (1 + np.tanh(np.sqrt(2 / np.pi) * (inner + 0.044715 * inner ** 3)))
        x = x + linear(inner, weights, here + "mlp.c_proj")
    return norm(x, weights, "ln_f") @ weights["wte.weight"].T


def loss(weights, windows: np.ndarray) -> float:
    total = 0.0
    for first in range(0, len(windows), 32):  # a few at a time, for memory
        ids = windows[first:first + 32].astype(np.int64)
        found = logits(weights, ids)[:, :-1]
        found = found - found.max(-1, keepdims=True)
        total -= float((np.take_along_axis(found, ids[:, 1:, None], -1)[..., 0] - np.log(np.exp(found).sum(-1))).sum())
    return total / windows[:, 1:].size


def generate(weights, ids: list[int]) -> list[int]:
    ids = list(ids)
    for _ in range(LENGTH):
        ids.append(int(logits(weights, np.array([ids]))[0, -1].argmax()))
    return ids


# ---- the page ----

class Page:
    def __init__(self, bench, options):
        self.bench, self.torch, self.python = bench, options.torch, options.python.absolute()
        self.folder = bench.path("page")
        self.folder.mkdir()
        self.environment = {
            **os.environ, "FSDPC": str(ROOT), "PYTHONPATH": str(ROOT / "frontends/torch"), "PATH": f"{bench.build / 'bin'}:{self.python.parent}:{os.environ['PATH']}",
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
        self.printed = []  # stdout and stderr of each block

    def call(self, *command) -> subprocess.CompletedProcess:
        return run(command, cwd=self.folder, env=self.environment)

    def helper(self, *words) -> str:
        return self.call(self.python, "-c", HELPER, *words).stdout

    def run(self) -> None:
        """Every block in order. Python blocks are one session."""
        blocks = BLOCK.findall(PAGE.read_text())
        expect(len(blocks) == PAGE.read_text().count("```") / 2, "a block of the page is not marked to be run")
        if not self.torch:
            shutil.copy(MODELS / "fine_tune.onnx", self.folder / "gpt2.onnx")
        errors = self.folder / "session.txt"
        with errors.open("w") as stderr, subprocess.Popen([self.python, "-c", SESSION], cwd=self.folder, env=self.environment, text=True,
                                                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr) as session:
            for needs_torch, language, text in blocks:
                if needs_torch and not self.torch:
                    continue
                if language == "sh":
                    done = self.call("bash", "-e", "-c", text)
                    self.printed.append((done.stdout, done.stderr))
                    continue
                session.stdin.write(json.dumps(text) + "\n")
                session.stdin.flush()
                answer = session.stdout.readline()
                expect(bool(answer), f"{text}\nends the session:\n{errors.read_text()[-4000:]}")
                self.printed.append((json.loads(answer), ""))

    def lines(self, log: str) -> list[dict]:
        return [json.loads(line) for line in (self.folder / log).read_text().splitlines()]


def check_training(page: Page) -> dict[str, np.ndarray]:
    """The interruption left a checkpoint, the loss on unseen text fell, and the frozen embeddings did not move. Returns the best."""
    expect(any("exit code 4" in out and "resuming from 'ckpt/step-" in err for out, err in page.printed), f"printed {page.printed}")
    before, = (line["eval_loss"] for line in page.lines("before.jsonl") if "eval_step" in line)
    lines = page.lines("tune.jsonl")
    steps, found = ([line[key] for line in lines if key in line] for key in ("step", "eval_step"))
    expect(steps == list(range(160)) and found == [40, 80, 120, 160], f"steps {steps}, evaluations {found}")
    named = json.loads((page.folder / "best" / "best.json").read_text())
    expect(named["eval_loss"] < before - 0.5, f"the loss went from {before} to {named['eval_loss']}")
    best, pretrained = safetensors(page.folder / "best" / named["file"]), safetensors(page.folder / "pretrained.safetensors")
    expect(best.keys() == pretrained.keys(), f"tensors {sorted(best)}")
    for name, values in best.items():
        same = np.array_equal(values, pretrained[name])
        expect(same == bool(re.search("wpe|lm_head", name)), f"'{name}' is {'still' if same else 'no longer'} what it was")
    print(f"eval_loss {before:.3f} before, {named['eval_loss']:.3f} after {named['step']} steps")
    weights = {re.sub(r"^gpt\.(transformer\.)?", "", name): values.astype(np.float64) for name, values in best.items()}
    weights["wte.weight"] = weights.pop("lm_head.weight")  # tied, and saved once
    # Windows that fill no microbatch are left out.
    samples, = (line["eval_samples"] for line in lines if line.get("eval_step") == named["step"])
    ours = loss(weights, np.load(page.folder / "held-out.npy")[:64 * samples].reshape(samples, 64))
    expect(abs(ours - named["eval_loss"]) < 1e-4, f"NumPy finds the loss {ours}, logged is {named['eval_loss']}")
    return weights


def check_bits(page: Page) -> None:
    """The run that was interrupted on two ranks ends with the weights of one that was not, on one."""
    page.call("./tune", "--tokens", "input_ids=code.npy", "--shuffle", "--steps", 160, "--lr-schedule=cosine,warmup=10",
              "--accumulate", 4, "--save", "whole.safetensors")
    page.call("fsdpc", "ckpt", "consolidate", "ckpt", "-o", "resumed.safetensors")
    whole, resumed = (safetensors(page.folder / f"{name}.safetensors") for name in ("whole", "resumed"))
    expect(all(np.array_equal(values, resumed[name]) for name, values in whole.items()), "other weights after the interruption")


def check_exported(page: Page) -> None:
    """The exported model holds the best weights, and compiled again it has their loss."""
    page.helper("tensors", "tuned.onnx", "tuned.npz")
    with np.load(page.folder / "tuned.npz") as tuned:
        best = safetensors(next((page.folder / "best").glob("*.safetensors")))
        for name, values in best.items():
            expect(np.array_equal(tuned[name], values), f"'{name}' of tuned.onnx")
    page.call("fsdpc", "tuned.onnx", "-o", "again", "--unit-class=GPT2Block")
    page.call("./again", "--steps", 0, "--eval-tokens", "input_ids=held-out.npy", "--log", "again.jsonl")
    again, = (line["eval_loss"] for line in page.lines("again.jsonl") if "eval_step" in line)
    logged = json.loads((page.folder / "best" / "best.json").read_text())["eval_loss"]
    expect(again == logged, f"the exported model has the loss {again}, logged is {logged}")
    if page.torch:
        torch = float(re.search(r"^eval_loss (.*)$", page.printed[-1][0], re.MULTILINE)[1])
        expect(abs(torch / logged - 1) < 1e-5, f"PyTorch finds the loss {torch}, logged is {logged}")
        print(f"eval_loss {logged} of the best weights, {torch} in PyTorch")


def check_adapters(page: Page) -> None:
    """The files of the adapters hold nothing of the base, and PEFT's model with them has the loss that the run has logged."""
    size = lambda path: sum(file.stat().st_size for file in path.rglob("*.safetensors")) if path.is_dir() else path.stat().st_size
    adapters, checkpoint, whole = (size(page.folder / name) for name in ("adapters.safetensors", "lora-ckpt", "pretrained.safetensors"))
    expect(adapters < whole / 10 and checkpoint < 3.1 * adapters, f"{adapters} bytes of adapters, {checkpoint} of a checkpoint, {whole} of all")
    lines = page.lines("lora.jsonl")
    logged, = (line["eval_loss"] for line in lines if "eval_step" in line)
    steps = [line["step"] for line in lines if "step" in line]
    printed = [float(loss) for out, _ in page.printed for loss in re.findall(r"^adapted_loss (.*)$", out, re.MULTILINE)]
    expect(bool(printed) and all(abs(loss / logged - 1) < 1e-5 for loss in printed), f"PEFT finds the losses {printed}, logged is {logged}")
    print(f"LoRA: {len(steps)} steps, eval_loss {logged}, planned peak {lines[0]['plan']['peak']} bytes; {adapters} bytes saved, {checkpoint} in "
          f"the checkpoint, {whole} of the whole model")


def check_quantized(page: Page) -> None:
    """With a base in 4 bits a rank plans less memory than with one in f32, and far less than to train it; PEFT's loss is the run's."""
    size = lambda name: sum(file.stat().st_size for file in page.folder.glob(name))
    logs = {name: page.lines(f"{name}.jsonl") for name in ("wide", "wide-lora", "qlora")}
    peaks = {name: lines[0]["plan"]["peak"] for name, lines in logs.items()}
    losses = {name: [line["eval_loss"] for line in lines if "eval_step" in line][-1] for name, lines in logs.items()}
    for name in logs:
        steps = [line["step"] for line in logs[name] if "step" in line]
        print(f"{name}: {len(steps)} steps, eval_loss {losses[name]:.3f}, planned peak {peaks[name]} bytes; {size(name + '.onnx')} bytes of model, "
              f"{size(name + '.safetensors')} saved, {size(name + '-ckpt/**/*.safetensors')} in the checkpoint")
    expect(peaks["qlora"] < 0.7 * peaks["wide-lora"] < 0.5 * peaks["wide"], f"planned peaks {peaks}")
    expect(size("qlora.onnx") < 0.4 * size("wide-lora.onnx"), f"{size('qlora.onnx')} bytes, with a base in f32 {size('wide-lora.onnx')}")
    expect(losses["qlora"] < losses["wide"], f"losses of the unseen text {losses}")
    printed, = (float(loss) for out, _ in page.printed for loss in re.findall(r"^quantized_loss (.*)$", out, re.MULTILINE))
    expect(abs(printed / losses["qlora"] - 1) < 1e-5, f"PEFT finds the loss {printed}, logged is {losses['qlora']}")


def check_text(page: Page, weights) -> None:
    """Text from the saved weights: NumPy's, and with --torch the same from PyTorch."""
    ids = json.loads(page.helper("encode", PROMPT))
    text = page.helper("decode", repr(generate(weights, ids)))
    print(text)
    expect(text.startswith(PROMPT) and len(text) > len(PROMPT) + LENGTH // 2, f"generated {text!r}")
    if page.torch:
        out = page.printed[-1][0]
        expect(out.endswith(text), f"PyTorch generates {out!r}, NumPy {text!r}")


def update_model(page: Page, options) -> None:
    """Keeps the exported model, without the metadata that no test reads: stack traces name the files of this machine."""
    script = ("import sys, onnx; m = onnx.load(sys.argv[1])\nfor n in m.graph.node:\n  kept = [e for e in n.metadata_props if e.key in "
              "('pkg.torch.onnx.name_scopes', 'pkg.torch.onnx.class_hierarchy')]\n  del n.metadata_props[:]\n"
              "  n.metadata_props.extend(kept)\nonnx.save(m, sys.argv[2])")
    page.call(options.python, "-c", script, "gpt2.onnx", MODELS / "fine_tune.onnx")


def test(bench, options) -> None:
    if options.torch and subprocess.run([options.python, "-c", "import " + ", ".join(PACKAGES)], capture_output=True).returncode:
        print(f"left out: {options.python} does not have all of {', '.join(PACKAGES)}")
        return
    page = Page(bench, options)
    page.run()
    weights = check_training(page)
    check_bits(page)
    check_exported(page)
    check_text(page, weights)
    if page.torch:
        check_adapters(page)
        check_quantized(page)
    if options.update:
        update_model(page, options)


def add_arguments(parser) -> None:
    parser.add_argument("--python", type=Path, required=True, help="a Python that has tokenizers, numpy and onnx")
    parser.add_argument("--torch", action="store_true", help="it has torch, transformers and safetensors too: run those blocks as well")
    parser.add_argument("--update", action="store_true", help="with --torch, replace tests/models/fine_tune.onnx by what it exports")


if __name__ == "__main__":
    sys.exit(main(__doc__, test, add_arguments))
