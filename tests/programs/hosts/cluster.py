# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hosts for tests: namespaces of this machine, each with its own network, host name, processes, /tmp and /dev/shm.

usage: cluster.py HOST FILE FOLDER...: the first process of a host, which cluster.py itself starts

The hosts h0, h1 … are connected by a switch in a namespace of its own, so nothing of the machine's network changes. Each serves a
remote shell (remote_shell.py), since ssh needs accounts and keys. A host can be cut off, as by a broken cable, and can lose its power.
Making namespaces needs root, and a container may forbid it even then.
"""
import os
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
NAMESPACES = ["--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
# The remote shell, as --rsh and mpirun take it.
AGENT = f"{sys.executable} {HERE / 'remote_shell.py'}"


def why_not() -> str:
    """Returns why hosts cannot be made here; "" if they can."""
    for tool in ("ip", "nsenter", "unshare", "mount"):
        if not shutil.which(tool):
            return f"'{tool}' is missing"
    tried = subprocess.run(["unshare", *NAMESPACES, "sh", "-c", "mount -t tmpfs tmpfs /tmp && ip link add name b type bridge && "
                            "ip link add name v type veth peer name w"], capture_output=True, text=True)
    return f"hosts cannot be made here: {tried.stderr.strip()}" if tried.returncode else ""


def address(host: int) -> str:
    return f"10.77.0.{host + 1}"


class Cluster:
    """Hosts that live within a `with`. All see `folder` and the folders of `shared`; otherwise nothing of /tmp is shared.

    `own` is the address that a host's own name has on it, such as Debian's 127.0.1.1; by default the one that all others know.
    """

    def __init__(self, folder: Path, count: int, shared=(), own: str = ""):
        self.folder, self.count, self.own = folder, count, own
        self.shared = [str(each) for each in (folder, *shared) if Path(each).is_relative_to("/tmp")]
        self.hosts: list[subprocess.Popen] = []

    def __enter__(self) -> "Cluster":
        self.switch = subprocess.Popen(["unshare", "--net", "sh", "-c",
                                        "ip link add switch type bridge && ip link set switch up; echo; exec cat"],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            self.switch.stdout.readline()
            for host in range(self.count):
                self.start(host)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        for process in (*self.hosts, self.switch):
            process.kill()
            process.wait()
            process.stdout.close()
            process.stdin.close()

    def start(self, host: int) -> None:
        names = self.folder / f"names-of-h{host}"
        lines = [f"{self.own if self.own and each == host else address(each)} h{each}" for each in range(self.count)]
        names.write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
        made = subprocess.Popen(["unshare", *NAMESPACES, sys.executable, __file__, str(host), str(names), *self.shared],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.hosts.append(made)
        made.stdout.readline()                # it serves
        self.in_switch("ip", "link", "add", f"port{host}", "type", "veth", "peer", "eth0", "netns", made.pid)
        self.in_switch("ip", "link", "set", f"port{host}", "master", "switch", "up")
        script = f"ip link set lo up && ip link set eth0 up && ip addr add {address(host)}/24 dev eth0"
        subprocess.run(self.words(host, "sh", "-c", script), check=True)

    def in_switch(self, *words) -> None:
        subprocess.run(["nsenter", f"--net=/proc/{self.switch.pid}/ns/net", *map(str, words)], check=True)

    def words(self, host: int, *command) -> list[str]:
        """The words that run a command on a host, in this process's working folder."""
        spaces = f"/proc/{self.hosts[host].pid}/ns"
        return ["nsenter", *(f"--{name}={spaces}/{name}" for name in ("net", "uts", "ipc")), f"--mount={spaces}/mnt",
                f"--pid={spaces}/pid_for_children", "env", "-C", str(self.folder), *map(str, command)]

    def cut(self, host: int) -> None:
        """Lets the switch drop what the host sends and what is sent to it. Both ends still have a carrier."""
        self.in_switch("ip", "link", "set", f"port{host}", "nomaster")

    def mend(self, host: int) -> None:
        self.in_switch("ip", "link", "set", f"port{host}", "master", "switch")

    def switch_off(self, host: int) -> None:
        """Ends a host without a word to the others."""
        self.cut(host)
        self.hosts[host].kill()
        self.hosts[host].wait()


def become_host(host: str, names: str, shared: list[str]) -> None:
    """Gives this process's namespaces what is a host's own, and serves."""
    from remote_shell import Server

    socket.sethostname(f"h{host}")
    folders = [os.open(each, os.O_PATH) for each in (names, *shared)]

    def mount(*words, keep=()) -> None:
        subprocess.run(["mount", *words], check=True, pass_fds=keep)
    mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/tmp")
    mount("-t", "tmpfs", "-o", "mode=1777,size=512m", "tmpfs", "/dev/shm")
    # -c: the kernel follows these links, which have no names any more.
    for folder, path in zip(folders, ("/etc/hosts", *shared)):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if path != "/etc/hosts":
            os.makedirs(path, exist_ok=True)
        mount("-c", "--bind", f"/proc/self/fd/{folder}", path, keep=[folder])
    os.environ.pop("XDG_RUNTIME_DIR", None)
    server = Server()
    # A test that is killed leaves no host behind: its end of the pipe goes with it.
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    print(flush=True)
    server.serve_forever()


if __name__ == "__main__":
    become_host(sys.argv[1], sys.argv[2], sys.argv[3:])
