// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A text from outside is checked while nlohmann's parser reads it, by the
// parser's callback: what breaks a rule never becomes a tree in memory. The
// parser and the writer are instantiated here alone, for both types of objects.
#include "runtime/support/json_text.h"

#include "runtime/support/concat.h"

#include <cstddef>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <type_traits>
#include <vector>

namespace fsdpc::runtime {

namespace {

// A value takes 16 bytes and more in memory, a character of a text. The
// manifest of a checkpoint of a thousand ranks and ten thousand tensors has as
// many hashes.
constexpr size_t mostValues = 20'000'000;

// An object that keeps the order of its keys compares each new one with all
// before it.
template <typename J>
constexpr size_t mostKeysOf =
    std::is_same_v<J, nlohmann::ordered_json> ? 1000 : SIZE_MAX;

// Looks at a text while it is parsed, and throws at what no file of ours holds.
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
  std::vector<std::set<std::string>> keys; // of the open object at a depth
};

void JsonRules::count() {
  if (++values > mostValues)
    throw std::runtime_error(
        concat("it holds more than ", mostValues, " values"));
}

// The event of a start has the depth of what lies around it, that of a key has
// one more.
void JsonRules::begin(int depth, bool isObject) {
  count();
  if (depth > deepest)
    throw std::runtime_error("it is nested too deeply");
  if (!isObject)
    return;
  if (keys.size() <= size_t(depth))
    keys.resize(size_t(depth) + 1);
  keys[size_t(depth)].clear();
}

void JsonRules::key(int depth, const std::string &name) {
  std::set<std::string> &known = keys[size_t(depth) - 1];
  if (!known.insert(name).second)
    throw std::runtime_error("'" + name + "' stands in it twice");
  if (known.size() > mostKeys)
    throw std::runtime_error(
        concat("an object in it has more than ", mostKeys, " keys"));
}

} // namespace

template <typename J> J parseJson(std::string_view text, int deepest) {
  JsonRules rules(deepest, mostKeysOf<J>);
  return J::parse(text.begin(), text.end(),
                  [&rules](int depth, typename J::parse_event_t event,
                           J &parsed) { return rules(depth, event, parsed); });
}

template <typename J> std::string dump(const J &json, int indent) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false,
                   J::error_handler_t::replace);
}

template <typename J> std::string dumpAscii(const J &json, int indent) {
  return json.dump(indent, ' ', /*ensure_ascii=*/true,
                   J::error_handler_t::replace);
}

template nlohmann::json parseJson(std::string_view, int);
template nlohmann::ordered_json parseJson(std::string_view, int);
template std::string dump(const nlohmann::json &, int);
template std::string dump(const nlohmann::ordered_json &, int);
template std::string dumpAscii(const nlohmann::json &, int);
template std::string dumpAscii(const nlohmann::ordered_json &, int);

// Through the serialiser itself, so that both directions replace the same
// bytes.
std::string storedName(const std::string &name) {
  return parseJson(dump(nlohmann::ordered_json(name)), 0).get<std::string>();
}

nlohmann::ordered_json parseJsonOrNull(std::string_view text, int deepest) {
  try {
    return parseJson(text, deepest);
  } catch (const std::exception &) {
    return {};
  }
}

} // namespace fsdpc::runtime
