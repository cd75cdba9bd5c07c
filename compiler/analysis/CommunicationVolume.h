// The bytes that a rank sends per step. The stage `schedule` counts them once
// and writes them to the module, where dumps show them and the driver reads
// them for its summary.
#pragma once

#include "mlir/IR/BuiltinOps.h"

#include <optional>
#include <string>
#include <vector>

namespace fsdpc::analysis {

/// A sum of terms. A rank sends (N-1)/N of the sum, where N is the number of
/// ranks.
struct CommunicationVolume {
  struct Term {
    std::string what;    // "all_gather", "reduce_scatter", …
    bool eachMicrobatch; // sent K times per step; false: once per step
    uint64_t bytes;
    std::string type; // of the elements sent: "bf16" or "f32"
    /// The elements in symbols, "P[zero3]". Empty if the program has only one
    /// strategy, as they then follow from `what`.
    std::string elements = {};
  };
  std::vector<Term> terms;
  uint64_t trainable = 0; // P, elements
  uint64_t frozen = 0;    // F, elements
  /// The elements of each strategy, as {"P[zero3]", 1000}, if there are
  /// several.
  std::vector<std::pair<std::string, uint64_t>> parts;

  /// "(N-1)/N · (K·2·P·bf16 + K·P·f32)": what the strategy sends where no
  /// parameters are tied, shared or frozen.
  std::string formula() const;
  /// Bytes that the program sends per step on N ranks with K microbatches.
  double bytes(int64_t ranks, int64_t microbatches) const;
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
