// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Derives alignments from the offsets of all rt.launch ops.
#include "passes/runtime/Alignments.h"

#include "compiler/dialects/rt/RTDialect.h"

#include <numeric>

using namespace mlir;
using namespace fsdpc;

// The widest load of a GPU's thread, in bytes.
static constexpr int64_t kWidestLoad = 16;

llvm::MapVector<StringAttr, SmallVector<int64_t>>
fsdpc::passes::launchAlignments(ModuleOp module) {
  llvm::MapVector<StringAttr, SmallVector<int64_t>> known;
  module.walk([&](rt::LaunchOp launch) {
    SmallVector<int64_t> &bytes = known[launch.getKernelAttr().getAttr()];
    // A kernel may be launched many times. Each launch can only lower what is
    // known; gcd(x, 0) = x, so an offset of 0 lowers nothing.
    bytes.resize(launch.getBuffers().size(), kWidestLoad);
    // A missing optional buffer is null, whose alignment does not matter.
    for (auto [least, buffer] : llvm::zip(bytes, launch.getBuffers()))
      if (auto pointer = buffer.getDefiningOp<rt::PointerOp>())
        for (uint64_t place :
             {pointer.getOffset(), pointer.getAt().value_or(0)})
          least = std::gcd(least, static_cast<int64_t>(place));
  });
  return known;
}
