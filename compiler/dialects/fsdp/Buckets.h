// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The buckets of a module, of which it has several only once linkBuckets has
// joined them: their names, and those of their entry functions.
#pragma once

#include "compiler/dialects/fsdp/Entries.h"
#include "runtime/abi/manifest.h"

namespace fsdpc::fsdp {

/// The names of the buckets of a module that has several.
inline constexpr llvm::StringLiteral kBucketsAttr = "fsdp.buckets";

/// Returns the number of buckets.
inline size_t bucketCount(mlir::ModuleOp module) {
  auto names = module->getAttrOfType<mlir::ArrayAttr>(kBucketsAttr);
  // An edited dump may have an empty list.
  return names && !names.empty() ? names.size() : 1;
}

/// Returns the name of an entry function in a bucket: "microbatch" in the first
/// one, "microbatch_1" in the second.
inline std::string nameInBucket(llvm::StringRef entry, size_t bucket) {
  return entry.str() + suffixOfBucket(bucket);
}

/// Returns the entry functions of all buckets: those of entriesOf, then those
/// of the other buckets.
inline llvm::SmallVector<mlir::func::FuncOp>
entriesOfBuckets(mlir::ModuleOp module) {
  llvm::SmallVector<mlir::func::FuncOp> functions(entriesOf(module));
  for (size_t bucket = 1; bucket < bucketCount(module); ++bucket)
    for (llvm::StringRef name : {llvm::StringRef(FSDPDialect::kMicrobatch),
                                 llvm::StringRef(kEvaluate)})
      if (auto function = module.lookupSymbol<mlir::func::FuncOp>(
              nameInBucket(name, bucket)))
        functions.push_back(function);
  return functions;
}

} // namespace fsdpc::fsdp
