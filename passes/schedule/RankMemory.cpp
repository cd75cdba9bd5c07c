// The memory of a rank beside the arena.
#include "passes/schedule/RankMemory.h"

#include "compiler/dialects/fsdp/ModuleManifest.h"
#include "runtime/core/memory_plan.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace fsdpc;

// Constants lie once each in the program's image.
static int64_t constantBytes(ModuleOp module) {
  llvm::SetVector<Attribute> values;
  module.walk([&](nn::ConstantOp op) { values.insert(op.getValueAttr()); });
  int64_t bytes = 0;
  for (Attribute value : values) {
    auto type = cast<ShapedType>(cast<ElementsAttr>(value).getType());
    int64_t size = (type.getElementTypeBitWidth() + 7) / 8;
    bytes += llvm::alignTo(type.getNumElements() * size, 64);
  }
  return bytes;
}

RankMemory::RankMemory(ModuleOp module) {
  Manifest manifest = fsdp::describeModule(module);
  manifest.constantBytes = constantBytes(module);
  ranks = manifest.planRanks;
  MemoryPlan plan = planMemory(manifest, ranks, manifest.planThreads,
                               /*communicationBytes=*/0, /*scratchpadBytes=*/0);
  for (auto &[kind, bytes] : plan.kinds())
    if (bytes > 0)
      kinds.push_back({kind, bytes});
}

int64_t RankMemory::total() const {
  int64_t sum = 0;
  for (const schedule::Contributor &kind : kinds)
    sum += kind.bytes;
  return sum;
}

void fsdpc::reportOverLimit(ModuleOp module, const RankMemory &memory,
                            std::vector<schedule::Contributor> contributors,
                            int64_t peak, int64_t cap) {
  llvm::append_range(contributors, memory.kinds);
  llvm::stable_sort(contributors, [](const auto &a, const auto &b) {
    return a.bytes > b.bytes;
  });
  auto diagnostic = module.emitError("peak of ")
                    << peak << " bytes on a rank of " << memory.ranks
                    << " is above --memory-limit of " << cap
                    << " bytes; largest are";
  const char *separator = " ";
  for (const schedule::Contributor &contributor :
       llvm::ArrayRef(contributors).take_front(3)) {
    diagnostic << separator << contributor.label << " with "
               << contributor.bytes;
    separator = ", ";
  }
}
