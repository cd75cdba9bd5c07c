#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds the project pass_plugin against an installed fsdpc, away from the sources, and runs its pass in the installed fsdpc-opt.

usage: pass_plugin_test.py --cmake CMAKE --cxx COMPILER --build DIR
"""
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "programs"))
import harness
from harness import Failure

PROJECT = Path(__file__).resolve().parent / "pass_plugin"


def test(bench, options) -> None:
    prefix, project, place = bench.path("prefix"), bench.path("project"), bench.path("plugin")
    harness.run([options.cmake, "--install", bench.build, "--prefix", bench.path("first")])
    bench.path("first").rename(prefix)
    shutil.copytree(PROJECT, project)
    harness.run([options.cmake, "-G", "Ninja", "-S", project, "-B", place, f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_COMPILER={options.cxx}",
                 "-DCMAKE_BUILD_TYPE=Release"])
    harness.run([options.cmake, "--build", place])
    plugin = place / "gather_report.so"
    model = harness.fixture("linears").model
    dump = bench.path("model.mlir")
    harness.run([prefix / "bin/fsdpc", model, "--unit-class=*Linear", "--compile-to=collectives", "-o", dump, "--quiet"])
    opt = [prefix / "bin/fsdpc-opt", f"--load-pass-plugin={plugin}", "--pass-pipeline=builtin.module(report-gathers)", dump, "-o", bench.path("same.mlir")]
    text = harness.run(opt).stderr
    if text.count("remark: layout '") < 2 or " gathers of " not in text:
        raise Failure(f"the pass of the plug-in says:\n{text}")
    # What comes out of fsdpc-opt is an input of fsdpc.
    harness.run([prefix / "bin/fsdpc", bench.path("same.mlir"), "--compile-to=memory", "-o", bench.path("planned.mlir"), "--quiet",
                 f"--weights={model.parent}"])
    print(text)


def add_arguments(parser) -> None:
    parser.add_argument("--cmake", required=True)
    parser.add_argument("--cxx", required=True)


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, add_arguments))
