// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The folder that `fsdpc ckpt` fills under a temporary name: what is left of
// it, and of what links in it lead to.
#include "tests/runtime/data/runtime_files.h"
#include "tools/ckpt/new_folder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

using namespace fsdpc::ckpt;

namespace {

class NewFolders : public testing::Test {
protected:
  NewFolders() {
    std::filesystem::create_directory(folder / "user");
    folder.write("user/thesis", "mine");
  }
  // The names beside the user's folder.
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (auto &entry : std::filesystem::directory_iterator(folder / ""))
      if (entry.path().filename() != "user")
        found.push_back(entry.path().filename().string());
    return found;
  }
  TemporaryFolder folder;
};

TEST_F(NewFolders, AppearsWhole) {
  for (std::string path : {folder / "out", folder / "empty/"}) {
    std::filesystem::create_directory(folder / "empty");
    NewFolder made;
    ASSERT_TRUE(made.open(path));
    std::filesystem::create_directory(made.temporary() + "/sub");
    EXPECT_FALSE(std::filesystem::exists(path + "/sub"));
    ASSERT_TRUE(made.commit());
    EXPECT_TRUE(std::filesystem::exists(path + "/sub"));
  }
}

// Links in the folder are removed themselves, at any depth.
TEST_F(NewFolders, RemovalFollowsNoLink) {
  {
    NewFolder made;
    ASSERT_TRUE(made.open(folder / "out"));
    std::filesystem::create_directories(made.temporary() + "/sub/sub");
    for (const char *at : {"/link", "/sub/link", "/sub/sub/link"})
      std::filesystem::create_symlink(folder / "user", made.temporary() + at);
    std::filesystem::create_hard_link(folder / "user/thesis",
                                      made.temporary() + "/sub/thesis");
  }
  EXPECT_TRUE(names().empty());
  EXPECT_EQ(folder.read("user/thesis"), "mine");
}

// A link that has taken the place of the folder, or of the one above it.
TEST_F(NewFolders, RemovalStaysInItsFolder) {
  {
    NewFolder made;
    ASSERT_TRUE(made.open(folder / "out"));
    std::filesystem::rename(made.temporary(), folder / "moved");
    std::filesystem::create_symlink("user", made.temporary());
  }
  EXPECT_EQ(names(), std::vector<std::string>{"moved"});
  std::filesystem::create_directories(folder / "above");
  std::string name;
  {
    NewFolder made;
    ASSERT_TRUE(made.open(folder / "above/out"));
    name = std::filesystem::path(made.temporary()).filename();
    std::filesystem::create_directory(folder / "user/" + name);
    folder.write("user/" + name + "/thesis", "mine");
    std::filesystem::rename(folder / "above", folder / "elsewhere");
    std::filesystem::create_symlink("user", folder / "above");
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder / "elsewhere"));
  EXPECT_EQ(folder.read("user/" + name + "/thesis"), "mine");
}

// What appears under the name meanwhile stays.
TEST_F(NewFolders, ReplacesNoFile) {
  NewFolder made;
  ASSERT_TRUE(made.open(folder / "out"));
  std::filesystem::create_symlink("user", folder / "out");
  EXPECT_FALSE(made.commit());
  EXPECT_FALSE(NewFolder().open(folder / "out"));
  EXPECT_EQ(folder.read("out/thesis"), "mine");
}

} // namespace
