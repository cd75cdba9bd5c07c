// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs the toy program with one of its system calls failing
// (runtime_fault_shim.cpp), and draws a sample of the cases: the commit decides
// which, and FSDPC_FAULTS=all takes all.
#pragma once

#include "runtime/support/system_error.h"
#include "tests/runtime/train/runtime_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

inline const std::map<std::string, std::vector<int>> codes = {
    {"open", {EMFILE, EACCES, EIO}},
    {"read", {EIO}},
    {"write", {ENOSPC, EIO, EDQUOT}},
    {"fsync", {EIO, ENOSPC}},
    {"rename", {ENOSPC, EACCES}},
    {"close", {EIO, EDQUOT}},
    {"ftruncate", {EIO}},
    {"mmap", {ENOMEM}},
    {"stat", {EIO}},
    {"unlink", {EACCES}},
    {"flock", {ENOLCK}},
    {"getrandom", {ENOSYS}},
    {"fchmod", {EPERM}},
    {"access", {EIO}},
    {"mkdir", {ENOSPC}},
    {"rmdir", {EIO}}};

struct Fault {
  std::string call;
  int64_t at;
  int code;
  /// Of a run that ends for it.
  int exitCode() const { return int(fsdpc::systemError(code).code()); }
};

class Faults : public Program {
protected:
  Outcome runWith(const std::string &variables,
                  const std::string &flags =
                      "--steps 2 --log log --save out.safetensors --trace "
                      "t.json --save-gradients g.safetensors") {
    return shell("timeout 30 env LD_PRELOAD=" FAULT_SHIM " " + variables +
                 " " TOY_PROGRAM " --data ids=ids.npy --data "
                 "target=target.npy --threads 1 " +
                 flags);
  }
  /// Runs two ranks as processes of their own, in a group of their own. Returns
  /// when the lock of their folder is free, since processes that are killed
  /// together need not end together.
  Outcome pair(const std::string &first, const std::string &second,
               const std::string &flags) {
    static int port = 13000 + getpid() % 7000;
    ++port;
    std::string script;
    for (const std::string *variables : {&first, &second})
      script += std::string("env RANK=") + (variables == &first ? "0" : "1") +
                " WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=" +
                std::to_string(port) +
                " LD_PRELOAD=" FAULT_SHIM " FAULT_PATH=checkpoints " +
                *variables +
                " " TOY_PROGRAM " --data ids=ids.npy --data target=target.npy "
                "--threads 1 " +
                flags + " & pids=\"$pids $!\"\n";
    folder.write("job", script + "for pid in $pids; do wait $pid || code=$?; "
                                 "done\nexit $code\n");
    return shell("timeout 60 setsid sh job; code=$?; "
                 "flock checkpoints/.lock true; exit $code");
  }
  /// Returns the faults of every call that a run counted.
  std::vector<Fault> countedFaults() {
    std::vector<Fault> faults;
    std::istringstream counts(folder.read("counts"));
    std::string call;
    for (int64_t count; counts >> call >> count;)
      for (int64_t at = 1; at <= count; ++at)
        for (int code : codes.at(call))
          faults.push_back({call, at, code});
    return faults;
  }
  void writeOld() {
    for (const char *name : {"out.safetensors", "g.safetensors", "t.json"})
      folder.write(name, "old");
    folder.write("log", "{\"old\":1}\n");
  }
  /// Returns the bytes before the tensors of a safetensors file.
  static int64_t headerBytes(const std::filesystem::path &path) {
    uint64_t length = 0;
    std::ifstream(path, std::ios::binary)
        .read(reinterpret_cast<char *>(&length), sizeof length);
    return int64_t(sizeof length + length);
  }
  bool isSaved(const std::string &name) {
    return bool(fsdpc::runtime::SafeTensors::open(folder / name));
  }

  /// Returns what is wrong with the state after a run, or an empty string.
  std::string wrong(const Outcome &outcome, const Fault &fault) {
    if (outcome.code != 0 && outcome.code != fault.exitCode())
      return "its exit code is " + std::to_string(outcome.code);
    if (outcome.errors() != (outcome.code != 0))
      return "it has " + std::to_string(outcome.errors()) + " errors";
    for (const char *name : {"out.safetensors", "g.safetensors"})
      if (!isSaved(name) && (outcome.code == 0 || folder.read(name) != "old"))
        return std::string(name) + " is not as it should be";
    std::string trace = folder.read("t.json");
    if (trace == "old" ? outcome.code == 0 &&
                             outcome.err.find("warning: ") == std::string::npos
                       : !nlohmann::json::accept(trace))
      return "t.json is not as it should be";
    std::istringstream lines(folder.read("log"));
    for (std::string line; std::getline(lines, line);)
      if (!nlohmann::json::accept(line))
        return "the log has the line " + line;
    // A complete file that only lacks its name stays, and is named.
    Outcome left = shell("ls -A | grep tmp-");
    bool named = left.out.size() > 1 &&
                 outcome.err.find("what was to be saved is in '" +
                                  left.out.substr(0, left.out.size() - 1)) !=
                     std::string::npos;
    if (left.code == 0 && fault.call != "unlink" && !named)
      return "a temporary file is left";
    return "";
  }
};

/// Draws the sample. A test that fails prints its fault, so it can be repeated.
template <class Any>
std::vector<Any> sampled(std::vector<Any> faults, size_t most = 40) {
  const char *wanted = std::getenv("FSDPC_FAULTS");
  bool all = wanted && std::string(wanted) == "all";
  std::printf("%zu of %zu cases\n",
              all ? faults.size() : std::min(most, faults.size()),
              faults.size());
  if (all)
    return faults;
  std::string commit;
  if (FILE *git = popen("git -C " SOURCE_FOLDER " rev-parse HEAD 2>&1", "r")) {
    for (int c; (c = fgetc(git)) != EOF;)
      commit += char(c);
    pclose(git);
  }
  std::seed_seq seed(commit.begin(), commit.end());
  std::mt19937 random(seed);
  std::shuffle(faults.begin(), faults.end(), random);
  if (faults.size() > most)
    faults.erase(faults.begin() + std::ptrdiff_t(most), faults.end());
  return faults;
}
