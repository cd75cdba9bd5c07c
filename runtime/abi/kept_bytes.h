// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What links over TCP keep, which may have to be sent again over another
// connection (runtime/comm/tcp/tcp_link.h). The memory plan counts it as
// communication.
#pragma once

#include <cstddef>

namespace fsdpc {

/// The least that a link keeps of what it sent last, in bytes.
constexpr size_t leastKeptBytes = 4096;

} // namespace fsdpc
