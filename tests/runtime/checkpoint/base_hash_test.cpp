// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The names that count in the hash of a base. Whole hashes are checked by
// tests/programs/training/adapters.py.
#include "runtime/checkpoint/base_hash.h"

#include <gtest/gtest.h>

using namespace fsdpc;
using namespace fsdpc::runtime;

namespace {

std::string named(const char *name, std::vector<std::string> aliases) {
  Member member;
  member.name = name;
  member.aliases = std::move(aliases);
  return nameOfBase(member);
}

TEST(BaseHash, TiedParametersHaveOneName) {
  EXPECT_EQ(named("w", {}), "w");
  EXPECT_EQ(named("lm_head", {"wte"}), "lm_head");
  EXPECT_EQ(named("wte", {"lm_head"}), "lm_head");
  EXPECT_EQ(named("b", {"c", "a"}), "a");
}

} // namespace
