// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The values of --metric and --predict, which name outputs of the program
// (fsdpc --keep-output).
#pragma once

#include "runtime/abi/manifest.h"
#include "runtime/support/status.h"

#include <string>
#include <vector>

namespace fsdpc::runtime {

/// One --metric: a scalar of each microbatch.
struct Metric {
  size_t output = 0; ///< index in the manifest
  std::string name;  ///< in the log; by default that of the output
  bool sum = false;  ///< over microbatches; else their mean
};

/// One --predict: a tensor whose rows belong to samples.
/// Rank 0 writes the file, whole, after each evaluation; the other ranks send
/// it their rows.
struct Prediction {
  size_t output = 0; ///< index in the manifest
  std::string file;  ///< .npy
};

/// Parse "OUTPUT[=NAME][:mean|sum]" and "OUTPUT=FILE.npy". An error names the
/// flag, and what the program can report.
Result<std::vector<Metric>> parseMetrics(const std::vector<std::string> &texts,
                                         const Manifest &manifest);
Result<std::vector<Prediction>>
parsePredictions(const std::vector<std::string> &texts,
                 const Manifest &manifest);

} // namespace fsdpc::runtime
