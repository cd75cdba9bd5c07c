// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Texts for messages: lists, sizes, times.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fsdpc::runtime {

/// Returns text from a file for a message: control characters, which would
/// break the line or reach the terminal, are written as \xNN.
std::string printable(const std::string &text);
/// Returns the names in quotes, separated by commas.
std::string listed(const std::vector<std::string> &names);
/// Formats a shape: "[4, 256]".
std::string shapeText(const std::vector<int64_t> &shape);
/// Formats bytes: "1.5 GiB".
std::string bytesText(int64_t bytes);
/// Formats a number in three digits: "950", "12.3k", "4.56M".
std::string countText(double number);
/// Formats a duration: "1h02m", "3m05s", "42s".
std::string durationText(double seconds);

} // namespace fsdpc::runtime
