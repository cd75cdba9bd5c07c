// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The machine of a rank, as the cost model sees it: what classes of ops reach,
// what links carry, and what shares what. Machines are JSON files; the folder
// `machines` has the committed ones, each figure with its source.
#pragma once

#include "compiler/schedule/clock.h"
#include "runtime/abi/element_type.h"
#include "runtime/support/status.h"

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace fsdpc::schedule {

/// A rate in 10⁹ per second, and what programs reach of it.
struct Speed {
  double stated = 0;   ///< by a data sheet, or measured here
  double measured = 0; ///< by others on such machines; 0: not known

  Speed(double stated = 0, double measured = 0)
      : stated(stated), measured(measured) {}
  /// Returns the rate that predictions use.
  double reached() const { return measured > 0 ? measured : stated; }
  /// Returns the speed of `other`, measured in proportion.
  Speed of(double other) const {
    return {other, stated > 0 ? measured * other / stated : 0};
  }
};

/// The speed of ops of one class in one type, per core of the host or per GPU.
struct Rate {
  Speed gflops;      ///< flop/s; 0: memory alone bounds the class
  Speed memoryGBs;   ///< bytes/s, read and written
  double callUs = 0; ///< µs per call, of any size
};
using Rates = std::array<Rate, elementTypes>; ///< by ElementType

/// One level of the network. A rank receives at these rates.
struct Link {
  Speed gatherGBs;      ///< bytes/s in an all-gather
  Speed reduceGBs;      ///< bytes/s in a reduce-scatter
  double latencyUs = 0; ///< µs per collective, of any size
  /// Cores of a rank that a collective takes from its ops while it runs.
  double cores = 0;
};

/// The memory that --offload moves data to: a disk on the host, pinned host
/// memory beside a GPU. A rank reads and writes at these rates.
struct Store {
  Speed readGBs, writeGBs; ///< bytes/s
};

struct Machine {
  std::string name;
  /// One entry per class of op (see `opClasses`). "default" is there, and
  /// stands for the classes that are not.
  std::map<std::string, Rates, std::less<>> rates;
  Link node;  ///< between ranks of a node
  Link nodes; ///< between nodes
  Store offload;
  int ranksPerNode = 0; ///< also the ranks of a shard group; 0: all
  /// Gathers and reductions share one link: one waits for the other.
  bool sharedLink = false;
  /// By this share of their time ops take longer while a collective runs, for
  /// other reasons than cores: 0.1 is a tenth.
  double computeSlowdown = 0;
  /// Multiprocessors of a GPU, each of which computes one tile of a product at
  /// a time; 0: products take the time of their flops.
  int processors = 0;
  /// Collectives are NCCL's, and engines of their own copy what is offloaded.
  /// Otherwise the host's runtime and cores do both. It is the target's, and
  /// not in files.
  bool isGpu = false;
  double memoryGiB = 0; ///< of a rank; 0: not known
  int cores = 1;        ///< per rank (--plan-threads)
  int ranks = 8;        ///< N (--plan-ranks)

  /// Returns the rates of a class of op.
  const Rates &ratesOf(std::string_view opClass) const;
};

/// Returns the classes of ops that a machine may give rates for: "default", and
/// the names of ops without their dialect.
const std::vector<std::string_view> &opClasses();

/// Reads a machine. Every figure is required, except measured rates and
/// processors, and no other may be there. The error names the figure by its
/// path, with its range.
Result<Machine> machineFromJson(std::string_view text);

/// Returns the machine as JSON. `sources` has a source by the path of the
/// object that holds the figures ("rates.matmul.f32", "links.node.measured");
/// an object without one is "measured".
std::string toJson(const Machine &machine,
                   const std::map<std::string, std::string> &sources = {});

/// Returns the names of the committed machines.
std::vector<std::string> machineNames();

/// Returns the text of a committed machine, or "" if there is none of that
/// name.
std::string_view machineText(std::string_view name);

/// Returns the machine that a target is planned for if the user names none:
/// "host", or an architecture such as "sm_90". Where several products have one
/// architecture, the one made for training is meant. An unknown architecture
/// counts as sm_90.
Machine defaultMachine(std::string_view target);

} // namespace fsdpc::schedule
