// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads the fields of JSON that comes from outside. Each function checks the
// type of what it returns, and throws a std::runtime_error whose text says what
// is wrong; the caller makes it an error of its file.
#pragma once

#include "runtime/support/json_text.h"

#include <cstdint>
#include <string>

namespace fsdpc::runtime {

using Json = nlohmann::ordered_json;

/// Returns the field of an object.
const Json &fieldIn(const Json &json, const char *key);

/// Throws "'KEY' is VALUE, not WANTED". Long values are cut, since a damaged
/// file may hold anything.
[[noreturn]] void refuse(const char *key, const Json &value,
                         const std::string &wanted);

/// Returns the value, which was found at `key`.
std::string asText(const Json &value, const char *key);

std::string textIn(const Json &json, const char *key);

/// Returns an array.
const Json &listIn(const Json &json, const char *key);

/// Returns `otherwise` if the field is missing.
bool truthIn(const Json &json, const char *key, bool otherwise);

/// Returns a whole number from 0 to `most`.
int64_t numberIn(const Json &json, const char *key, int64_t most);

} // namespace fsdpc::runtime
