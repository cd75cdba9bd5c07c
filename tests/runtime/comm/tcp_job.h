// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The processes of a TCP job, for tests: starts tcp_peer once per rank, in the
// environment that torchrun would set, and collects exit codes and what all of
// them print. Whatever still runs at the end of a test is killed.
#pragma once

#include "runtime/comm/socket.h"

#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <map>
#include <netinet/in.h>
#include <sstream>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace fsdpc::runtime::testing {

using Variables = std::map<std::string, std::string>;

/// Another process may take it before the job does, which is rare.
inline int freePort() {
  int file = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in name = {};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof name;
  bind(file, reinterpret_cast<sockaddr *>(&name), length);
  getsockname(file, reinterpret_cast<sockaddr *>(&name), &length);
  close(file);
  return ntohs(name.sin_port);
}

/// The processes of one job, and what they print.
class TcpJob : public ::testing::Test {
protected:
  TcpJob() {
    char name[] = "/tmp/fsdpc-tcp-XXXXXX";
    output = mkstemp(name);
    path = name;
  }
  ~TcpJob() override {
    for (pid_t process : processes)
      kill(process, SIGKILL);
    for (pid_t process : processes)
      waitpid(process, nullptr, 0);
    close(output);
    unlink(path.c_str());
  }

  Variables torchrun(int rank, int ranks) {
    return {{"RANK", std::to_string(rank)},
            {"WORLD_SIZE", std::to_string(ranks)},
            {"LOCAL_RANK", std::to_string(rank)},
            {"LOCAL_WORLD_SIZE", std::to_string(ranks)},
            {"MASTER_ADDR", "localhost"},
            {"MASTER_PORT", std::to_string(port)},
            {"FSDPC_JOIN_SECONDS", "20"}};
  }

  /// The process inherits this one's environment and `variables`.
  void start(const Variables &variables, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), TCP_PEER);
    pid_t process = fork();
    if (process == 0) {
      for (auto &[name, value] : variables)
        setenv(name.c_str(), value.c_str(), 1);
      dup2(output, STDERR_FILENO);
      std::vector<char *> pointers;
      for (std::string &argument : arguments)
        pointers.push_back(argument.data());
      pointers.push_back(nullptr);
      execv(TCP_PEER, pointers.data());
      _exit(127);
    }
    processes.push_back(process);
  }

  void startAll(int ranks, const std::vector<std::string> &arguments,
                const Variables &more = {}) {
    for (int rank = 0; rank < ranks; ++rank) {
      Variables variables = torchrun(rank, ranks);
      for (auto &[name, value] : more)
        variables[name] = value;
      start(variables, arguments);
    }
  }

  /// Returns exit codes in the order of starting: negative for signals, and -99
  /// for a process that does not end, which is then killed.
  std::vector<int> ends(double seconds) {
    Deadline deadline = inSeconds(seconds);
    std::vector<int> codes;
    for (pid_t process : processes) {
      int status = 0;
      pid_t done;
      while ((done = waitpid(process, &status, WNOHANG)) == 0 &&
             std::chrono::steady_clock::now() < deadline)
        usleep(10000);
      if (done == 0) {
        kill(process, SIGKILL);
        waitpid(process, &status, 0);
      }
      codes.push_back(done == 0           ? -99
                      : WIFEXITED(status) ? WEXITSTATUS(status)
                                          : -WTERMSIG(status));
    }
    processes.clear();
    return codes;
  }

  std::string printed() {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  /// Returns the line that begins with "error:", or everything if not just one.
  std::string error() {
    std::string text = printed(), line, found;
    std::istringstream lines(text);
    int count = 0;
    while (std::getline(lines, line))
      if (line.rfind("error:", 0) == 0) {
        ++count;
        found = line;
      }
    return count == 1 ? found : std::to_string(count) + " errors: " + text;
  }

  int port = freePort();
  int output = -1;
  std::string path;
  std::vector<pid_t> processes;
};

constexpr double patience = 60; ///< seconds; the machine may be busy
constexpr int unended = -99;

} // namespace fsdpc::runtime::testing
