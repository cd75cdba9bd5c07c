// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads and writes text of JSON. All of the project's readers parse by this
// function, so that no text from outside can make one recurse without end or
// take many times the size of a file in memory.
//
// The templates are compiled for nlohmann::json and nlohmann::ordered_json in
// json_text.cpp: the library's parser and its writer take a compiler seconds.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

namespace fsdpc::runtime {

/// Returns what the text says. A list or an object may lie within `deepest`
/// others. Throws J::parse_error where it is not JSON, and a std::runtime_error
/// where it holds what no file of ours does: lists and objects nested deeper,
/// one key twice in an object (the parser would keep the last without a word),
/// millions of values, or more than 1000 keys in an object that keeps their
/// order. The text of either may repeat bytes of the file, so it is for
/// `printable`.
template <typename J = nlohmann::ordered_json>
J parseJson(std::string_view text, int deepest);

/// The same, but returns null instead of throwing.
nlohmann::ordered_json parseJsonOrNull(std::string_view text, int deepest);

/// Writes JSON, in one line or with `indent` spaces a level. Bytes that are not
/// UTF-8, as names of a model may hold, are replaced.
template <typename J> std::string dump(const J &json, int indent = -1);

/// Returns a name as JSON holds it, and hence every file of ours: what is not
/// UTF-8 is replaced.
std::string storedName(const std::string &name);

/// The same as `dump` for a terminal: what is not ASCII is escaped as JSON
/// does.
template <typename J> std::string dumpAscii(const J &json, int indent);

} // namespace fsdpc::runtime
