# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stands in for all programs of a pack of gpu-check.sh: it fails, hangs, prints without end or skips, by the name under which it runs.

A training writes the log and the files that its command line names. gpu_check_rehearsal.py packs it.
"""
import json
import math
import os
import signal
import sys
import time

NAME = os.path.basename(sys.argv[0])
LOSSES = [1.0, 0.9]
REFUSED = "product 64x64x64 bf16: finished by a separate kernel: no algorithm"
CHOSEN = "product 64x64x32 bf16: algorithm 7"
MODELS = ("linears", "gpt", "vit", "llama")


def flag(name: str, default: str = "") -> str:
    """Returns the value of a flag, which follows it or an equal sign."""
    for i, word in enumerate(sys.argv):
        if word == name:
            return sys.argv[i + 1]
        if word.startswith(name + "="):
            return word.split("=", 1)[1]
    return default


def write(path: str, text: str) -> None:
    if path:
        with open(path, "w") as file:
            file.write(text)


def fail(why: str) -> None:
    print(f"error: {why}", flush=True)
    sys.exit(3)


def hang() -> None:
    """Says which process waits, in the folder that the test watches, and waits."""
    if "STAND_IN_HANGS" in os.environ:
        write(os.environ["STAND_IN_HANGS"], str(os.getpid()))
    time.sleep(600)


def print_without_end() -> None:
    line = b"value 17 is not 18\n" * 50000
    while True:
        os.write(1, line)


def googletest() -> None:
    """Prints as GoogleTest does. A test's name says how it goes."""
    passes, skips, fails = {"passes": (3, 0, 0), "skips": (0, 2, 0), "skips_some": (2, 1, 0)}.get(NAME.removesuffix("_test"), (1, 0, 1))
    for i in range(skips):
        print(f"[ RUN      ] Suite.Skipped{i}\nlibrary_test.cpp:7: Skipped\nno such library\n[  SKIPPED ] Suite.Skipped{i} (0 ms)")
    if fails:
        print("[ RUN      ] Suite.Bytes")
        for i in range(40000):
            print(f"library_test.cpp:9: Failure\nExpected equality of these values:\n  got[{i}]\n    Which is: '?'\n  char(17)")
        print("[  FAILED  ] Suite.Bytes (9 ms)")
    print(f"[  PASSED  ] {passes} tests.")
    print(f"[  SKIPPED ] {skips} tests, listed below:" if skips else "")
    print("[  FAILED  ] 1 test, listed below:\n[  FAILED  ] Suite.Bytes" if fails else "", flush=True)
    sys.exit(1 if fails else 0)


def check_surroundings() -> None:
    """Fails if the driver or the machine's own libz cannot be loaded, or if the limit of a first step is too short for a sanitizer."""
    import ctypes
    for library in ("libcuda.so.1", "libz.so.1"):
        try:
            ctypes.CDLL(library)
        except OSError as error:
            fail(f"cannot load '{library}': {error}")
    if "SANITIZED" in os.environ and float(flag("--first-step-timeout", "9999")) <= 60:
        fail("the first step took longer than --first-step-timeout allows")


def fixture() -> None:
    """Runs one of the small models: the GPT is wrong with graphs, the vision transformer hangs, the Llama prints without end."""
    if NAME.startswith("vit"):
        hang()
    if NAME.startswith("llama"):
        print_without_end()
    wrong = NAME.startswith("gpt-f32") and "--no-graph" not in sys.argv and "poison" not in NAME
    log(LOSSES, {"wrong": wrong})
    write(flag("--save-gradients"), "gradients")
    write(flag("--save"), "parameters")


def log(losses: list[float], head: dict, **every) -> None:
    lines = [{"notes": [CHOSEN, REFUSED], **head}, *({"step": i, "loss": loss, "grad_norm": 1.0, **every} for i, loss in enumerate(losses))]
    write(flag("--log"), "".join(json.dumps(line) + "\n" for line in lines))


def timed() -> None:
    """Runs a model that is timed. The one with 24 rows does not learn."""
    if "--manifest" in sys.argv:
        print(json.dumps({"commands": [{"name": "gelu", "bytes": 1000}]}))
        return
    falls = 0 if NAME.startswith("gpt-1.5b-24") else 0.05
    log([math.log(500) + 0.02 - falls * step for step in range(int(flag("--steps")))], {}, tokens_per_s=1e6, step_ms=2.0)
    write(flag("--tune-products"), "head\na\tb\t64 64 64 0 0 0 0 1\tc\t2.0\t3.0\n")
    write(os.environ.get("FSDPC_KERNEL_TIMES", ""), "12\t500\tgelu\n")
    write(os.environ.get("FSDPC_KERNEL_TIMELINE", ""), "0\t50\t7\tgemm\n60\t90\t7\tgelu\n")


def main() -> None:
    check_surroundings()
    kind = NAME.removesuffix("_test")
    if kind == "crashes":
        print("noise " * 1000000, flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    elif kind == "hangs":
        hang()
    elif kind == "prints":
        print_without_end()
    elif NAME == "gpu_ceilings":
        print('{"copy_gb_per_s": 3000.0, "product": 8192, "first_tflops": 700.0, "best_tflops": 750.0, "algorithms": 8}')
    elif NAME.endswith("_test"):
        googletest()
    elif NAME.split("-")[0] in MODELS and NAME.split("-")[1] in ("f32", "bf16"):
        fixture()
    else:
        timed()


main()
