// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The toy program with checkpoints in a folder `c`.
#pragma once

#include "tests/runtime/train/runtime_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

class Checkpoints : public Program {
protected:
  /// The names in a folder, in order.
  std::vector<std::string> names(const std::string &at) {
    std::vector<std::string> found;
    for (auto &entry : std::filesystem::directory_iterator(folder / at))
      found.push_back(entry.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
  }
  void clear() {
    std::filesystem::remove_all(folder / "c");
    std::filesystem::remove(folder / "out.safetensors");
  }
  /// Losses by step; a resumed run has those from its first step on.
  std::vector<double> losses() {
    std::vector<double> found;
    for (const nlohmann::json &line : log())
      if (line.contains("loss"))
        found.push_back(line["loss"]);
    return found;
  }
};

inline const std::string common =
    " --threads 1 --shuffle --seed 3 --lr-schedule=cosine,warmup=3" +
    std::string(" --log log --save out.safetensors ");
