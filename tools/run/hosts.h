// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The hosts of a job: their list, which of them answer, and how many ranks each
// of them gets.
#pragma once

#include "runtime/support/status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fsdpc::run {

struct Host {
  std::string name;  ///< as ssh takes it: may have "user@" in front
  int64_t slots = 0; ///< ranks that it can take; 0: not given

  /// Returns the name without a user, as the other hosts know it.
  std::string address() const;
};

/// Parses "a,b:4,[fd00::1]:2".
Result<std::vector<Host>> parseHosts(const std::string &text);

/// Returns true if the name is one of this machine's: its host name, or a name
/// or address of one of its interfaces.
bool isThisHost(const Host &host);

/// Returns the hosts on which `agent HOST true` succeeds within some seconds,
/// in their order. All are asked at once; this host is not asked.
std::vector<Host> answering(const std::vector<Host> &hosts,
                            const std::string &agent);

/// Says how many ranks a job may have.
struct RankRule {
  int64_t ranks = 1;        ///< wanted
  int64_t least = 1;        ///< accepted
  int64_t microbatches = 1; ///< of a step, which the ranks share evenly
  int64_t group = 1;        ///< divides the number of ranks
};

/// Returns the largest number of ranks that `slots` and the rule allow, or
/// nullopt.
std::optional<int64_t> ranksFor(int64_t slots, const RankRule &rule);

/// Returns the hosts with their ranks as slots, filled in order; those without
/// a rank are left out. The slots of all hosts are at least `ranks`.
std::vector<Host> place(const std::vector<Host> &hosts, int64_t ranks);

/// Returns the sum of all slots.
int64_t slotsOf(const std::vector<Host> &hosts);

/// Returns "a:2,b:2".
std::string listOf(const std::vector<Host> &hosts);

} // namespace fsdpc::run
