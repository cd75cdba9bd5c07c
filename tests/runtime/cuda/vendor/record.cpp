// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The record of all stand-ins, in the library that each of them links.
#include "tests/runtime/cuda/vendor/record.h"

#include <mutex>

namespace fsdpc::vendor {

namespace {

struct Record {
  std::mutex mutex;
  int failing = 0;
  std::vector<std::string> calls, broken;
};

// Never destroyed: threads may call until the process ends.
Record &record() {
  static auto *made = new Record;
  return *made;
}

} // namespace

void restart(int failing) {
  std::lock_guard<std::mutex> lock(record().mutex);
  record().failing = failing;
  record().calls.clear();
  record().broken.clear();
}

std::vector<std::string> calls() {
  std::lock_guard<std::mutex> lock(record().mutex);
  return record().calls;
}

std::vector<std::string> brokenRules() {
  std::lock_guard<std::mutex> lock(record().mutex);
  return record().broken;
}

bool fails(const char *function) {
  std::lock_guard<std::mutex> lock(record().mutex);
  record().calls.push_back(function);
  return int(record().calls.size()) == record().failing;
}

bool hasFailed() {
  std::lock_guard<std::mutex> lock(record().mutex);
  int failing = record().failing;
  return failing > 0 && int(record().calls.size()) >= failing;
}

bool require(bool holds, const char *function, const char *rule) {
  if (!holds) {
    std::lock_guard<std::mutex> lock(record().mutex);
    record().broken.push_back(std::string(function) + ": " + rule);
  }
  return holds;
}

} // namespace fsdpc::vendor
