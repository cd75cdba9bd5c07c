// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Copies that write past the caches. A usual store first reads the line that it
// writes from memory and evicts another one from the cache. For a large result
// both are in vain: it has left the cache before anybody reads it.
#pragma once

#include <cstddef>
#include <cstring>

namespace fsdpc::runtime {

/// Results of at least this many bytes are written past the caches: about a
/// core's L2, which smaller ones may be read from.
constexpr size_t streamedBytes = size_t(1) << 20;

/// Stores cache lines past the caches. `to` is aligned to them. orderStores()
/// must follow the last one.
template <typename Line> inline void streamLine(const Line &line, void *to) {
  static_assert(sizeof(Line) % 64 == 0);
#if __has_builtin(__builtin_nontemporal_store)
  __builtin_nontemporal_store(line, static_cast<Line *>(to));
#else // GCC: a usual store
  *static_cast<Line *>(to) = line;
#endif
}

/// Orders streaming stores, which later ones may overtake, before all that this
/// thread writes next.
inline void orderStores() {
#if defined(__x86_64__)
  __builtin_ia32_sfence();
#endif
}

/// Copies `bytes` past the caches, from memory that does not overlap `to`. When
/// it returns, the bytes are ordered before all that this thread writes next.
void streamBytes(const void *from, size_t bytes, void *to);

/// Copies part of a result of `resultBytes` in all, past the caches if that is
/// large. Does nothing if the part lies there already.
inline void copyResult(const void *from, size_t bytes, void *to,
                       size_t resultBytes) {
  if (from == to)
    return;
  if (resultBytes >= streamedBytes)
    streamBytes(from, bytes, to);
  else
    std::memcpy(to, from, bytes);
}

} // namespace fsdpc::runtime
