// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Chooses the algorithms of products by their times (--tune-products). The
// first rank times what the library lists, once for each shape, before
// training; all ranks then take its choices, so that they round alike. A file
// keeps the choices by device and shape, and a later run that reads it times
// nothing and has the same bits.
#pragma once

#include "runtime/cuda/context.h"

#include <map>
#include <string>
#include <vector>

namespace fsdpc::runtime {

/// Algorithms that are timed for each product.
constexpr int tunedCandidates = 8;

/// Identifies a product within one kind of device: every field of its shape.
std::string keyOf(const CudaGemmShape &shape);

/// A choice: the code of the algorithm (CudaApi::listGemms), its time, and that
/// of the library's own choice, in microseconds.
struct TunedProduct {
  std::string code;
  double microseconds = 0, before = 0;
};

/// Choices by device, sums and shape: "NVIDIA H200\tany\t64 64 …". The second
/// field is "f32" if partial sums are never rounded, as under --deterministic.
using TunedTable = std::map<std::string, TunedProduct>;

/// The text of a file of choices, and back. Parsing fails on anything that
/// tableText does not write.
std::string tableText(const TunedTable &table);
Result<TunedTable> parseTable(const std::string &text);

/// Returns the index of the candidate to take, given the seconds of each in the
/// order of the library's heuristic. The first one stays unless another is at
/// least 2 % faster, so that noise changes little from one machine to the next.
size_t fastest(const std::vector<double> &seconds);

/// The choices of one rank.
struct TunedProducts {
  std::map<std::string, std::string> codes; ///< by keyOf
  std::vector<std::string> notes;           ///< for the log
};

/// All ranks call it, with their GPUs selected and nothing allocated yet. Reads
/// `file` on the first rank, times the shapes that it lacks there or of which
/// the library refuses the choice, as that of another version, and writes it
/// anew. A file that cannot be read or parsed is a warning. One that cannot be
/// written is too, unless `deterministic`: then it is an error, as is a failing
/// call of the library.
Result<TunedProducts> tuneProducts(CudaContext &context,
                                   const std::vector<CudaGemmShape> &shapes,
                                   const std::string &file, bool deterministic);

} // namespace fsdpc::runtime
