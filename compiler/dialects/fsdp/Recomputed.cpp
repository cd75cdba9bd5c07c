// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The record on a unit of what runs again for a memory limit: a dictionary, so
// that it reads well in a dump.
#include "compiler/dialects/fsdp/Recomputed.h"

#include "mlir/IR/Builders.h"

using namespace mlir;

namespace fsdpc::fsdp {

static constexpr llvm::StringLiteral keys[] = {"of", "ops", "us"}; // sorted

void setRecomputed(UnitOp unit, const Recomputed &recomputed) {
  Builder builder(unit.getContext());
  int64_t values[] = {recomputed.of, recomputed.ops, recomputed.us};
  SmallVector<NamedAttribute> entries;
  for (auto [key, value] : llvm::zip_equal(keys, values))
    entries.push_back(
        builder.getNamedAttr(key, builder.getI64IntegerAttr(value)));
  unit->setAttr(kRecomputedAttr, builder.getDictionaryAttr(entries));
}

bool isRecomputed(Attribute value) {
  auto entries = dyn_cast<DictionaryAttr>(value);
  return entries && entries.size() == std::size(keys) &&
         llvm::all_of(keys, [&](StringRef key) {
           auto count = entries.getAs<IntegerAttr>(key);
           return count && count.getType().isInteger(64) && count.getInt() >= 0;
         });
}

std::optional<Recomputed> recomputedOf(UnitOp unit) {
  auto entries = unit->getAttrOfType<DictionaryAttr>(kRecomputedAttr);
  if (!entries)
    return std::nullopt;
  auto value = [&](StringRef key) {
    return entries.getAs<IntegerAttr>(key).getInt();
  };
  return Recomputed{value("ops"), value("of"), value("us")};
}

} // namespace fsdpc::fsdp
