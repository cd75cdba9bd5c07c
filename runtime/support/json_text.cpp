// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/support/json_text.h"

#include "runtime/support/concat.h"

namespace fsdpc::runtime {

namespace {

// A value takes 16 bytes and more in memory, a character of a text. The
// manifest of a checkpoint of a thousand ranks and ten thousand tensors has as
// many hashes.
constexpr size_t mostValues = 20'000'000;

} // namespace

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
