// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads text of JSON that comes from outside. All of the project's readers
// parse by this function, so that none can be made to recurse without end or to
// take many times the size of a file in memory.
#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace fsdpc::runtime {

/// Looks at a text while it is parsed, and throws a std::runtime_error at what
/// no file of ours holds: lists and objects nested deeper than `deepest`, one
/// key twice in an object (the parser would keep the last without a word),
/// millions of values, or more than `mostKeys` keys in an object.
class JsonRules {
public:
  explicit JsonRules(int deepest, size_t mostKeys)
      : deepest(deepest), mostKeys(mostKeys) {}

  template <typename J>
  bool operator()(int depth, typename J::parse_event_t event, J &parsed) {
    using Event = typename J::parse_event_t;
    if (event == Event::object_start || event == Event::array_start)
      begin(depth, event == Event::object_start);
    else if (event == Event::key)
      key(depth, parsed.template get_ref<const std::string &>());
    else if (event == Event::value)
      count();
    return true;
  }

private:
  void begin(int depth, bool isObject);
  void key(int depth, const std::string &name);
  void count();

  int deepest;
  size_t mostKeys;
  size_t values = 0;
  std::vector<std::set<std::string>> keys; ///< of the open object at a depth
};

/// An object that keeps the order of its keys compares each new one with all
/// before it.
template <typename J>
constexpr size_t mostKeysOf =
    std::is_same_v<J, nlohmann::ordered_json> ? 1000 : SIZE_MAX;

/// Returns what the text says. A list or an object may lie within `deepest`
/// others. Throws J::parse_error where it is not JSON, and a std::runtime_error
/// where it breaks a rule of JsonRules. The text of either may repeat bytes of
/// the file, so it is for `printable`.
template <typename J = nlohmann::ordered_json>
J parseJson(std::string_view text, int deepest) {
  JsonRules rules(deepest, mostKeysOf<J>);
  return J::parse(text.begin(), text.end(),
                  [&rules](int depth, typename J::parse_event_t event,
                           J &parsed) { return rules(depth, event, parsed); });
}

/// The same, but returns null instead of throwing.
nlohmann::ordered_json parseJsonOrNull(std::string_view text, int deepest);

/// Writes JSON, in one line or with `indent` spaces a level. Bytes that are not
/// UTF-8, as names of a model may hold, are replaced.
template <typename J> std::string dump(const J &json, int indent = -1) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false,
                   J::error_handler_t::replace);
}

/// Returns a name as JSON holds it, and hence every file of ours: what is not
/// UTF-8 is replaced.
std::string storedName(const std::string &name);

/// The same as `dump` for a terminal: what is not ASCII is escaped as JSON
/// does.
template <typename J> std::string dumpAscii(const J &json, int indent) {
  return json.dump(indent, ' ', /*ensure_ascii=*/true,
                   J::error_handler_t::replace);
}

} // namespace fsdpc::runtime
