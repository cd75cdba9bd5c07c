// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Breaks long lines of help texts.
#pragma once

#include <string>
#include <string_view>

namespace fsdpc {

/// The columns of a terminal that texts of ours fit.
constexpr size_t textColumns = 100;

/// Returns a text whose lines have at most `columns` characters, broken at
/// spaces. What continues a row of a table goes under its last column, and what
/// continues another line under its beginning. A word that is longer than a
/// line is broken after '|' or ',', or stays whole.
std::string wrapLines(std::string_view text, size_t columns = textColumns);

} // namespace fsdpc
