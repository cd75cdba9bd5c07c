// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plans an exported model before any of it is written: what is copied, what is
// new, and what lies in the file of external data.
#pragma once

#include "frontends/onnx/Weights.h"
#include "tools/export/Export.h"
#include "tools/export/Pieces.h"
#include "tools/export/Values.h"

namespace fsdpc::exporting {

/// A tensor of the new file of external data: its new values, or a range of a
/// file of the model's.
struct External {
  const Value *value = nullptr;
  std::string file;
  uint64_t from = 0, offset = 0, bytes = 0;
};

/// Plans the output: the pieces of the model and the external data.
class Plan {
public:
  /// All of them must outlive the plan, which refers to values and files.
  Plan(const frontend::ModelFile &model, frontend::Weights &weights,
       const Values &values, const Arguments &arguments);

  Status make();
  const Pieces &pieces() const { return output; }
  /// Returns the tensors in the order of their offsets.
  const std::vector<External> &external() const { return moved; }
  std::string dataPath() const { return arguments.output + ".data"; }

private:
  /// Both rewrite the message in `range` of the model. `index` counts the
  /// initializers of the merged graph, in the order in which protobuf merges
  /// them.
  Result<Pieces> graph(ByteRange range, bool isLast);
  Result<Pieces> tensor(ByteRange range, int index);
  std::string placeInData(External entry, const onnx::TensorProto *old);
  std::string newTensor(const std::string &name, const Value &value);
  /// Adds a message with its tag and length. If the length is what it was, the
  /// old prefix is copied, since it may be written in more bytes than needed.
  void wrap(Pieces &to, uint64_t begin, ByteRange old, uint64_t field,
            Pieces message) const;
  uint64_t bytesOf(const Value &value) const;

  const frontend::ModelFile &model;
  frontend::Weights &weights;
  const Values &values;
  const Arguments &arguments;
  std::string dataName;
  std::vector<External> moved;
  uint64_t dataBytes = 0;
  int initializers = 0;
  Pieces output;
};

} // namespace fsdpc::exporting
