// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Numbers the symbols and plans of a program, and lays out its embedded data.
// The order is that of the module, so equal modules have equal tables.
#include "compiler/codegen/ProgramTables.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;

// Ends the blob at a multiple of 64 bytes, for vector loads of what follows.
static void align(std::string &blob) {
  blob.resize(llvm::alignTo(blob.size(), 64), '\0');
}

// Appends a tensor's elements in row-major order, aligned, and returns their
// byte offset. An i1 element takes one byte. Splats are expanded, because
// kernels read constants like any other buffer.
static int64_t appendElements(std::string &blob, ElementsAttr value) {
  align(blob);
  int64_t offset = blob.size();
  auto dense = cast<DenseElementsAttr>(value);
  int64_t count = dense.getNumElements();
  if (dense.getElementType().isInteger(1)) {
    // Bits are unpacked, since kernels read a boolean as a byte.
    for (bool element : dense.getValues<bool>())
      blob.push_back(element ? 1 : 0);
    return offset;
  }
  // MLIR keeps one element of a splat, however many the type has.
  ArrayRef<char> raw = dense.getRawData();
  for (int64_t i = 0, copies = dense.isSplat() ? count : 1; i < copies; ++i)
    blob.append(raw.data(), raw.size());
  return offset;
}

ProgramTables::ProgramTables(ModuleOp module) {
  // Initial values are part of the program only if the symbol holds them.
  // Others come from a file or a rule.
  auto embed = [&](StringAttr name, std::optional<ElementsAttr> value) {
    if (value)
      weightOffsets[name] = appendElements(weights, *value);
  };
  for (auto layout : module.getOps<fsdp::LayoutOp>())
    layouts.index(layout.getSymNameAttr());
  for (auto parameter : module.getOps<fsdp::ParameterOp>())
    embed(parameter.getSymNameAttr(), parameter.getValue());
  for (auto buffer : module.getOps<fsdp::BufferOp>()) {
    buffers.index(buffer.getSymNameAttr());
    embed(buffer.getSymNameAttr(), buffer.getValue());
  }
  for (auto input : module.getOps<rt::InputOp>())
    inputs.index(input.getSymNameAttr());
  for (auto constant : module.getOps<rt::ConstantOp>())
    constantOffsets[constant.getSymNameAttr()] =
        appendElements(constants, constant.getValue());
  // The size counts in the planned peak, which does not depend on the order.
  align(constants);
  // Plans and events are found on ops, at any depth. Two calls with equal plans
  // share one number.
  module.walk([&](Operation *op) {
    if (auto plan = op->getAttrOfType<rt::PlanAttrInterface>("plan"))
      index(plan);
    else if (auto record = dyn_cast<rt::EventRecordOp>(op))
      events = std::max<int32_t>(events, record.getEvent() + 1);
  });
}
