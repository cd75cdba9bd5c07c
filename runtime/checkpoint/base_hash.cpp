// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each word is hashed with its place in its parameter, and the sum of all
// hashes, modulo 2^64, does not depend on which rank has which elements. Nor
// does it depend on the name that a program chose for a tied parameter.
#include "runtime/checkpoint/base_hash.h"
#include "runtime/checkpoint/own_part.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace fsdpc::runtime {
namespace {

// splitmix64 of Steele, Lea and Flood (2014), whose every input bit changes
// every output bit.
uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// Hashes words of four bytes from the word `first` of a parameter on. The last
// one may be cut short.
uint64_t hashOfWords(uint64_t name, const char *bytes, int64_t first,
                     int64_t count) {
  uint64_t sum = 0;
  for (int64_t at = 0; at < count; at += 4) {
    uint32_t word = 0;
    std::memcpy(&word, bytes + at, size_t(std::min<int64_t>(4, count - at)));
    uint64_t place =
        mixed(name + uint64_t(first + at / 4) * 0x9E3779B97F4A7C15);
    sum += mixed(place ^ word);
  }
  return sum;
}

// Adds this rank's part of a frozen layout, 1 MiB at a time. All ranks have a
// part: only layouts that train have owners.
Status addLayout(const fsdpc_rank &rank, size_t index,
                 const std::function<bool(const Member &)> &isPart,
                 uint64_t &sum) {
  constexpr int64_t most = 1 << 18;
  const Layout &layout = rank.manifest.layouts[index];
  const LayoutBuffers &buffers = rank.layouts[index];
  OwnPart own = ownPart(rank, index, Saved::parameters);
  // Parts of layouts of bytes begin at whole words too.
  int64_t width = layout.ofBytes ? 1 : 4;
  std::vector<float> place(size_t(std::min(most, buffers.own)));
  for (int64_t begin = 0; begin < buffers.own; begin += most) {
    int64_t count = std::min(most, buffers.own - begin),
            from = buffers.ownOf(rank.job.rank) + begin;
    auto read = readPiece(rank, index, Saved::parameters, own, begin, count,
                          place.data());
    FSDPC_TRY(read);
    auto *values = static_cast<const char *>(*read);
    forEachMember(
        layout, from, from + count, [&](size_t number, int64_t a, int64_t b) {
          const Member &member = layout.members[number];
          if (!isPart(member))
            return;
          const std::string &name = nameOfBase(member);
          sum += hashOfWords(XXH64(name.data(), name.size(), 0),
                             values + (a - from) * width,
                             (a - member.offset) * width / 4, (b - a) * width);
        });
  }
  return {};
}

} // namespace

const std::string &nameOfBase(const Member &member) {
  const std::string *first = &member.name;
  for (const std::string &alias : member.aliases)
    first = alias < *first ? &alias : first;
  return *first;
}

Result<std::string>
hashOfBase(fsdpc_rank &rank,
           const std::function<bool(const Member &)> &isPart) {
  uint64_t sum = 0;
  Status outcome;
  for (size_t i = 0; i < rank.manifest.layouts.size() && outcome; ++i)
    if (!rank.manifest.layouts[i].trainable)
      outcome = addLayout(rank, i, isPart, sum);
  // The others wait for this rank's part even if it has none.
  std::vector<uint64_t> all(size_t(rank.job.size));
  rank.job.channel[controlChannel]->allGather(&sum, all.data(), sizeof sum);
  FSDPC_TRY(outcome);
  sum = 0;
  for (uint64_t part : all)
    sum += part;
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx",
                static_cast<unsigned long long>(sum));
  return std::string(digits);
}

} // namespace fsdpc::runtime
