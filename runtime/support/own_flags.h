// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The names of all flags of fsdpc and of its programs, so that each of the two
// commands knows a flag that belongs to the other. Tests hold both lists
// against the tables from which the command lines are made.
#pragma once

#include <span>
#include <string_view>

namespace fsdpc {

// Names without dashes in front: those of the table of fsdpc's options
// (compiler/options/OptionTable.h), and those of a program
// (runtime/cli/flag_table.h).
std::span<const std::string_view> compilerFlags();
std::span<const std::string_view> programFlags();

} // namespace fsdpc
