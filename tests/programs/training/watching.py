# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks what watches a run: the event files of --tensorboard, the progress line, `fsdpc top` and its plot.

A small reader checks every byte of the framing, both checksums and the fields of the messages. With --python and a Python that
has the package tensorboard, that reads the folders too.
"""
import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from compare import read_safetensors
from harness import Failure, fixture, main, run

CURVES = {"loss", "grad_norm", "lr", "step_ms", "samples_per_s", "exposed_comm_ms", "resident_bytes"}


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise Failure(what)


def masked_crc32c(data: bytes) -> int:
    """CRC-32C bit by bit, and TFRecord's masking."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(path: Path) -> list[bytes]:
    data, found = path.read_bytes(), []
    while data:
        length, = struct.unpack("<Q", data[:8])
        expect(struct.unpack("<I", data[8:12])[0] == masked_crc32c(data[:8]), f"{path}: checksum of a length")
        event = data[12:12 + length]
        expect(len(event) == length, f"{path}: ends within a record")
        expect(struct.unpack("<I", data[12 + length:16 + length])[0] == masked_crc32c(event), f"{path}: checksum of a record")
        found.append(event)
        data = data[16 + length:]
    return found


def fields(message: bytes) -> list[tuple[int, object]]:
    """Decodes protobuf's wire format: field number and number, double, float or bytes."""
    at, found = 0, []

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            value = varint()
        elif key & 7 == 2:
            length = varint()
            value, at = message[at:at + length], at + length
        else:
            form, size = ("<d", 8) if key & 7 == 1 else ("<f", 4)
            value, at = struct.unpack(form, message[at:at + size])[0], at + size
        found.append((key >> 3, value))
    return found


def summaries(path: Path) -> tuple[int, list[tuple[int, str, int, object]]]:
    """Returns the step from which the file replaces earlier ones, and of each value: step, tag, field of its kind, and itself."""
    version, start, *rest = [fields(record) for record in records(path)]
    expect(dict(version)[3] == b"brain.Event:2" and dict(version)[1] > 1.7e9, f"{path}: version")
    expect(dict(fields(dict(start)[7])) == {1: 1}, f"{path}: no start of a session")
    found = []
    for event in map(dict, rest):
        for number, value in fields(event[5]):
            expect(number == 1, f"{path}: field {number} of a summary")
            (_, tag), (kind, point) = fields(value)
            found.append((event[2], tag.decode(), kind, point))
    return dict(start)[2], found


def curves(path: Path) -> tuple[int, dict[str, dict[int, float]]]:
    start, found = summaries(path)
    by_tag: dict[str, dict[int, float]] = {}
    for step, tag, kind, point in found:
        if kind == 2:
            by_tag.setdefault(tag, {})[step] = point
    return start, by_tag


def histograms(path: Path) -> dict[tuple[int, str], bytes]:
    """Returns the encoded HistogramProto of each step and tag."""
    return {(step, tag): point for step, tag, kind, point in summaries(path)[1] if kind == 5}


def compare(found: dict[int, float], lines: list[dict], key: str) -> None:
    """The points are those of the log, as f32."""
    wanted = {line["step"]: struct.unpack("<f", struct.pack("<f", line[key]))[0] for line in lines}
    expect(found == wanted, f"{key}: {found}, the log has {wanted}")


READER = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
reader = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "histograms": 0})  # 0: all of them
reader.Reload()
print(json.dumps({tag: [[e.step, e.value] for e in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}))
"""


def check_events(bench, program: Path, chosen, python: Path | None) -> None:
    """An event file per run; a resumed run replaces what it computes again."""
    folder, checkpoints = bench.path("curves/run"), bench.path("checkpoints")
    flags = ["--tensorboard", folder, "--checkpoint", checkpoints, "--checkpoint-every", 3]
    first = bench.train(program, chosen, 1, *flags, local=True, steps=7)
    second = bench.train(program, chosen, 1, *flags, "--resume=3", local=True, steps=9)
    files = sorted(folder.iterdir())
    expect(len(files) == 2 and all(f.name.startswith("events.out.tfevents.") for f in files), f"files {files}")
    for path, training, begin in zip(files, (first, second), (0, 3)):
        start, found = curves(path)
        expect(start == begin, f"'{path}' starts at step {start}")
        expect(set(found) == CURVES, f"curves {sorted(found)}")
        for key in CURVES:
            compare(found[key], training.lines(), key)
    if python:
        read = json.loads(run([python, "-c", READER, folder]).stdout)
        lines = first.lines()[:3] + second.lines()
        expect(set(read) == CURVES, f"tensorboard reads the curves {sorted(read)}")
        for key in CURVES:
            expect([step for step, _ in read[key]] == list(range(9)), f"tensorboard reads the steps {read[key]}")
            compare(dict(map(tuple, read[key])), lines, key)


HISTOGRAM_READER = READER.replace('reader.Scalars(tag)', 'reader.Histograms(tag)').replace('"scalars"', '"histograms"').replace(
    "e.value", "[e.histogram_value.num, e.histogram_value.min, e.histogram_value.max]")


def check_ratios(bench, program: Path, chosen, steps: int, found: dict[tuple[int, str], bytes], measured: Path) -> None:
    """The histograms of the last step are those of the parameters as they were saved before and after it. `measured` is what the
    run with histograms saved: measuring changes no bit."""
    saved = [bench.train(program, chosen, 1, local=True, steps=done, accumulate=4).saved for done in (steps - 1, steps)]
    expect(saved[1].read_bytes() == measured.read_bytes(), "a run with histograms learns something else")
    states = [read_safetensors(path) for path in saved]
    ratios: dict[str, list[float]] = {}
    for layout in json.loads(run([program, "--manifest"]).stdout)["layouts"]:
        for member in layout["members"]:
            before, after = (state[member["name"]] for state in states)
            if np.any(before):
                change = (after - before).astype(np.float32).astype(np.float64)  # the program subtracts in f32
                ratios.setdefault("update_ratio/" + layout["unit"], []).append(np.linalg.norm(change) / np.linalg.norm(before))
    expect({tag for step, tag in found if step == steps - 1} == set(ratios), f"histograms {sorted(found)}, units {sorted(ratios)}")
    for tag, values in ratios.items():
        told = fields(found[steps - 1, tag])
        expect([number for number, _ in told] == [1, 2, 3, 4, 5, 6, 7], f"fields {told}")
        numbers, limits, buckets = [value for _, value in told[:5]], *(np.frombuffer(value) for _, value in told[5:])
        wanted = [min(values), max(values), len(values), sum(values), sum(value * value for value in values)]
        expect(np.allclose(numbers, wanted, rtol=1e-12, atol=0), f"{tag}: {numbers}, from the saved parameters {wanted}")
        counts = np.bincount(np.searchsorted(limits, values), minlength=len(limits))
        expect(np.array_equal(buckets, counts) and buckets[0] > 0, f"{tag}: buckets {buckets}, counted {counts}")
        expect(np.allclose(np.diff(np.log10(limits)), 0.1), f"{tag}: limits {limits}")


def check_histograms(bench, python: Path | None) -> None:
    """Every second step has the ratios of its update, the same bytes for all ranks, threads and strategies."""
    chosen, steps = fixture("gpt"), 4
    programs = [bench.compile_fixture(chosen, name, f"--strategy={name}") for name in ("zero3", "ddp")]
    seen = []
    for program, ranks, threads in ((programs[0], 1, 2), (programs[0], 2, 1), (programs[1], 4, 1)):
        folder = bench.path(f"histograms-{ranks}")
        training = bench.train(program, chosen, ranks, "--tensorboard", folder, "--histogram-every", 2, local=True, steps=steps,
                               threads=threads, accumulate=4 // ranks)
        seen.append(histograms(next(folder.iterdir())))
        expect(seen[-1].keys() == seen[0].keys() and {step for step, _ in seen[0]} == {1, 3}, f"histograms {sorted(seen[-1])}")
        expect(seen[-1] == seen[0], f"{ranks} ranks have other histograms")
    check_ratios(bench, programs[0], chosen, steps, seen[0], training.saved)
    if python:
        read = json.loads(run([python, "-c", HISTOGRAM_READER, bench.path("histograms-1")]).stdout)
        wanted = {(step, tag): [dict(fields(point))[number] for number in (3, 1, 2)] for (step, tag), point in seen[0].items()}
        expect({(step, tag): value for tag, points in read.items() for step, value in points} == wanted, f"tensorboard reads {read}")


def check_refusals(bench, program: Path, chosen) -> None:
    """A folder that cannot be one is an error before training; a full disk is a warning and keeps whole records."""
    base = [program, *chosen.data, "--steps", 4]
    bench.path("file").write_text("kept")
    for folder in (bench.path("file"), bench.path("file") / "under"):
        done = run([*base, "--tensorboard", folder], expected=1)
        expect(done.stderr.count("error: ") == 1 and f"'{folder}'" in done.stderr, done.stderr)
    expect(bench.path("file").read_text() == "kept", "the file was written")
    # The event file's first two records have less than 200 bytes.
    folder = bench.path("full")
    limited = "import resource, signal, os, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); " \
              "resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600)); os.execv(sys.argv[1], sys.argv[1:])"
    done = run([sys.executable, "-c", limited, *base, "--tensorboard", folder])
    expect(done.stderr.count("warning: ") == 1 and "its event file ends before step" in done.stderr, done.stderr)
    _, found = curves(next(folder.iterdir()))
    expect(0 < len(found["loss"]) < 4, f"steps {found['loss']}")


def check_progress(bench, program: Path, chosen) -> None:
    """The line of a run on a terminal names everything that one waits for."""
    command = [program, *chosen.data, "--ranks", 2, "--steps", 5, "--checkpoint", bench.path("progress"), "--checkpoint-every", 2]
    words = " ".join(f"'{word}'" for word in command)
    text = run(["script", "-qec", words, bench.path("typescript")]).stdout
    lines = [line for line in re.split(r"\x1b\[K|[\r\n]+", text) if line.startswith("step ")]
    form = (r"step \d/5  loss \S+  norm \S+  \d+ ms/step  \S+ samples/s  exposed comm \d+ %  resident \S+ \S+  "
            r"\d+s left(  checkpoint in (1 step|2 steps))?")
    expect(len(lines) > 0 and all(re.fullmatch(form, line.strip()) for line in lines), f"progress: {text!r}")


def top(bench, *arguments, expected: int = 0, **more) -> subprocess.CompletedProcess:
    return run([bench.build / "bin" / "fsdpc", "top", *arguments], expected=expected, **more)


def table(bench, *arguments) -> list[dict[str, str]]:
    """The table by columns, which two spaces or more separate."""
    head, *rows = [re.split(r"\s{2,}", line.strip()) for line in top(bench, *arguments).stdout.splitlines()]
    expect(all(len(row) == len(head) for row in rows), f"rows {rows}")
    return [dict(zip(head, row)) for row in rows]


def made_log(path: Path, steps: int, wanted: int, first: int = 0, **more) -> str:
    lines = [{"program_hash": "1", "steps": wanted, "first_step": first, "ranks": 1}]
    for step in range(first, steps):
        lines.append({"step": step, "loss": 2.0 + 1 / (step + 1), "grad_norm": None if step in (3, 2500) else 1.0, "lr": 1e-3,
                      "step_ms": 500.0, "tokens_per_s": 12345.0, "exposed_comm_ms": 50.0, "resident_bytes": 2 ** 30, **more})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path.read_text()


def check_top(bench, program: Path, chosen) -> None:
    """The table of a run that is done, of one that goes on, and of one whose last line is not whole."""
    real = bench.train(program, chosen, 2, local=True, steps=3)
    made, half = bench.path("made.jsonl"), bench.path("half.jsonl")
    text = made_log(made, 10, 30, eval_loss=1.5)
    half.write_text(text[:-20])
    done, running, cut = table(bench, real.log, made, half, "--once")
    expect(done["STATE"] == "done" and done["STEP"] == "3/3" and done["LOSS"] == f"{real.losses()[-1]:.4f}", str(done))
    wanted = {"STEP": "10/30", "LOSS": "2.1000", "EVAL": "1.5000", "NORM": "1", "LR": "0.001", "MS/STEP": "500",
              "ITEMS/S": "12.3k", "COMM": "10 %", "RESIDENT": "1.0 GiB", "LEFT": "10s", "STATE": "running"}
    expect({key: running[key] for key in wanted} == wanted, str(running))
    expect(cut["STEP"] == "9/30", str(cut))
    # A resumed run replaces the steps that it computes again.
    made.write_text(text + made_log(bench.path("resumed"), 6, 40, first=4))
    expect(table(bench, made)[0]["STEP"] == "6/40", "the steps of a resumed run")
    # The table is redrawn on a terminal, and ends with the run.
    made_log(made, 5, 5)
    drawn = run(["script", "-qec", f"'{bench.build}/bin/fsdpc' top '{made}'", bench.path("typescript")]).stdout
    expect("\x1b[H" in drawn and "5/5" in drawn, repr(drawn))
    half.write_text("x\n")
    for log, mention in ((half, "is not of a log"), (bench.path("none"), "No such file")):
        failed = top(bench, made, log, expected=1)
        expect(failed.stderr.startswith("error: ") and f"'{log}'" in failed.stderr and mention in failed.stderr, failed.stderr)


def check_evaluations(bench, program: Path, chosen) -> None:
    """Lines of evaluations stand between the steps: the table and the plot show both, also of a run that only evaluates."""
    held_out = [word.replace("--data", "--eval") for word in chosen.data]
    log, image = bench.path("evaluated.jsonl"), bench.path("evaluated.svg")
    command = [program, *chosen.data, *held_out, "--eval-every", 2, "--log", log]
    run([*command, "--steps", 5, "--checkpoint", bench.path("evaluated")])
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    losses, found = ({line[step]: line[key] for line in lines if step in line} for step, key in (("step", "loss"), ("eval_step", "eval_loss")))
    expect(list(losses) == [0, 1, 2, 3, 4] and list(found) == [2, 4, 5], f"lines {lines}")
    row, = table(bench, log)
    wanted = {"STEP": "5/5", "STATE": "done", "LOSS": f"{losses[4]:.4f}", "EVAL": f"{found[5]:.4f}"}
    expect({key: row[key] for key in wanted} == wanted, f"{row}, not {wanted}")
    top(bench, log, "--plot", image)
    drawn = [len(line.get("points").split()) for line in xml.fromstring(image.read_text()).iter("{http://www.w3.org/2000/svg}polyline")]
    expect(drawn[:2] == [5, 3], f"points of the curves {drawn}")
    # A header after steps, as of a run that goes on in the same file: the evaluation before its first step stays.
    log.write_text(log.read_text() + made_log(bench.path("goes_on"), 5, 8, first=4))
    row, = table(bench, log)
    expect((row["STEP"], row["EVAL"]) == ("5/8", f"{found[4]:.4f}"), str(row))
    run([*command, "--steps", 0])
    row, = table(bench, log)
    expect((row["STEP"], row["STATE"], row["LOSS"]) == ("0/0", "done", "-") and row["EVAL"] != "-", str(row))


def check_plot(bench) -> None:
    """A curve has every spike, leaves a gap where a value is not finite, and a name that ends otherwise is refused."""
    log, image = bench.path("a<b.jsonl"), bench.path("plot.svg")
    made_log(log, 5000, 5000)
    text = log.read_text().replace(json.dumps(2.0 + 1 / 2001), "99.0", 1)
    log.write_text(text)
    top(bench, log, "--plot", image)
    root = xml.fromstring(image.read_text())
    texts = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    lines = [node.get("points").split() for node in root.iter("{http://www.w3.org/2000/svg}polyline")]
    expect(str(log) in texts and "99" in texts and "step 4999" in texts, f"texts {texts}")
    expect(len(lines) == 5, f"{len(lines)} polylines: loss, norm before and after the gap, rate, throughput")
    heights = [float(point.split(",")[1]) for point in lines[0]]
    expect(min(heights) == 32 and len(heights) < 1000, f"the spike is at {min(heights)}, of {len(heights)} points")
    expect(all(math.isfinite(height) for height in heights), "heights")
    before = image.read_bytes()
    expect("does not end in .svg or .png" in top(bench, log, "--plot", bench.path("plot.pdf"), expected=2).stderr, "a name of PDF")
    top(bench, bench.path("none"), "--plot", image, expected=1)
    other = bench.path("other_mean.jsonl")
    other.write_text(log.read_text().replace('"program_hash"', '"loss_mean": "step", "program_hash"', 1))
    refused = top(bench, log, other, "--plot", image, expected=1).stderr
    expect("has no means over targets" in refused and "other_mean.jsonl' has --loss-mean=step" in refused, refused)
    expect(image.read_bytes() == before, "a failure changed the image")
    check_png(bench, log, before)


def check_png(bench, log: Path, svg: bytes) -> None:
    """rsvg-convert gets the SVG, here a stand-in for it; the image that is there stays if it fails or is not installed."""
    image, tools = bench.path("plot.png"), bench.path("tools")
    tools.mkdir()
    (tools / "rsvg-convert").write_text('#!/bin/sh\n/bin/cat >"$3"; exit $DRAWN\n')
    image.write_text("old")

    def draw(path, code: str, expected: int) -> str:
        done = top(bench, log, "--plot", image, expected=expected, env={**os.environ, "PATH": str(path), "DRAWN": code})
        expect(sorted(bench.folder.glob(".plot.png*")) == [], "a temporary file is left")
        return done.stderr

    expect("install it (Debian: librsvg2-bin)" in draw(tools, "0", 1), "rsvg-convert may not be run")
    (tools / "rsvg-convert").chmod(0o755)
    expect("could not draw the plot" in draw(tools, "1", 3) and image.read_text() == "old", "a failure changed the image")
    draw(tools, "0", 0)
    expect(image.read_bytes() == svg, "rsvg-convert got another SVG")
    if shutil.which("rsvg-convert"):
        draw(os.environ["PATH"], "0", 0)
        expect(image.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n", "the image is no PNG")


def test(bench, options) -> None:
    chosen = fixture("linears")
    program = bench.compile_fixture(chosen, "program")
    check_events(bench, program, chosen, options.python)
    check_histograms(bench, options.python)
    check_refusals(bench, program, chosen)
    check_progress(bench, program, chosen)
    check_top(bench, program, chosen)
    check_evaluations(bench, program, chosen)
    check_plot(bench)


def add_python(parser) -> None:
    parser.add_argument("--python", type=Path, help="a Python that has the package tensorboard, which reads the folders too")


if __name__ == "__main__":
    sys.exit(main(__doc__, test, add_python))
