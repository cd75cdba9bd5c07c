// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The lives of gathered buffers, from an all_gather to its free, and the rules
// that verify-collectives checks about them.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"

#include "llvm/ADT/DenseMap.h"

namespace fsdpc::passes {

/// The lives of the buffers of one block. A run is a sequence of ops that read
/// weights, one after another, of one unit; a buffer lives in one run.
class GatherLives {
public:
  explicit GatherLives(mlir::Block &body);

  /// Checks the op's part in the lives: that an all_gather is used, freed once
  /// and not kept beyond its run, and gathers nothing that is still alive. Must
  /// be called for each op in program order. Emits an error.
  llvm::LogicalResult verify(mlir::Operation *op);

private:
  llvm::LogicalResult verifyGather(fsdp::AllGatherOp gather);
  llvm::LogicalResult verifyRun(fsdp::AllGatherOp gather, fsdp::FreeOp free);

  /// The ops that read weights, the number of each one's run, and for each op
  /// the number of readers before it. `runs[i]` numbers the run of
  /// `readers[i]`. A buffer lives in one run if its first and last reader have
  /// the same number, which takes one comparison.
  llvm::SmallVector<mlir::Operation *> readers;
  llvm::SmallVector<unsigned> runs;
  llvm::DenseMap<mlir::Operation *, unsigned> readersBefore;
  /// The gather of each layout that is alive at the present op.
  llvm::DenseMap<mlir::StringAttr, fsdp::AllGatherOp> alive;
};

} // namespace fsdpc::passes
