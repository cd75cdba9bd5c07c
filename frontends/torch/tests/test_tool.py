# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests the parts that need no torch: finding the tool, flags, messages, the log of a run. Runs with unittest or pytest.

The tool and the programs are scripts that behave as fsdpc and its programs do: exit codes, one "error: " line, a log.
"""
import io
import json
import os
import stat
import subprocess
import sys
import tempfile
import time
import unittest
import warnings
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import fsdpc
from fsdpc.errors import messages
from fsdpc.program import LogReader, ProgressLine, Step, _is_list_of_parts, data_words, launch_words
from fsdpc.programs import LISTS, environment_for_programs
from fsdpc.tool import flags_of


class Scratch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def script(self, name: str, body: str) -> Path:
        path = self.folder / name
        path.write_text(f"#!{sys.executable}\nimport json, os, sys, time\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path


class Finding(Scratch):
    def test_argument_before_environment_before_path(self):
        one, two = self.script("one", ""), self.script("two", "")
        (self.folder / "bin").mkdir()
        three = self.script("bin/fsdpc", "")
        with mock.patch.dict(os.environ, {"FSDPC": str(two), "PATH": str(three.parent)}):
            self.assertEqual(fsdpc.find_tool(one), str(one))
            self.assertEqual(fsdpc.find_tool(), str(two))
            del os.environ["FSDPC"]
            self.assertEqual(fsdpc.find_tool(), str(three))

    def test_the_wheels_own_before_path(self):
        self.script("fsdpc", "")
        packed = self.script("packed", "print(' '.join(sys.argv[1:]))")
        with mock.patch.dict(os.environ, {"PATH": str(self.folder)}), mock.patch("fsdpc.tool.packed_tool", return_value=str(packed)):
            os.environ.pop("FSDPC", None)
            self.assertEqual(fsdpc.find_tool(), str(packed))
            packed.chmod(0o644)
            with self.assertRaisesRegex(fsdpc.ToolNotFound, "packed' is missing or cannot be run; install fsdpc again"):
                fsdpc.find_tool()

    def test_the_command_is_the_wheels_compiler(self):
        code = "import sys; from fsdpc import command; command.packed_tool = lambda: sys.argv.pop(1) or None; sys.exit(command.main())"
        packed = self.script("packed", "print(' '.join(sys.argv[1:]))")
        for tool, code_of, text in ((packed, 0, "a b"), (self.folder / "gone", 2, "install fsdpc again"), ("", 2, "has no compiler")):
            done = subprocess.run([sys.executable, "-c", code, tool, "a", "b"], cwd=Path(fsdpc.__file__).parents[1], capture_output=True, text=True)
            self.assertEqual(done.returncode, code_of)
            self.assertIn(text, done.stdout + done.stderr)

    def test_the_tool_learns_which_environment_runs(self):
        tool = self.script("tool", "print(os.environ.get('VIRTUAL_ENV'))")
        with mock.patch.dict(os.environ), mock.patch("sys.prefix", "/here"), mock.patch("sys.base_prefix", "/usr"):
            os.environ.pop("VIRTUAL_ENV", None)
            self.assertEqual(fsdpc.check("model.onnx", tool=tool), "/here\n")

    def test_what_is_missing_is_named(self):
        with mock.patch.dict(os.environ, {"FSDPC": "/nowhere/fsdpc", "PATH": str(self.folder)}):
            with self.assertRaisesRegex(fsdpc.ToolNotFound, "'/nowhere/fsdpc', from the environment variable FSDPC"):
                fsdpc.find_tool()
            del os.environ["FSDPC"]
            with self.assertRaisesRegex(fsdpc.ToolNotFound, "no 'fsdpc' on PATH"):
                fsdpc.find_tool()


class WorkingFolder(Scratch):
    """Programs of the working folder run only if their path is given."""

    def setUp(self):
        super().setUp()
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)

    def test_empty_and_relative_folders_of_path_are_skipped(self):
        self.script("fsdpc", "")
        with mock.patch.dict(os.environ, {"PATH": f":.:{self.folder.name}:"}):
            os.environ.pop("FSDPC", None)
            with self.assertRaises(fsdpc.ToolNotFound):
                fsdpc.find_tool()
            with self.assertRaises(fsdpc.ToolNotFound):
                fsdpc.find_tool("fsdpc")
            self.assertEqual(fsdpc.find_tool("./fsdpc"), "./fsdpc")

    def test_programs_get_absolute_folders_only(self):
        lists = {name: ":.:/a:b:/c:" for name in LISTS}
        with mock.patch.dict(os.environ, lists):
            tool = self.script("tool", f"print(json.dumps([os.environ.get(name) for name in {LISTS}]))")
            self.assertEqual(json.loads(fsdpc.check("model.onnx", tool=tool)), ["/a:/c"] * len(LISTS))
        self.assertEqual(environment_for_programs({"PATH": "", "PYTHONPATH": ".", "HOME": ""}), {"PATH": "/usr/bin:/bin", "HOME": ""})

    def test_mpirun_of_the_working_folder_does_not_run(self):
        (self.folder / "bin").mkdir()
        self.script("mpirun", "open('ran', 'w')")
        train = self.script("train", Running.PROGRAM)
        self.script("bin/mpirun", f"words = sys.argv[sys.argv.index({str(train)!r}):]; os.execv(words[0], words)")
        with mock.patch.dict(os.environ, {"PATH": f":.:{self.folder / 'bin'}"}):
            done = fsdpc.run(train, 2, steps=1, launcher="mpirun", progress=False)
        self.assertEqual(done.losses, [1])
        self.assertFalse((self.folder / "ran").exists())


class Importing(Scratch):
    # As on a machine without them, if something else has not imported them.
    HEAVY = {"numpy", "onnx", "onnxscript", "safetensors", "torch", "transformers"}

    def modules_of(self, statement: str) -> set[str]:
        """Returns the modules that a statement imports in a new process."""
        code = f"import sys; sys.path.insert(0, {str(Path(fsdpc.__file__).parents[1])!r}); before = set(sys.modules)\n{statement}\n"
        done = subprocess.run([sys.executable, "-I", "-c", code + "print(*sys.modules.keys() - before)"], capture_output=True, text=True, check=True)
        return set(done.stdout.split())

    def test_imports_what_is_needed(self):
        program = self.script("program", "sys.exit(0)")
        for statement in ("import fsdpc", "import fsdpc; fsdpc.compile, fsdpc.check, fsdpc.find_tool, fsdpc.run, fsdpc.Error",
                          f"import fsdpc; fsdpc.run({str(program)!r}, steps=1, data=dict(x='x.npy'))"):
            with self.subTest(statement):
                modules = self.modules_of(statement)
                self.assertIn("fsdpc", modules)
                self.assertFalse(self.HEAVY & modules)

    def test_the_command_imports_itself_alone(self):
        own = {name for name in self.modules_of("import fsdpc.command") if name.startswith("fsdpc")}
        self.assertEqual(own, {"fsdpc", "fsdpc.command"})
        self.assertFalse(self.modules_of("import fsdpc.command") & {"json", "pathlib", "subprocess", "tempfile"})

    def test_every_name_is_there(self):
        for name in set(fsdpc.__all__) - {"Trainer", "check_export", "export", "load", "save_pretrained"}:
            self.assertIn(name, dir(fsdpc))
            self.assertEqual(getattr(fsdpc, name).__name__, name)
        with self.assertRaisesRegex(AttributeError, "has no attribute 'no_such_name'"):
            fsdpc.no_such_name


class Flags(unittest.TestCase):
    def test_words(self):
        self.assertEqual(flags_of({"param_dtype": "bf16", "lr": 1e-3, "nesterov": True, "amsgrad": False, "loss": None,
                                   "frozen": ["^a", "b$"], "init": Path("w.safetensors")}),
                         ["--param-dtype=bf16", "--lr=0.001", "--nesterov", "--frozen=^a", "--frozen=b$", "--init=w.safetensors"])
        self.assertEqual(flags_of({"dim": {"B": 8, "T": [128, 256], "2*T + 1": "9"}}), ["--dim=B=8", "--dim=T=128,256", "--dim=2*T + 1=9"])

    def test_lists_of_samples(self):
        class Array:
            def __init__(self, *shape):
                self.shape = shape
        self.assertEqual(data_words("data", {"x": "x.npy", "ids": [Path("a.npy"), "b.npy"]}, Path()),
                         ["--data", "x=x.npy", "--data", "ids=a.npy,b.npy"])
        self.assertTrue(_is_list_of_parts([Array(5, 8), Array(5, 16)]))
        for one_array in ([[1, 2], [3, 4]], [], [Array(8), Array(8)], [Array(8), "b.npy"], "a.npy"):
            self.assertFalse(_is_list_of_parts(one_array))

    def test_launchers(self):
        self.assertEqual(launch_words("./train", 3, "threads"), ["./train", "--ranks", "3"])
        with self.assertRaisesRegex(fsdpc.CommandLineError, "unknown launcher 'slurm'"):
            launch_words("./train", 3, "slurm")
        with self.assertRaisesRegex(fsdpc.CommandLineError, "'ranks' is 0"):
            launch_words("./train", 0, "threads")


class Messages(Scratch):
    def test_notes_belong_to_their_error(self):
        text = "remark: r\nerror: cannot import 2 nodes\n  note: a (node 'a')\n  note: b\nwarning: w\n"
        self.assertEqual(messages(text, "error"), ["cannot import 2 nodes\n  note: a (node 'a')\n  note: b"])
        self.assertEqual(messages(text, "warning"), ["w"])

    def test_exit_codes(self):
        for code, kind in ((1, fsdpc.InputError), (2, fsdpc.CommandLineError), (3, fsdpc.RunError), (4, fsdpc.InterruptedRun),
                           (5, fsdpc.MachineError)):
            tool = self.script("tool", f"print('error: no file', file=sys.stderr); sys.exit({code})")
            with self.assertRaises(kind) as caught:
                fsdpc.compile("model.onnx", "train", tool=tool)
            self.assertEqual((str(caught.exception), caught.exception.code), ("no file", code))

    def test_killed(self):
        tool = self.script("tool", "os.kill(os.getpid(), 9)")
        with self.assertRaisesRegex(fsdpc.RunError, "killed by signal 9"):
            fsdpc.check("model.onnx", tool=tool)

    def test_command_lines_and_warnings(self):
        tool = self.script("tool", "print(sys.argv[1:]); print('warning: optimized', file=sys.stderr)")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.assertEqual(fsdpc.compile("m.onnx", "out", tool=tool, lr=1).strip(), "['m.onnx', '-o', 'out', '--lr=1']")
            self.assertEqual(fsdpc.check("m.onnx", tool=tool).strip(), "['check', 'm.onnx']")
        self.assertEqual([(w.category, str(w.message)) for w in caught], [(fsdpc.ToolWarning, "optimized")] * 2)

    def test_remarks_with_their_notes(self):
        tool = self.script("tool", "print('remark: this mean stays\\n  note: here', file=sys.stderr)")
        with self.assertWarnsRegex(fsdpc.ToolRemark, r"^this mean stays\n  note: here$"):
            fsdpc.compile("m.onnx", "out", tool=tool)


class Running(Scratch):
    PROGRAM = """
words = sys.argv[1:]
steps, log = (words[words.index(flag) + 1] for flag in ("--steps", "--log"))
with open(log, "w") as file:
    print(json.dumps({"words": words}), file=file)
    for step in range(int(steps)):
        print(json.dumps({"step": step, "loss": 1 / (step + 1)}), file=file, flush=True)
    print(json.dumps({"eval_step": int(steps), "eval_loss": 0.25}), file=file)
"""

    def test_log_and_flags(self):
        seen = []
        done = fsdpc.run(self.script("train", self.PROGRAM), 2, steps=3, tokens={"ids": "book.txt:u8"}, shuffle=True, on_step=seen.append)
        self.assertEqual(done.losses, [1, 0.5, 1 / 3])
        self.assertEqual([step.loss for step in done.evaluations], [0.25])
        self.assertEqual(len(seen), 4)
        words = done.header["words"]
        self.assertEqual(words[:4] + words[-1:], ["--ranks", "2", "--tokens", "ids=book.txt:u8", "--shuffle"])

    def test_failure_has_the_programs_words(self):
        program = self.script("train", "print('2 ranks', file=sys.stderr); print('error: x.npy is short', file=sys.stderr); sys.exit(1)")
        with self.assertRaises(fsdpc.InputError) as caught:
            fsdpc.run(program, steps=1)
        self.assertEqual(str(caught.exception), "x.npy is short")
        self.assertIn("2 ranks", caught.exception.output)

    def test_a_log_is_read_line_by_line(self):
        reader = LogReader(self.folder / "log")
        reader.update()  # not there yet
        for text, losses in (('{"header": 1}\n{"step": 0, "lo', []), ('ss": 2}\n', [2]), ('{"step": 1, "loss": 1}', [2]), ("\n", [2, 1])):
            with reader.path.open("a") as file:
                file.write(text)
            reader.update()
            self.assertEqual(reader.run.losses, losses)

    def test_a_log_that_the_program_truncates_is_read_anew(self):
        path = self.folder / "log"
        path.write_text(json.dumps({"step": 0, "loss": 9, "from": "an earlier run"}) + "\n")
        reader = LogReader(path)
        reader.update()
        self.assertEqual(reader.run.losses, [])
        path.write_text('{"step": 0, "loss": 2}\n')
        reader.update()
        self.assertEqual(reader.run.losses, [2])

    def test_a_run_begins_at_its_own_header(self):
        """The program has cut an earlier log and has written more than it cut before the reader looks again."""
        lines = ['{"program_hash": "a", "first_step": 0}\n', '{"step": 0, "loss": 9}\n', '{"step": 1, "loss": 8}\n']
        header = '{"program_hash": "a", "first_step": 1}\n'
        for kept, more in ((2, [header, '{"step": 1, "loss": 7}\n']), (3, [header, '{"step": 2, "loss": 7}\n']), (0, [*lines[:1], lines[1].replace("9", "7")]),
                           (1, [header, '{"step": 1, "loss": 7}\n'])):
            path = self.folder / "log"
            path.write_text("".join(lines))
            os.utime(path, ns=(0, 0))  # long ago
            reader = LogReader(path)
            path.write_text("".join(lines[:kept]))
            reader.update()
            self.assertEqual(reader.run.losses, [])
            path.write_text("".join([*lines[:kept], *more]))
            reader.update()
            self.assertEqual((reader.run.losses, reader.run.header), ([7], json.loads(more[0])))

    def test_a_run_may_log_the_lines_of_an_earlier_one(self):
        path = self.folder / "log"
        for last in (False, True):
            path.write_text('{"program_hash": "a"}\n{"step": 0, "loss": 9}\n')
            reader = LogReader(path)
            if last:
                os.utime(path, ns=(0, 0))  # written again
            reader.update(ended=True)
            self.assertEqual(reader.run.losses, [9] if last else [])

    def test_a_fault_of_on_step_ends_the_run(self):
        program = self.script("train", self.PROGRAM + "\nimport time; time.sleep(60)")

        def fail(step):
            raise ValueError("mine")

        began = time.monotonic()
        with self.assertRaisesRegex(ValueError, "mine"):
            fsdpc.run(program, steps=3, on_step=fail)
        self.assertLess(time.monotonic() - began, 30)


class Progress(unittest.TestCase):
    def test_line(self):
        line = ProgressLine(20, io.StringIO())
        self.assertEqual(line.text(Step({"step": 9, "loss": 0.5}), line.began + 5), "[##########          ] step 10 of 20  loss 0.5000  50 s left")
        line = ProgressLine(4, io.StringIO())
        self.assertEqual(line.text(Step({"step": 0, "loss": 2.0}), line.began + 1), "[#####               ] step 1 of 4  loss 2.0000  3 s left")

    def test_nothing_without_a_terminal(self):
        stream = io.StringIO()
        line = ProgressLine(4, stream)
        line.show(Step({"step": 0, "loss": 2.0}))
        line.close()
        self.assertEqual(stream.getvalue(), "")


if __name__ == "__main__":
    unittest.main()
