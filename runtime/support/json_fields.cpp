// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/support/json_fields.h"

#include "runtime/support/concat.h"

#include <stdexcept>

namespace fsdpc::runtime {

const Json &fieldIn(const Json &json, const char *key) {
  auto found = json.is_object() ? json.find(key) : json.end();
  if (found == json.end())
    throw std::runtime_error(std::string("it has no '") + key + "'");
  return *found;
}

void refuse(const char *key, const Json &value, const std::string &wanted) {
  std::string text = dump(value);
  if (text.size() > 60)
    text = text.substr(0, 60) + "…";
  throw std::runtime_error(std::string("'") + key + "' is " + text + ", not " +
                           wanted);
}

std::string asText(const Json &value, const char *key) {
  if (!value.is_string())
    refuse(key, value, "a text");
  return value.get<std::string>();
}

std::string textIn(const Json &json, const char *key) {
  return asText(fieldIn(json, key), key);
}

const Json &listIn(const Json &json, const char *key) {
  const Json &value = fieldIn(json, key);
  if (!value.is_array())
    refuse(key, value, "a list");
  return value;
}

bool truthIn(const Json &json, const char *key, bool otherwise) {
  if (!json.contains(key))
    return otherwise;
  if (!json.at(key).is_boolean())
    refuse(key, json.at(key), "true or false");
  return json.at(key).get<bool>();
}

// A negative number is not "unsigned" to the parser, so it is refused too.
int64_t numberIn(const Json &json, const char *key, int64_t most) {
  const Json &value = fieldIn(json, key);
  if (!value.is_number_unsigned() || value.get<uint64_t>() > uint64_t(most))
    refuse(key, value, concat("a whole number from 0 to ", most));
  return value.get<int64_t>();
}

} // namespace fsdpc::runtime
