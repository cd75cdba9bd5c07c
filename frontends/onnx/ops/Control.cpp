// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// If, provided that its condition is constant: only the branch that is taken is
// imported.
#include "frontends/onnx/Node.h"

#include "frontends/onnx/GraphImporter.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// The condition may be computed, as long as folding makes it a number:
// exporters write tests of shapes in this form.
static LogicalResult ifOp(Node &node) {
  if (failed(node.expectInputs(1, 1)))
    return failure();
  auto condition = node.number(0, "'cond'");
  if (!condition)
    return failure();
  StringRef name = *condition != 0 ? "then_branch" : "else_branch";
  // A branch that a function's caller passes would escape the budgets, which
  // count what the text of a function contains.
  for (const onnx::AttributeProto &attribute : node.proto.attribute())
    if (!attribute.ref_attr_name().empty())
      return node.refuse("branches that the caller of a function passes are "
                         "not supported");
  const auto *branch = node.attribute(name);
  if (!branch || !branch->has_g())
    return node.refuse("attribute '" + name + "' is missing");
  return node.importer.inlineBranch(node, branch->g());
}

void frontend::registerControl(HandlerTable &table) {
  table.add("If", 1, ifOp);
}
