// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/support/diagnostics.h"
#include "runtime/support/watched_folder.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <thread>

using namespace fsdpc;
using namespace fsdpc::runtime;

namespace {

// Ends as a `main` does that has this body.
template <typename Body> void endBy(Body body) {
  std::exit(guarded([&] {
    body();
    return 0;
  }));
}

const auto failed = testing::ExitedWithCode(int(ExitCode::runFailed));

TEST(GuardedDeathTest, ExceptionsOfTheBody) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(endBy([] { throw std::runtime_error("b\033[1md"); }), failed,
              "^error: b\\\\x1b\\[1md\n$");
  EXPECT_EXIT(endBy([] { throw std::bad_alloc(); }), failed,
              "^error: out of memory\n$");
}

// The standard library would end the process by a signal.
TEST(GuardedDeathTest, ExceptionsOfThreads) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  auto inThread = [](auto thrown) {
    endBy([&] { std::thread([&] { throw thrown; }).join(); });
  };
  EXPECT_EXIT(inThread(std::runtime_error("bad\nline")), failed,
              "^error: bad\\\\x0aline\n$");
  EXPECT_EXIT(inThread(std::bad_alloc()), failed, "^error: out of memory\n$");
  EXPECT_EXIT(inThread(7), failed, "^error: an exception of a library\n$");
  EXPECT_EXIT(endBy([] { std::thread([] {}); }), failed,
              "^error: a thread was left running\n$");
}

TEST(GuardedDeathTest, TemporaryFoldersGo) {
  testing::GTEST_FLAG(death_test_style) = "fast";
  char parent[] = "/tmp/fsdpc-test-XXXXXX";
  ASSERT_NE(mkdtemp(parent), nullptr);
  auto end = [&] {
    WatchedFolder folder;
    if (folder.make(std::string(parent) + "/folder-"))
      endWithoutMemory("gone");
  };
  EXPECT_EXIT(end(), failed, "^error: gone\n$");
  EXPECT_TRUE(std::filesystem::is_empty(parent));
  std::filesystem::remove_all(parent);
}

} // namespace
