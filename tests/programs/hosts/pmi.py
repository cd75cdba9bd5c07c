# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Starts ranks as a launcher does that speaks PMI-1 (Hydra, the mpiexec of MPICH and Intel MPI), without an MPI.

The ranks meet through the launcher's descriptor and train to the bits of threads. A launcher that breaks off, refuses or answers
something else ends the job with a line and a code. With --mpiexec FILE the job also runs under a real Hydra.
"""
import os
import selectors
import socket
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
from harness import Failure

RANKS = 3
SECONDS = 60
ANSWERS = {"init": "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1", "get_my_kvsname": "cmd=my_kvsname kvsname=kvs_0",
           "finalize": "cmd=finalize_ack"}


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise Failure(what)


class Launcher:
    """Starts ranks and answers them. `answers` replace those of some commands; None breaks the conversation off."""

    def __init__(self, words: list, answers: dict, own: str = "", more=None):
        self.answers, self.values, self.waiting, self.asked = answers, {}, [], []
        self.ranks, self.lines = [], selectors.DefaultSelector()
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMI", "SLURM_", "FSDPC_"))}
        for rank in range(RANKS):
            ours, theirs = socket.socketpair()
            variables = {"PMI_FD": own or str(theirs.fileno()), "PMI_RANK": str(rank), "PMI_SIZE": str(RANKS),
                         **(more(rank) if more else {})}
            self.ranks.append(subprocess.Popen([str(word) for word in words], env={**inherited, **variables}, pass_fds=[theirs.fileno()],
                                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
            theirs.close()
            self.lines.register(ours, selectors.EVENT_READ, bytearray())

    def serve(self) -> None:
        """Answers until all ranks have ended the conversation."""
        deadline = time.monotonic() + SECONDS
        while self.lines.get_map() and time.monotonic() < deadline:
            for key, _ in self.lines.select(timeout=1):
                try:
                    data = key.fileobj.recv(4096)
                except ConnectionResetError:
                    data = b""                # the rank has ended, and has not read all
                key.data.extend(data)
                while b"\n" in key.data:
                    line, _, rest = bytes(key.data).partition(b"\n")
                    key.data[:] = rest
                    self.answer(key.fileobj, dict(word.split("=", 1) for word in line.decode().split()))
                if not data:
                    self.lines.unregister(key.fileobj)
                    key.fileobj.close()

    def answer(self, to: socket.socket, asked: dict) -> None:
        command = asked["cmd"]
        self.asked.append(command)
        text = ANSWERS.get(command, "")
        if command == "put":
            self.values[asked["key"]] = asked["value"]
            text = "cmd=put_result rc=0 msg=success"
        elif command == "get":
            text = f"cmd=get_result rc=0 msg=success value={self.values[asked['key']]}"
        elif command == "barrier_in":
            self.waiting.append(to)
            if len(self.waiting) < RANKS:
                return
            text = "cmd=barrier_out"
        text = self.answers.get(command, text)
        for each in self.waiting if command == "barrier_in" else [to]:
            try:
                if text is None:
                    each.shutdown(socket.SHUT_RDWR)
                else:
                    each.sendall(text.encode() + b"\n")
            except OSError:
                pass                          # the rank has ended

    def ends(self) -> tuple[list[int], str]:
        """The exit codes, and all that the ranks print as errors."""
        texts = [rank.communicate(timeout=SECONDS)[1] for rank in self.ranks]
        return [rank.returncode for rank in self.ranks], "".join(texts)


def start(words: list, answers: dict, own: str = "", more=None) -> tuple[list[int], str, Launcher]:
    launcher = Launcher(words, answers, own, more)
    try:
        launcher.serve()
        return *launcher.ends(), launcher
    finally:
        for rank in launcher.ranks:
            rank.kill()


def test(bench, options) -> None:
    chosen = harness.fixture("gpt")
    program = bench.compile_fixture(chosen, "train")
    words = [program, *chosen.data, "--seed", chosen.seed, "--threads", 1, "--steps", 5, "--save"]
    harness.run([*words, bench.path("threads.safetensors"), "--ranks", RANKS])
    bits = bench.path("threads.safetensors").read_bytes()
    codes, text, launcher = start([*words, bench.path("pmi.safetensors")], {})
    expect(codes == [0] * RANKS, f"ranks end with {codes}:\n{text}")
    expect(bench.path("pmi.safetensors").read_bytes() == bits, "ranks have other bits than threads")
    expect(launcher.asked.count("finalize") == RANKS, f"not every rank ends the conversation: {launcher.asked}")

    # Slurm's plugin pmi2 offers the same, but Slurm's own variables say where rank 0 is.
    def slurm(rank: int) -> dict:
        return {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "SLURM_STEP_NUM_TASKS": str(RANKS), "SLURM_JOB_ID": str(os.getpid()),
                "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "localhost"}
    codes, text, launcher = start([*words, bench.path("slurm.safetensors")], {}, more=slurm)
    expect(codes == [0] * RANKS and not launcher.asked, f"with Slurm's variables ranks end with {codes}, asked {launcher.asked}:\n{text}")
    expect(bench.path("slurm.safetensors").read_bytes() == bits, "with Slurm's variables ranks have other bits than threads")

    place = "cmd=get_result rc=0 msg=success value="
    cases = [({"init": None}, 5, "it has closed the connection"),
             ({"init": "cmd=response_to_init rc=-1"}, 5, "it answered 'cmd=response_to_init rc=-1' to 'cmd=init'"),
             ({"put": "cmd=put_result rc=-1 msg=full"}, 5, "to 'cmd=put'"),
             ({"barrier_in": "x" * 5000}, 5, "it sends a line without an end"),
             ({"get": "cmd=get_result rc=-1 msg=key_not_found value=unknown"}, 5, "to 'cmd=get'"),
             *(({"get": place + value}, 5, f"it has '{value}' for rank 0's place")
               for value in ("", "secret", "secret.1.", "secret.0.10.0.0.1", "secret.65536.10.0.0.1", "secret.1x.10.0.0.1"))]
    for answers, code, named in cases:
        # Rank 0 waits for the others where only they fail.
        codes, text, _ = start([*words, bench.path("none"), "--join-timeout", 2], answers)
        expect(code in codes and set(codes) == {code} and named in text, f"after {answers} the ranks end with {codes}:\n{text}")
    codes, text, _ = start([*words, bench.path("none")], {}, own="99")
    expect(codes == [1] * RANKS and "PMI_FD=99 is not an open descriptor" in text, f"without a descriptor: {codes}\n{text}")
    codes, text, _ = start([*words, bench.path("none")], {}, own="x")
    expect(codes == [1] * RANKS and "PMI_FD='x' is not a whole number" in text, f"with a wrong descriptor: {codes}\n{text}")
    if options.mpiexec:
        harness.run([options.mpiexec, "-n", RANKS, *words, bench.path("hydra.safetensors")])
        expect(bench.path("hydra.safetensors").read_bytes() == bits, "under Hydra ranks have other bits than threads")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, lambda parser: parser.add_argument("--mpiexec", metavar="FILE", help="a Hydra to run under too")))
