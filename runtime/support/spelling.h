// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Texts for messages: lists, sizes, times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fsdpc::runtime {

/// Returns foreign text for a line on a terminal. Bytes that are not UTF-8, and
/// characters that end lines, command the terminal or turn directions, become
/// \xNN, byte by byte. Words over 4096 bytes and long lines lose their middle.
std::string printable(std::string_view text);
/// The same for text of several lines: '\n' and '\t' stay.
std::string printableLines(std::string_view text);
/// Returns the number of bytes of the UTF-8 character that the text begins
/// with, and 0 if it begins with none.
size_t utf8Length(std::string_view text);
bool isUtf8(std::string_view text);
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
