// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the trained value for each tensor of a model.
#pragma once

#include "frontends/onnx/Parameters.h"
#include "runtime/support/renaming.h"
#include "tools/ckpt/source.h"
#include "tools/export/Export.h"

#include <map>
#include <string>

namespace fsdpc::exporting {

/// A tensor of the graph and the tensor that replaces its value.
struct Value {
  size_t tensor = 0; ///< in the source
  int64_t onnxType = 0;
  std::vector<int64_t> shape; ///< in the graph; of the bytes of packed codes
  bool isInput =
      false; ///< a graph input without a value: an initializer is added
};

/// The keys are names in the graph.
using Values = std::map<std::string, Value>;

/// Matches tensors by name, as `names` changes it, or by an alias of a tied
/// parameter. Fails if one is
/// missing, unknown, or has another shape, and names up to five.
Result<Values> matchValues(const frontend::ModelFile &model,
                           const frontend::ParameterTable &parameters,
                           const ckpt::TensorSource &source,
                           const runtime::Renaming &names,
                           const Arguments &arguments);

/// Returns the runtime's name of an ONNX element type, or "" if values of it
/// cannot be written. Types that programs store as bytes are "u8".
std::string dtypeOf(int64_t onnxType);
/// Returns true if values of a type can become the other one.
bool canWrite(const std::string &from, const std::string &to);
/// Converts `count` elements; floats are rounded to nearest.
void convertTo(const char *from, const std::string &fromType, char *to,
               const std::string &toType, size_t count);

} // namespace fsdpc::exporting
