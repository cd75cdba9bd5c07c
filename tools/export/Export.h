// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// `fsdpc export`: writes trained values back into the model that they came
// from.
#pragma once

#include "tools/completion/completion.h"

#include <string>
#include <vector>

namespace fsdpc::exporting {

struct Arguments {
  std::string model, weights, output;
  bool external = false;           ///< moves inline tensors to external data
  std::vector<std::string> rename; ///< rules of runtime::Renaming
  bool keepMissing = false; ///< parameters without a value keep the model's
};

/// Describes the command for `fsdpc completion`.
completion::Command describeExport();

/// Reads the command line `export …`, of which argv[0] is "export". Returns -1
/// to continue, or the exit code to stop with.
int parseArguments(int argc, char **argv, Arguments &arguments);

/// Writes the model. Returns the exit code: 1 if the model or the weights are
/// at fault, 3 if the output cannot be written.
int run(const Arguments &arguments);

} // namespace fsdpc::exporting
