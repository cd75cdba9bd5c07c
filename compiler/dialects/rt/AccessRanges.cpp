// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The bytes behind the addresses of calls, as far as they depend on symbols of
// the module. Those of library calls follow from their plans (PlanTensors.cpp),
// those of scalars stand in ODS.
#include "compiler/dialects/rt/AccessRanges.h"

#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/dialects/nn/ElementBytes.h"
#include "compiler/options/Options.h"
#include "runtime/abi/norm_digits.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::rt;

LogicalResult rt::addRange(MutableOperandRange addresses,
                           llvm::function_ref<FailureOr<int64_t>()> bytes,
                           SmallVectorImpl<AccessRange> &ranges) {
  for (OpOperand &address : addresses) {
    FailureOr<int64_t> reached = bytes();
    if (failed(reached))
      return failure();
    ranges.push_back({&address, *reached});
  }
  return success();
}

LogicalResult rt::addRanges(MutableOperandRange addresses,
                            const FailureOr<SmallVector<int64_t>> &bytes,
                            SmallVectorImpl<AccessRange> &ranges) {
  if (failed(bytes))
    return failure();
  if (addresses.size() != bytes->size())
    return addresses.getOwner()->emitOpError("has ")
           << addresses.size() << " addresses for " << bytes->size()
           << " buffers";
  for (auto [address, reached] : llvm::zip_equal(addresses, *bytes))
    ranges.push_back({&address, reached});
  return success();
}

template <typename OpTy>
FailureOr<OpTy> AccessSizes::lookup(FlatSymbolRefAttr name,
                                    StringRef what) const {
  if (auto found = symbols.lookup<OpTy>(name.getAttr()))
    return found;
  return op->emitOpError("references ")
         << what << " '" << name.getValue() << "', which the module lacks";
}

FailureOr<fsdp::LayoutOp> AccessSizes::layout(FlatSymbolRefAttr name) const {
  return lookup<fsdp::LayoutOp>(name, "layout");
}

AccessSizes::Bytes AccessSizes::sumOver(
    Layouts layouts,
    llvm::function_ref<int64_t(fsdp::LayoutOp layout)> number) const {
  int64_t sum = 0;
  for (FlatSymbolRefAttr name : layouts) {
    FailureOr<fsdp::LayoutOp> found = layout(name);
    if (failed(found))
      return failure();
    sum += number(*found);
  }
  return sum;
}

int64_t AccessSizes::exactSums(int64_t count) {
  return count * normDigits * int64_t(sizeof(double));
}

AccessSizes::Bytes AccessSizes::flat(FlatSymbolRefAttr name) const {
  return sumOver(name, [](fsdp::LayoutOp layout) {
    return int64_t(layout.getElements()) *
           nn::elementBytes(layout.getCompute());
  });
}

AccessSizes::EachBytes AccessSizes::flats(Layouts layouts) const {
  SmallVector<int64_t> bytes;
  for (FlatSymbolRefAttr name : layouts) {
    Bytes own = flat(name);
    if (failed(own))
      return failure();
    bytes.push_back(*own);
  }
  return bytes;
}

AccessSizes::Bytes AccessSizes::wholeGradient(FlatSymbolRefAttr name) const {
  auto options = fsdp::CompileOptions::of(op->getParentOfType<ModuleOp>());
  return sumOver(name, [&](fsdp::LayoutOp layout) {
    return fsdp::wholeGradientElementsOf(layout, options) *
           int64_t(sizeof(float));
  });
}

AccessSizes::Bytes AccessSizes::memberSums(Layouts layouts,
                                           int64_t perMember) const {
  return sumOver(layouts, [&](fsdp::LayoutOp layout) {
    return exactSums(int64_t(layout.getMembers().size()) * perMember);
  });
}

AccessSizes::Bytes AccessSizes::factors(Layouts layouts) const {
  return sumOver(layouts, [&](fsdp::LayoutOp layout) {
    return fsdp::factorsOf(layout, symbols) * int64_t(sizeof(double));
  });
}

AccessSizes::Bytes AccessSizes::factorSums(Layouts layouts) const {
  return sumOver(layouts, [&](fsdp::LayoutOp layout) {
    return fsdp::factorSumsOf(layout, symbols) * int64_t(sizeof(double));
  });
}

AccessSizes::Bytes AccessSizes::matrices(FlatSymbolRefAttr name) const {
  return sumOver(name, [](fsdp::LayoutOp layout) {
    return fsdp::memberElementsOf(layout) * int64_t(sizeof(float));
  });
}

AccessSizes::Bytes AccessSizes::orthogonalized(FlatSymbolRefAttr name) const {
  return sumOver(name, [](fsdp::LayoutOp layout) {
    return fsdp::orthogonalElementsOf(layout) * int64_t(sizeof(float));
  });
}

AccessSizes::Bytes AccessSizes::buffer(FlatSymbolRefAttr name) const {
  auto found = lookup<fsdp::BufferOp>(name, "buffer");
  if (failed(found))
    return failure();
  return nn::tensorBytes(found->getType());
}

AccessSizes::EachBytes AccessSizes::buffersOf(FlatSymbolRefAttr kernel) const {
  auto found = lookup<func::FuncOp>(kernel, "kernel");
  if (failed(found))
    return failure();
  return llvm::map_to_vector(llvm::concat<const Type>(found->getArgumentTypes(),
                                                      found->getResultTypes()),
                             [](Type type) { return nn::tensorBytes(type); });
}
