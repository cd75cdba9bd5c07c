// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where caches lie, which folders are refused, and what is removed first
// (runtime/support/cache_folder.h).
#include "runtime/support/cache_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

using namespace fsdpc;
using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

namespace {

class CacheFolder : public testing::Test {
protected:
  void SetUp() override {
    char name[] = "/tmp/cache-XXXXXX";
    folder = mkdtemp(name);
  }
  void TearDown() override { fs::remove_all(folder); }

  // A file whose last use is so many hours ago.
  void write(const std::string &name, size_t bytes, int hours) {
    std::ofstream(folder / name) << std::string(bytes, 'x');
    fs::last_write_time(folder / name, fs::file_time_type::clock::now() -
                                           std::chrono::hours(hours));
  }
  std::set<std::string> left() {
    std::set<std::string> names;
    for (const auto &each : fs::directory_iterator(folder))
      names.insert(each.path().filename());
    return names;
  }

  fs::path folder;
};

TEST_F(CacheFolder, liesWhereItIsAskedForOrInTheUsersCache) {
  setenv("XDG_CACHE_HOME", (folder / "xdg").c_str(), 1);
  setenv("HOME", (folder / "home").c_str(), 1);
  EXPECT_EQ(*cacheFolder(folder / "chosen", "kernels"),
            folder / "chosen/kernels");
  EXPECT_EQ(*cacheFolder("", "kernels"), folder / "xdg/fsdpc/kernels");
  // A relative folder would be another one wherever the user is.
  setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(*cacheFolder("", "kernels"), folder / "home/.cache/fsdpc/kernels");
  EXPECT_EQ(fs::status(folder / "home/.cache/fsdpc").permissions(),
            fs::perms::owner_all);
  unsetenv("HOME");
  EXPECT_THAT(cacheFolder("", "kernels").error().message,
              HasSubstr("names a folder"));
}

TEST_F(CacheFolder, isRefusedIfOthersCanWriteToIt) {
  fs::path shared = *cacheFolder(folder, "kernels");
  fs::permissions(shared, fs::perms::all);
  EXPECT_THAT(cacheFolder(folder, "kernels").error().message,
              HasSubstr("others can write to"));
  fs::permissions(shared, fs::perms::owner_all);
  EXPECT_TRUE(cacheFolder(folder, "kernels"));
  fs::permissions(folder, fs::perms::all);
  EXPECT_THAT(cacheFolder(folder, "kernels").error().message,
              HasSubstr("others can replace"));
  // As in /tmp, others can add but not rename.
  fs::permissions(folder, fs::perms::all | fs::perms::sticky_bit);
  EXPECT_TRUE(cacheFolder(folder, "kernels"));
  EXPECT_THAT(cacheFolder("/proc/none", "kernels").error().message,
              HasSubstr("cannot be written"));
}

TEST_F(CacheFolder, losesWhatIsUnusedAndThenTheOldest) {
  write("ancient", 1, 50);
  write("old", 60, 3);
  write("new", 60, 2);
  write("newest", 30, 1);
  fs::create_directory(folder / "not-ours");
  trimCache(folder, {.unused = std::chrono::hours(40)});
  EXPECT_THAT(left(), ElementsAre("new", "newest", "not-ours", "old"));
  // One byte too much removes the oldest. What has been used is not.
  noteUse(folder / "old");
  trimCache(folder, {.bytes = 149});
  EXPECT_THAT(left(), ElementsAre("newest", "not-ours", "old"));
  trimCache(folder, {.bytes = 90});
  EXPECT_THAT(left(), ElementsAre("newest", "not-ours", "old"));
}

} // namespace
