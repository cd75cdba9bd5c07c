// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Texts of several parts, mostly messages (compare absl::StrCat). std::format
// is not in the oldest standard library that we build with.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

namespace fsdpc {

/// Returns the parts one after another: texts, characters, and numbers as
/// std::to_string writes them.
template <typename... Parts> std::string concat(const Parts &...parts) {
  std::string text;
  auto append = [&](const auto &part) {
    using Part = std::decay_t<decltype(part)>;
    if constexpr (std::is_same_v<Part, char>)
      text += part;
    else if constexpr (std::is_arithmetic_v<Part>)
      text += std::to_string(part);
    else
      text += std::string_view(part);
  };
  (append(parts), ...);
  return text;
}

} // namespace fsdpc
