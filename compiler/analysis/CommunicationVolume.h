// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The bytes that a rank sends per step. The stage `schedule` counts them once
// and writes them to the module, where dumps show them and the driver reads
// them for its summary.
#pragma once

#include "mlir/IR/BuiltinOps.h"

#include <optional>
#include <string>
#include <vector>

namespace fsdpc::analysis {

/// The ranks among which a collective moves bytes: all, those of a shard group,
/// or those that have the same place in each group. Its share of a buffer is
/// sent: (N-1)/N over all N ranks, (G-1)/G in a group of G, and across groups
/// 2(N-G)/(NG) on the mean of the ranks (ShardGroups, runtime/comm/groups.h).
/// Each is of values that every rank sends to each other rank, as they are few.
/// Owners are the ranks that orthogonalise matrices. The others send them their
/// parts, and get theirs back. On the mean a rank sends at most 1/N of the
/// matrices, or 1/G if each group gets them (GroupOwners). It sends less, since
/// an owner has a part itself.
enum class Level { Ranks, Group, Groups, Each, Owners, GroupOwners };

/// A sum of terms.
struct CommunicationVolume {
  struct Term {
    std::string what; ///< "all_gather", "reduce_scatter", …
    Level level;
    bool eachMicrobatch; ///< sent K times per step; false: once per step
    uint64_t bytes;
    std::string type; ///< of the elements sent: "bf16" or "f32"
    /// The elements in symbols, "P[zero3]". Empty if the program has only one
    /// strategy, as they then follow from `what`.
    std::string elements = {};
  };
  std::vector<Term> terms;
  uint64_t trainable = 0; ///< P, elements
  uint64_t frozen = 0;    ///< F, elements
  /// The elements of each strategy, as {"P[zero3]", 1000}, if there are
  /// several.
  std::vector<std::pair<std::string, uint64_t>> parts;

  /// "(N-1)/N · (K·2·P·bf16 + K·P·f32)": what the strategy sends where no
  /// parameters are tied, shared or frozen. One such product per level.
  std::string formula() const;
  /// Bytes that a rank sends per step at one level, on N ranks in groups of G,
  /// with K microbatches; the mean over the ranks, and a bound for owners.
  double bytes(Level level, int64_t ranks, int64_t groupRanks,
               int64_t microbatches) const;
  /// Returns the lines of the compile's summary.
  std::string describe() const;
};

/// Counts the collectives of @microbatch and @update, whole or split.
CommunicationVolume communicatedBytes(mlir::ModuleOp module);

/// Writes the volume to the module as `fsdp.communication`, and reads it back.
/// Reading returns nullopt if the attribute is missing or malformed.
void writeCommunication(mlir::ModuleOp module,
                        const CommunicationVolume &volume);
std::optional<CommunicationVolume> readCommunication(mlir::ModuleOp module);

} // namespace fsdpc::analysis
