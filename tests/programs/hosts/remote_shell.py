# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A remote shell for hosts of a test, as ssh is for real ones, without keys and for one network only.

usage: remote_shell.py HOST COMMAND...

Runs a command on a host that serves (cluster.py) and ends with its exit code, or with 255 if the host does not answer, does so no
longer, or a signal ended the command. Like ssh it goes over the hosts' network: a host that is cut off is lost here as well.
"""
import os
import socket
import socketserver
import struct
import subprocess
import sys
import threading

PORT = 514
SILENCE = 3                                   # seconds without an answer of the other machine
OUTPUT, ERRORS, END = 1, 2, 3                 # what a frame of the server carries
FRAME = struct.Struct("!BI")                  # kind; bytes that follow, or the exit code


def prepare(connection: socket.socket) -> None:
    """Lets a connection break if the other machine is silent."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE * 1000)


def exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ConnectionError("the connection was closed")
        data += more
    return data


class Session(socketserver.BaseRequestHandler):
    """One command. Its standard input ends when the connection does."""

    def handle(self) -> None:
        prepare(self.request)
        command = exactly(self.request, struct.unpack("!I", exactly(self.request, 4))[0])
        self.lock = threading.Lock()
        with subprocess.Popen(["/bin/sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              start_new_session=True) as process:
            threading.Thread(target=self.hand_in, args=[process], daemon=True).start()
            copies = [threading.Thread(target=self.hand_out, args=each)
                      for each in ((OUTPUT, process.stdout), (ERRORS, process.stderr))]
            for copy in copies:
                copy.start()
            for copy in copies:
                copy.join()
            code = process.wait()
        self.send(FRAME.pack(END, code if code >= 0 else 255))

    def hand_in(self, process: subprocess.Popen) -> None:
        try:
            while data := self.request.recv(65536):
                os.write(process.stdin.fileno(), data)
        except OSError:
            pass                              # the command reads no more, or the connection is lost
        try:
            process.stdin.close()
        except OSError:
            pass

    def hand_out(self, kind: int, stream) -> None:
        while data := os.read(stream.fileno(), 65536):
            self.send(FRAME.pack(kind, len(data)) + data)

    def send(self, frame: bytes) -> None:
        try:
            with self.lock:
                self.request.sendall(frame)
        except OSError:
            pass                              # the command goes on without a reader


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self):
        super().__init__(("", PORT), Session)


def call(host: str, command: str) -> int:
    connection = socket.create_connection((host, PORT), timeout=SILENCE)
    connection.settimeout(None)
    prepare(connection)
    text = command.encode()
    connection.sendall(struct.pack("!I", len(text)) + text)

    def hand_in() -> None:
        try:
            while data := os.read(0, 65536):
                connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass
    threading.Thread(target=hand_in, daemon=True).start()
    while True:
        kind, value = FRAME.unpack(exactly(connection, FRAME.size))
        if kind == END:
            return value
        os.write(kind, exactly(connection, value))


if __name__ == "__main__":
    try:
        code = call(sys.argv[1], " ".join(sys.argv[2:]))
    except OSError as error:
        print(f"{sys.argv[1]}: {error}", file=sys.stderr)
        code = 255
    os._exit(code)                            # the thread may still read standard input
