// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The record that all stand-ins share: how many calls there were, which of them
// fails, and which rules of the vendor's documents were broken. A test sets the
// call that fails, runs, and reads the record.
#pragma once

#include <string>
#include <vector>

namespace fsdpc::vendor {

/// Forgets all calls and broken rules. From here on the call with number
/// `failing`, counted from 1 over all libraries and threads, fails; 0: none.
void restart(int failing);

/// Returns the calls since restart(), by name, in order.
std::vector<std::string> calls();
/// Returns what callers did against the vendor's documents, one line each:
/// "FUNCTION: RULE".
std::vector<std::string> brokenRules();

// ---- for the stand-ins ----

/// Counts a call. Returns true if it is the one that fails; the stand-in then
/// returns its library's error. Functions that destroy do so all the same.
bool fails(const char *function);
/// Returns true if a call has failed since restart().
bool hasFailed();
/// Returns `holds`, and notes the rule as broken if it is false.
bool require(bool holds, const char *function, const char *rule);

} // namespace fsdpc::vendor
