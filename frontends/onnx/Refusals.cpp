// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prints what an import has refused.
#include "frontends/onnx/Refusals.h"

#include "frontends/onnx/Budgets.h"
#include "runtime/support/concat.h"

#include "llvm/ADT/ArrayRef.h"

using namespace mlir;
using namespace fsdpc::frontend;

void Refusals::addTensor(StringRef kind, StringRef name, const Twine &why) {
  if (names.insert(name).second)
    tensors.push_back({(kind + " '" + name + "'").str(), why.str()});
}

void Refusals::attachTo(InFlightDiagnostic &error) const {
  ArrayRef<Tensor> listed = ArrayRef(tensors).take_front(kMostRefusedTensors);
  for (const Tensor &tensor : listed)
    error.attachNote(loc) << tensor.name << " " << tensor.why;
  if (listed.size() < tensors.size())
    error.attachNote(loc) << "and " << tensors.size() - listed.size()
                          << " further tensors";
  for (const Node &node : nodes)
    error.attachNote(node.loc) << node.text;
}

static std::string counted(size_t count, StringRef what) {
  return concat(count, count < kMostRefusals ? " " : " or more ", what.str(),
                count == 1 ? "" : "s");
}

LogicalResult Refusals::report() const {
  if (empty())
    return success();
  if (size() == 1 && nodes.empty())
    return emitError(loc) << tensors[0].name << " of '" << path << "' "
                          << tensors[0].why;
  if (size() == 1)
    return emitError(nodes[0].loc) << "cannot import node " << nodes[0].text;
  InFlightDiagnostic error = emitError(loc);
  error << "cannot import ";
  if (!tensors.empty())
    error << counted(tensors.size(), "tensor")
          << (nodes.empty() ? "" : " and ");
  if (!nodes.empty())
    error << counted(nodes.size(), "node");
  error << " of '" << path << "'";
  attachTo(error);
  return error;
}
