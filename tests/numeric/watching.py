"""Checks what watches a run: the event files of --tensorboard, the progress line, `fsdpc top` and its plot.

A small reader checks every byte of the framing, both checksums and the fields of the messages. With --python and a Python that
has the package tensorboard, that reads the folders too.
"""
import json
import math
import re
import struct
import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

from harness import Failure, fixture, main, run

CURVES = {"loss", "grad_norm", "lr", "step_ms", "samples_per_s", "exposed_comm_ms", "peak_bytes"}


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


def curves(path: Path) -> tuple[int, dict[str, dict[int, float]]]:
    """Returns the step from which the file replaces earlier ones, and its curves."""
    version, start, *rest = [fields(record) for record in records(path)]
    expect(dict(version)[3] == b"brain.Event:2" and dict(version)[1] > 1.7e9, f"{path}: version")
    expect(dict(fields(dict(start)[7])) == {1: 1}, f"{path}: no start of a session")
    found: dict[str, dict[int, float]] = {}
    for event in map(dict, rest):
        for number, value in fields(event[5]):
            expect(number == 1, f"{path}: field {number} of a summary")
            point = dict(fields(value))
            found.setdefault(point[1].decode(), {})[event[2]] = point[2]
    return dict(start)[2], found


def compare(found: dict[int, float], lines: list[dict], key: str) -> None:
    """The points are those of the log, as f32."""
    wanted = {line["step"]: struct.unpack("<f", struct.pack("<f", line[key]))[0] for line in lines}
    expect(found == wanted, f"{key}: {found}, the log has {wanted}")


READER = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
reader = EventAccumulator(sys.argv[1])
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


def check_refusals(bench, program: Path, chosen) -> None:
    """A folder that cannot be one is an error before training; a full disk is a warning and keeps whole records."""
    base = [program, *chosen.data, "--steps", 4]
    bench.path("file").write_text("kept")
    for folder in (bench.path("file"), bench.path("file") / "under"):
        done = run([*base, "--tensorboard", folder], expected=3)
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
    form = (r"step \d/5  loss \S+  norm \S+  \d+ ms/step  \S+ samples/s  exposed comm \d+ %  peak \S+ \S+  "
            r"\d+s left(  checkpoint in (1 step|2 steps))?")
    expect(len(lines) > 0 and all(re.fullmatch(form, line.strip()) for line in lines), f"progress: {text!r}")


def test(bench, options) -> None:
    chosen = fixture("linears")
    program = bench.compile_fixture(chosen, "program")
    check_events(bench, program, chosen, options.python)
    check_refusals(bench, program, chosen)
    check_progress(bench, program, chosen)


def add_python(parser) -> None:
    parser.add_argument("--python", type=Path, help="a Python that has the package tensorboard, which reads the folders too")


if __name__ == "__main__":
    sys.exit(main(__doc__, test, add_python))
