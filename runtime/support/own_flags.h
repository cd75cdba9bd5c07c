// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The names of all flags of fsdpc and of its programs, so that each of the two
// commands knows a flag that belongs to the other.
#pragma once

#include <span>
#include <string_view>

namespace fsdpc {

/// Return the flags of fsdpc (compile_options.def) and of a program
/// (program_flags.def), without dashes in front. A flag that both commands have
/// is in both lists: a command asks only about flags that it does not have, so
/// the list in which one is found says whose it is.
std::span<const std::string_view> compilerFlags();
std::span<const std::string_view> programFlags();

/// Return those of them after which the next word is not their value: flags
/// without a value, and those whose value may be left out.
std::span<const std::string_view> compilerSwitches();
std::span<const std::string_view> programSwitches();

} // namespace fsdpc
