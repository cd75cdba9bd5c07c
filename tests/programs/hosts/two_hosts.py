# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs jobs on two hosts (cluster.py), which are cut off and switched off, or have networks that mislead.

Under mpirun and over TCP, two hosts train to the bits of one rank, over TCP also while the network is away or connections are reset.
Where ranks cannot meet by the addresses that they find, the job ends with 5 in the time that --join-timeout gives, by a line that says
what to choose, and with --interface they meet. A host that vanishes ends the job with 5 within seconds, by a line that names it, and
`fsdpc run` goes on from the newest checkpoint on the host that is left, to the same bits. With --all the network is away for longer, and
each host vanishes in each way under each launcher. Exits with 77 where namespaces cannot be made.
"""
import json
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import harness
from cluster import AGENT, Cluster, address, why_not
from harness import Failure

SKIPPED = 77
SECONDS = 120                                 # for a job to come to a step, or to end
STEPS, EVERY, FAULT = 200, 25, 60             # of a run, between checkpoints, and when the fault comes
WATCHDOG, JOIN, PAUSE, LONG_PAUSE = 4, 3, 5, 30
# From the fault to the end of the job: the watchdog, mpirun's own limits (11 s), and what a busy machine adds.
IN_TIME = 30


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise Failure(what)


class Jobs:
    """Jobs of one compiled program on the hosts of a cluster."""

    def __init__(self, bench):
        self.bench = bench
        chosen = harness.fixture("gpt")
        self.program = bench.compile_fixture(chosen, "train")
        self.training = [*chosen.data, "--seed", chosen.seed, "--threads", 1, "--steps", STEPS]
        harness.run([self.program, *self.training, "--accumulate", 4, "--save", bench.path("one.safetensors")])
        self.bits = bench.path("one.safetensors").read_bytes()

    def cluster(self, **more) -> Cluster:
        return Cluster(self.bench.folder, 2, [self.bench.build, harness.PROGRAMS.parents[1]], **more)

    def begin(self, cluster: Cluster, hosts: str, launcher: str, *flags) -> subprocess.Popen:
        """Starts `fsdpc run` on host h0."""
        words = [self.bench.build / "bin" / "fsdpc", "run", self.program, "--hosts", hosts, "--launcher", launcher, "--rsh", AGENT,
                 *self.training, *flags]
        return subprocess.Popen(cluster.words(0, *words), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                text=True)

    def run(self, cluster: Cluster, hosts: str, launcher: str, *flags) -> tuple[int, str]:
        """Runs a job to its end. Returns its code and what it prints as errors."""
        with self.begin(cluster, hosts, launcher, *flags) as job:
            text = job.communicate(timeout=SECONDS)[1]
        return job.returncode, text

    def check_bits(self, name: str, what: str) -> None:
        expect(self.bench.path(name).read_bytes() == self.bits, f"{what}: other bits than one rank")


def await_step(log: Path, step: int) -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        lines = log.read_text().rpartition("\n")[0].splitlines() if log.exists() else []
        if lines and json.loads(lines[-1]).get("step", -1) >= step:
            return
        time.sleep(0.02)
    raise Failure(f"'{log.name}' has no step {step} after {SECONDS} s")


def test_bits(jobs: Jobs) -> None:
    with jobs.cluster() as cluster:
        for launcher in ("mpirun", "ssh"):
            saved = f"{launcher}.safetensors"
            code, text = jobs.run(cluster, "h0:2,h1:2", launcher, "--save", saved)
            expect(code == 0, f"{launcher} on two hosts ends with {code}:\n{text}")
            jobs.check_bits(saved, launcher)


def test_networks(jobs: Jobs) -> None:
    """Ranks that find each other only by --interface."""
    def check(cluster: Cluster, what: str, launcher: str, named: list[str]) -> None:
        code, text = jobs.run(cluster, "h0:1,h1:1", launcher, "--join-timeout", JOIN)
        expect(code == 5, f"{what}: the job ends with {code}:\n{text}")
        for each in named:
            expect(each in text, f"{what}: {each} is not named:\n{text}")
        saved = f"{launcher}-interface.safetensors"
        code, text = jobs.run(cluster, "h0:1,h1:1", launcher, "--interface", "eth0", "--microbatches", 4, "--save", saved)
        expect(code == 0, f"{what}: with --interface the job ends with {code}:\n{text}")
        jobs.check_bits(saved, what)
    # Debian's line for the own name: rank 0 listens where only its own host reaches it.
    with jobs.cluster(own="127.0.1.1") as cluster:
        check(cluster, "a loopback address for the own name", "ssh", ["rank 1 of 2", "--interface NAME (here: 'eth0' (10.77.0.1))"])
    # The bridge of a container engine has the same address on every host.
    with jobs.cluster() as cluster:
        for host in range(cluster.count):
            script = "ip link add docker0 type bridge && ip addr add 172.17.0.1/16 dev docker0 && ip link set docker0 up"
            harness.run(cluster.words(host, "sh", "-c", script))
        check(cluster, "a bridge with one address on both hosts", "mpirun", ["--interface NAME", "'docker0' (172.17.0.1)", "--join-timeout"])


def run_over_tcp(jobs: Jobs, name: str, disturb) -> str:
    """Trains on both hosts, with no remote shell that watches the ranks. Calls disturb(cluster) in between, and returns what they print."""
    log = jobs.bench.path(f"{name}.jsonl")
    with jobs.cluster() as cluster:
        ranks = []
        for rank in range(2):
            variables = [f"RANK={rank}", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "MASTER_ADDR=h0", "MASTER_PORT=29500",
                         f"FSDPC_SECRET={'5' * 32}"]
            words = ["env", *variables, jobs.program, *jobs.training, "--accumulate", 2, "--watchdog", 60, "--log", log, "--save",
                     f"{name}.safetensors"]
            ranks.append(subprocess.Popen(cluster.words(rank, *words), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                          stderr=subprocess.PIPE, text=True))
        await_step(log, FAULT)
        disturb(cluster)
        text = "".join(rank.communicate(timeout=SECONDS)[1] for rank in ranks)
    expect([rank.returncode for rank in ranks] == [0, 0], f"{name}: {[rank.returncode for rank in ranks]}:\n{text}")
    jobs.check_bits(f"{name}.safetensors", name)
    return text


def test_pause(jobs: Jobs, seconds: float) -> None:
    """A network that is away for less than --watchdog costs only that time."""
    def pause(cluster: Cluster) -> None:
        cluster.cut(1)
        time.sleep(seconds)
        cluster.mend(1)
    run_over_tcp(jobs, f"pause-{seconds}", pause)


def test_reset(jobs: Jobs) -> None:
    """Connections that are reset, as by a firewall that forgot them, are made again. One end of each learns of it at once."""
    killed = []

    def reset(cluster: Cluster) -> None:
        for host in (0, 1):
            time.sleep(0.1)
            killed.extend(harness.run(cluster.words(host, "ss", "--no-header", "-K", "dst", address(1 - host))).stdout.splitlines())
    text = run_over_tcp(jobs, "reset", reset)
    if not killed:
        print("connections were not reset: this kernel does not let ss -K do so")
    else:
        expect("has made its connection to rank 0 on node 'h0' again" in text, f"reset connections: no warning:\n{text}")


def test_fault(jobs: Jobs, launcher: str, hosts: str, fault: str) -> None:
    """Loses host h1, on which rank 0 is if it comes first."""
    what = f"{launcher} on {hosts}, {fault}"
    name = what.replace(" ", "-").replace(",", "").replace(":", "")
    log = jobs.bench.path(f"{name}.jsonl")
    with jobs.cluster() as cluster:
        with jobs.begin(cluster, hosts, launcher, "--log", log, "--checkpoint", f"{name}-ckpt", "--checkpoint-every", EVERY, "--watchdog",
                        WATCHDOG, "--restarts", 2, "--min-ranks", 1, "--save", f"{name}.safetensors", "--flight-recorder",
                        f"{name}-flight.json") as job:
            await_step(log, FAULT)
            getattr(cluster, fault)(1)
            began, ended, text = time.monotonic(), None, ""
            for line in job.stderr:
                text += line
                if "the job ended with" in line:
                    ended = ended or time.monotonic() - began
            code = job.wait(timeout=SECONDS)
    expect(code == 0, f"{what}: the job ends with {code}:\n{text}")
    expect("the job ended with 5; starting it again from the checkpoint of step" in text, f"{what}: not started again as expected:\n{text}")
    expect(ended < IN_TIME, f"{what}: the job has ended {ended:.0f} s after the fault")
    expect("on node 'h1' was lost" in text or "h1: " in text, f"{what}: the host is not named:\n{text}")
    expect("started 2 ranks on h0:2" in text, f"{what}: does not go on with the other host:\n{text}")
    if launcher == "ssh":
        living = 0 if hosts.startswith("h0") else 2
        expect(jobs.bench.path(f"{name}-flight.{living}.json").exists(), f"{what}: no flight record of rank {living}")
    jobs.check_bits(f"{name}.safetensors", what)
    print(f"{what}: ended after {ended:.1f} s")


def test_absent(jobs: Jobs, launcher: str) -> None:
    """A host that does not answer at the start is no wrong input."""
    with jobs.cluster() as cluster:
        cluster.switch_off(1)
        code, text = jobs.run(cluster, "h0:2,h1:2", launcher, "--checkpoint", f"absent-{launcher}", "--restarts", 1, "--min-ranks", 1)
    expect(code == 0 and "the job ended with 5; starting it again from the beginning" in text,
           f"{launcher}: a host that is off at the start: {code}:\n{text}")


def test(bench, options) -> None:
    jobs = Jobs(bench)
    test_bits(jobs)
    test_networks(jobs)
    test_pause(jobs, PAUSE)
    test_reset(jobs)
    cases = [("mpirun", "h0:2,h1:2", "switch_off"), ("ssh", "h1:2,h0:2", "cut")]
    if options.all:
        cases = [(launcher, hosts, fault) for launcher in ("mpirun", "ssh") for hosts in ("h0:2,h1:2", "h1:2,h0:2")
                 for fault in ("cut", "switch_off")]
        test_pause(jobs, LONG_PAUSE)
        for launcher in ("mpirun", "ssh"):
            test_absent(jobs, launcher)
    for case in cases:
        test_fault(jobs, *case)


if __name__ == "__main__":
    if reason := why_not():
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    sys.exit(harness.main(__doc__, test, lambda parser: parser.add_argument("--all", action="store_true",
                                                                            help="lose each host in each way under each launcher")))
