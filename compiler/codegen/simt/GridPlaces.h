// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The list of the places whose ids are of a block's rows of the table, in
// shared memory, from which the threads of the block add up the gradient of an
// embedding.
#pragma once

#include "compiler/codegen/simt/GridEmitter.h"
#include "compiler/dialects/nn/ShapeOps.h"

namespace fsdpc::codegen::simt {

/// A place has a key, which sorts by row, then by place: its row's number times
/// `count`, plus the place. Rows are numbered from the first that is listed.
struct GridEmitter::Places {
  nn::EmbeddingGradOp op;
  int64_t tableRows; ///< of the whole table
  int64_t rows;      ///< of the table that a block owns, at most
  int64_t count;     ///< places, one per id
  int64_t capacity;  ///< places in the list, a power of two
  mlir::Value thread, block;
  mlir::Type keyType; ///< i32 or i64
  mlir::Value none;   ///< larger than all keys
  mlir::Value keys;   ///< pointer to `capacity` keys
  mlir::Value found;  ///< pointer to an i32, the number of places found
  /// Pointers to an i32 per row: the numbers of the keys of its places.
  mlir::Value begins, ends;
  kernels::Index ids; ///< of the id at the stage's outer variable
};

/// The places of one row in the list, [begin, end), as i32. The key of a place
/// less `first` is the place; `last` is end - 1.
struct GridEmitter::PlacesOfRow {
  mlir::Value begin, end, last, first;
};

} // namespace fsdpc::codegen::simt
