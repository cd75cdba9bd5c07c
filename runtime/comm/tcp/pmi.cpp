// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See pmi.h. A rank asks by one line and gets one line, "cmd=NAME KEY=VALUE …".
// Values have no spaces. The job is ended for the launcher as soon as the ranks
// have met: from then on they watch each other.
#include "runtime/comm/tcp/pmi.h"

#include "runtime/comm/interfaces.h"
#include "runtime/comm/wire.h"
#include "runtime/support/concat.h"
#include "runtime/support/system_error.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace fsdpc::runtime {

namespace {

constexpr size_t longestLine = 4096;
// The name under which rank 0 puts its place.
const char *const placeKey = "fsdpc-place";

// The conversation with the launcher.
class Launcher {
public:
  Launcher(int file, Deadline deadline) : file(file), deadline(deadline) {}

  // Sends a line and returns the line that answers it, which must be of the
  // command `answer`.
  Result<std::string> ask(const std::string &line, const std::string &answer) {
    std::string text = line + "\n";
    for (size_t done = 0; done < text.size();) {
      ssize_t count = write(file, text.data() + done, text.size() - done);
      if (count < 0 && errno != EINTR)
        return machineError("writing: " + systemText(errno));
      done += size_t(std::max<ssize_t>(count, 0));
    }
    Result<std::string> got = readLine();
    FSDPC_TRY(got);
    if (valueIn(*got, "cmd") != answer || !succeeded(*got))
      return machineError("it answered '" + got->substr(0, 80) + "' to '" +
                          line.substr(0, line.find(' ')) + "'");
    return got;
  }

  // Returns the value of a key in a line, or "".
  static std::string valueIn(const std::string &line, const std::string &key) {
    for (size_t at = 0; at < line.size();) {
      size_t end = std::min(line.find(' ', at), line.size());
      std::string word = line.substr(at, end - at);
      if (word.starts_with(key + "="))
        return word.substr(key.size() + 1);
      at = end + 1;
    }
    return "";
  }

private:
  static bool succeeded(const std::string &line) {
    std::string code = valueIn(line, "rc");
    return code.empty() || code == "0";
  }

  // Byte by byte, so that nothing behind the line is taken; there are few.
  Result<std::string> readLine() {
    std::string line;
    for (;;) {
      pollfd entry = {file, POLLIN, 0};
      int ready = poll(&entry, 1, pollTimeout(deadline));
      if (ready == 0)
        return machineError("it does not answer");
      char next;
      ssize_t count = ready < 0 ? -1 : read(file, &next, 1);
      if (count < 0 && (errno == EINTR || errno == EAGAIN))
        continue;
      if (count < 0)
        return machineError("reading: " + systemText(errno));
      if (count == 0)
        return machineError("it has closed the connection");
      if (next == '\n')
        return line;
      if (line.size() == longestLine)
        return machineError("it sends a line without an end");
      line += next;
    }
  }

  int file;
  Deadline deadline;
};

// What rank 0 tells the others: "SECRET.PORT.ADDRESS".
std::string textOf(const LaunchEnvironment &environment) {
  return concat(environment.secret, ".", environment.port, ".",
                environment.address);
}

// Rank 0's place on this machine. A port that is free now is most likely free
// in a moment.
Status choosePlace(LaunchEnvironment &environment) {
  Result<Endpoint> own = ownAddress(environment.interface);
  FSDPC_TRY(own);
  if (environment.address.empty())
    environment.address = addressText(*own);
  if (environment.port <= 0) {
    Result<Socket> probe = listenOn(*own);
    FSDPC_TRY(probe);
    Result<Endpoint> chosen = probe->ownEndpoint();
    FSDPC_TRY(chosen);
    environment.port = chosen->port;
  }
  return {};
}

Status takePlace(const std::string &text, LaunchEnvironment &environment) {
  size_t first = text.find('.'), second = text.find('.', first + 1);
  Error fault =
      machineError("it has '" + text.substr(0, 80) + "' for rank 0's place");
  if (first == std::string::npos || second == std::string::npos ||
      second + 1 == text.size())
    return fault;
  const char *end = text.data() + second;
  auto [at, code] =
      std::from_chars(text.data() + first + 1, end, environment.port);
  if (code != std::errc() || at != end || environment.port < 1 ||
      environment.port > 65535)
    return fault;
  environment.address = text.substr(second + 1);
  if (environment.secret.empty())
    environment.secret = text.substr(0, first);
  return {};
}

Status exchangePlace(Launcher &launcher, LaunchEnvironment &environment) {
  FSDPC_TRY(launcher.ask("cmd=init pmi_version=1 pmi_subversion=1",
                         "response_to_init"));
  Result<std::string> named = launcher.ask("cmd=get_my_kvsname", "my_kvsname");
  FSDPC_TRY(named);
  std::string space =
      "kvsname=" + Launcher::valueIn(*named, "kvsname") + " key=" + placeKey;
  if (environment.rank == 0) {
    FSDPC_TRY(choosePlace(environment));
    LaunchEnvironment told = environment;
    // FSDPC_SECRET may have characters that a line cannot.
    told.secret = hexOf(randomBytes());
    FSDPC_TRY(launcher.ask("cmd=put " + space + " value=" + textOf(told),
                           "put_result"));
    if (environment.secret.empty())
      environment.secret = told.secret;
  }
  FSDPC_TRY(launcher.ask("cmd=barrier_in", "barrier_out"));
  if (environment.rank != 0) {
    Result<std::string> got = launcher.ask("cmd=get " + space, "get_result");
    FSDPC_TRY(got);
    FSDPC_TRY(takePlace(Launcher::valueIn(*got, "value"), environment));
  }
  FSDPC_TRY(launcher.ask("cmd=finalize", "finalize_ack"));
  return {};
}

} // namespace

bool mpiSpeaksPmi() {
#ifdef FSDPC_MPI_SPEAKS_PMI
  return true;
#else
  return false;
#endif
}

Status meetByPmi(LaunchEnvironment &environment) {
  std::string variable = concat("PMI_FD=", environment.pmi);
  if (fcntl(environment.pmi, F_SETFD, FD_CLOEXEC) != 0)
    return inputError(variable +
                      " is not an open descriptor; start the "
                      "program by mpiexec, or unset " +
                      environment.variables);
  Launcher launcher(environment.pmi, inSeconds(environment.seconds));
  Status met = exchangePlace(launcher, environment);
  if (!met)
    return met.error().reworded(
        concat("rank ", environment.rank,
               " cannot meet the others through the launcher "
               "(",
               variable, "): ", met.error().message));
  return {};
}

} // namespace fsdpc::runtime
