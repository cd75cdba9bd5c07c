# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Supervised fine-tuning by transformers' Trainer and by fsdpc.Trainer, with equal TrainingArguments:
a small Llama on shuffled rows.

usage: sft.py --build DIR [--steps 200] [--plot FILE.svg]
            (a Python with torch, transformers and accelerate)

A task of rows with 1 to 30 targets, the rest of a row is -100: letters after `:` repeat those
before it, sorted. A microbatch is a row, a step has eight. transformers divides by the targets of
the step (num_items_in_batch), as --loss-mean=step does; --loss-mean=microbatch is the mean of the
rows' means. Both are then evaluated as one mean over all targets of the last rows. Prints a table,
and with --plot draws the losses, which each run writes as the log that `fsdpc top` reads.
"""
import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "frontends/torch"))
import fsdpc

ROWS, LENGTH, LETTERS = 8, 64, 26             # rows of a step, tokens of a row
COLON, END = LETTERS, LETTERS + 1
RATE = 2e-3


def rows(count: int) -> dict[str, np.ndarray]:
    """Most rows have few targets, and some have many, as answers do."""
    rng = np.random.default_rng(1)
    ids = np.full((count, LENGTH), END, np.int64)
    labels = np.full((count, LENGTH), -100, np.int64)
    for row in range(count):
        letters = rng.integers(LETTERS, size=1 + int(29 * rng.random() ** 3))
        answer = [*np.sort(letters), END]
        begin = len(letters) + 1
        ids[row, :begin + len(answer)] = [*letters, COLON, *answer]
        labels[row, begin:begin + len(answer)] = answer
    return {"input_ids": ids, "labels": labels}


def fresh_model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(vocab_size=LETTERS + 2, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                                        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=LENGTH, use_cache=False))


class Losses(TrainerCallback):
    def __init__(self):
        self.values: list[float] = []

    def on_log(self, args, state, control, logs=None, **_):
        if "loss" in logs:
            self.values.append(float(logs["loss"]))


def losses_of(kind: type, model: LlamaForCausalLM, data: dict, steps: int, folder: Path, **more) -> list[float]:
    """Trains with a rate that rises and falls, over two epochs."""
    losses = Losses()
    arguments = TrainingArguments(output_dir=str(folder), per_device_train_batch_size=1, gradient_accumulation_steps=ROWS // more.get("ranks", 1),
                                  max_steps=steps, learning_rate=RATE, warmup_steps=10, weight_decay=0.01, logging_steps=1, report_to=[],
                                  logging_nan_inf_filter=False, save_strategy="no", disable_tqdm=True, use_cpu=True)
    examples = [{key: value[row] for key, value in data.items()} for row in range(ROWS * steps // 2)]
    kind(model, arguments, train_dataset=examples, callbacks=[losses], **more).train()
    return losses.values


def held_out(model: LlamaForCausalLM, data: dict) -> float:
    """Returns the mean over all targets of rows that no run has seen."""
    with torch.no_grad():
        logits = model(torch.from_numpy(data["input_ids"])).logits[:, :-1]
    return float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.from_numpy(data["labels"])[:, 1:].flatten()))


def write_log(path: Path, losses: list[float]) -> None:
    lines = [{"program_hash": "", "steps": len(losses), "ranks": 1, "first_step": 0}]
    lines += [{"step": step, "loss": loss} for step, loss in enumerate(losses)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    os.environ["FSDPC"] = str(arguments.build.resolve() / "bin/fsdpc")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    data = rows(ROWS * arguments.steps + 256)
    last = {key: value[-256:] for key, value in data.items()}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs = {}
        for title, kind, more in (("Trainer", Trainer, {}), ("step", fsdpc.Trainer, dict(ranks=2)),
                                  ("microbatch", fsdpc.Trainer, dict(ranks=2, compile_flags=dict(loss_mean="microbatch")))):
            model = fresh_model()
            # Both print what they log.
            with contextlib.redirect_stdout(io.StringIO()):
                losses = losses_of(kind, model, data, arguments.steps, folder / title, **more)
            runs[title] = (losses, held_out(model, last))
        logs = []
        for title, (losses, _) in runs.items():
            logs.append(folder / f"{'loss-mean=' if title != 'Trainer' else ''}{title}.jsonl")
            write_log(logs[-1], losses)
        if arguments.plot:
            subprocess.run([os.environ["FSDPC"], "top", *(log.name for log in logs), "--plot", arguments.plot.resolve()], cwd=folder, check=True)
    shown = sorted({0, *(step - 1 for step in range(25, arguments.steps + 1, 25))})
    print(f"| step | transformers {transformers.__version__} | fsdpc.Trainer | with --loss-mean=microbatch |\n|---|---|---|---|")
    for step in shown:
        print(f"| {step + 1} | " + " | ".join(f"{losses[step]:.4f}" for losses, _ in runs.values()) + " |")
    print("| all targets of 256 other rows | " + " | ".join(f"{held:.4f}" for _, held in runs.values()) + " |")
    apart = max(abs(a - b) / abs(a) for a, b in zip(runs["Trainer"][0], runs["step"][0]))
    print(f"\nThe losses of both differ by at most {apart:.1e} of the loss.")


if __name__ == "__main__":
    main()
