// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Programs are looked up in absolute folders only, and what is started gets an
// environment that names no others (runtime/support/programs.h).
#include "runtime/support/programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <unistd.h>

using namespace fsdpc;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
namespace fs = std::filesystem;

namespace {

void writeScript(const fs::path &path, const std::string &body) {
  std::ofstream(path) << "#!/bin/sh\n" << body << "\n";
  fs::permissions(path, fs::perms::owner_all);
}

// A working folder with a program 'tool' in it, in ./bin and in ./absolute;
// the last one is the only one that PATH names absolutely.
class Programs : public testing::Test {
protected:
  void SetUp() override {
    char name[] = "/tmp/programs-XXXXXX";
    folder = mkdtemp(name);
    before = fs::current_path();
    fs::current_path(folder);
    for (const char *place : {".", "bin", "absolute"}) {
      fs::create_directories(place);
      writeScript(fs::path(place) / "tool",
                  std::string("echo ") + place + " \"$@\" >ran; exit 7");
    }
    path = getenv("PATH");
    setenv("PATH", (":.:bin:" + folder + "/absolute:").c_str(), 1);
  }
  void TearDown() override {
    setenv("PATH", path.c_str(), 1);
    fs::current_path(before);
    fs::remove_all(folder);
  }

  std::string ran() {
    std::string text;
    std::getline(std::ifstream("ran"), text);
    return text;
  }

  std::string folder, path;
  fs::path before;
};

TEST_F(Programs, EmptyAndRelativeFoldersOfThePathAreSkipped) {
  Result<std::string> found = findProgram("tool");
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(*found, folder + "/absolute/tool");
  fs::remove("absolute/tool");
  found = findProgram("tool");
  ASSERT_FALSE(found) << *found;
  EXPECT_EQ(
      found.error().message,
      "cannot run 'tool': no such program in the absolute folders of PATH");
}

// Without any folder, execvp and shells would search the working folder.
TEST_F(Programs, APathWithoutAbsoluteFoldersIsTheDefault) {
  for (const char *value : {"", ".", ":bin"}) {
    setenv("PATH", value, 1);
    EXPECT_FALSE(findProgram("tool")) << value;
    EXPECT_TRUE(findProgram("sh")) << value;
    EXPECT_THAT(environmentForPrograms(), Contains("PATH=/usr/bin:/bin"));
  }
  unsetenv("PATH");
  EXPECT_TRUE(findProgram("sh"));
}

TEST_F(Programs, APathWithASlashIsTheUsersChoice) {
  Result<std::string> found = findProgram("bin/tool");
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(*found, "bin/tool");
  for (const char *name : {"./nothing", "./bin"}) {
    found = findProgram(name);
    ASSERT_FALSE(found) << *found;
    EXPECT_EQ(found.error().message, std::string("cannot run '") + name +
                                         "': it is not an executable file");
  }
}

TEST_F(Programs, ListsOfFoldersKeepTheirAbsoluteOnes) {
  const char *lists[] = {"PYTHONPATH", "COMPILER_PATH", "LIBRARY_PATH",
                         "LD_RUN_PATH"};
  for (const char *name : lists)
    setenv(name, ":/a:.:b::/c:", 1);
  setenv("PROGRAMS_TEST", ":as:it:is:", 1);
  std::vector<std::string> environment = environmentForPrograms();
  EXPECT_THAT(environment, Contains("PATH=" + folder + "/absolute"));
  EXPECT_THAT(environment, Contains("PROGRAMS_TEST=:as:it:is:"));
  for (const char *name : lists) {
    EXPECT_THAT(environment, Contains(std::string(name) + "=/a:/c"));
    setenv(name, ".", 1);
  }
  environment = environmentForPrograms();
  for (const char *name : lists) {
    EXPECT_THAT(environment, Not(Contains(StartsWith(name))));
    unsetenv(name);
  }
  unsetenv("PROGRAMS_TEST");
}

TEST_F(Programs, TheExitCodeIsReturned) {
  Result<int> code = runAndWait({"tool", "a b", "'c'"});
  ASSERT_TRUE(code) << code.error().message;
  EXPECT_EQ(*code, 7);
  EXPECT_EQ(ran(), "absolute a b 'c'");
  writeScript("absolute/tool", "kill -9 $$");
  code = runAndWait({"tool"});
  ASSERT_TRUE(code) << code.error().message;
  EXPECT_EQ(*code, 128 + 9);
}

TEST_F(Programs, ADescriptorBecomesTheInput) {
  std::ofstream("text") << "of the file\n";
  writeScript("absolute/tool", "read line; echo \"$line\" >ran");
  int file = open("text", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(file, 0);
  Result<int> code = runAndWait({"tool"}, file);
  close(file);
  ASSERT_TRUE(code) << code.error().message;
  EXPECT_EQ(*code, 0);
  EXPECT_EQ(ran(), "of the file");
}

TEST_F(Programs, AProgramThatIsMissingIsNamed) {
  Result<int> code = runAndWait({"nothing"});
  ASSERT_FALSE(code);
  EXPECT_THAT(code.error().message, HasSubstr("'nothing'"));
  EXPECT_THAT(replaceProcess({"nothing"}).message, HasSubstr("'nothing'"));
}

} // namespace
