// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Files of checkpoints have the bytes and checksums of their tensors, whatever
// the sizes and on file systems with and without direct writing.
#include "runtime/checkpoint/checkpoint_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <unistd.h>

using namespace fsdpc;
using namespace fsdpc::runtime;

namespace {

std::string contents(const std::filesystem::path &path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Neighbouring bytes differ, and so do neighbouring blocks.
std::string pattern(size_t bytes, size_t seed) {
  std::string data(bytes, 0);
  for (size_t i = 0; i < bytes; ++i)
    data[i] = char((i + seed) * 2654435761u >> 13);
  return data;
}

// /dev/shm lies in memory: direct writing is refused there by older kernels.
class CheckpointFileIn : public testing::TestWithParam<const char *> {
protected:
  void SetUp() override {
    std::string name = std::string(GetParam()) + "/fsdpc-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder); }
  std::filesystem::path folder;
};
INSTANTIATE_TEST_SUITE_P(Folders, CheckpointFileIn,
                         testing::Values("/tmp", "/dev/shm"));

// Around the size of a block, 1 MiB, and of a page.
TEST_P(CheckpointFileIn, HoldsWhatWasWritten) {
  std::vector<int64_t> sizes = {
      0, 1, 4095, 1 << 20, (1 << 20) - 1, 3 << 20, 4097, (2 << 20) + 5};
  std::vector<StoredTensor> tensors;
  for (int64_t size : sizes)
    tensors.push_back({"t" + std::to_string(tensors.size()), "i8", {size}});
  CheckpointFile file;
  StoredFile sums;
  ASSERT_TRUE(file.open(folder, 0, tensors, sums));
  std::string all;
  for (int64_t size : sizes) {
    std::string data = pattern(size_t(size), all.size());
    // In two pieces, of which neither is aligned.
    size_t first = data.size() / 3;
    ASSERT_TRUE(file.write(data.data(), first));
    ASSERT_TRUE(file.write(data.data() + first, data.size() - first));
    file.endTensor();
    Checksum sum;
    sum.add(data.data(), data.size());
    EXPECT_EQ(sums.tensors.back(), sum.value());
    all += data;
  }
  ASSERT_TRUE(file.commit());
  std::string found = contents(folder / rankFileName(0));
  ASSERT_GT(found.size(), all.size());
  size_t header = found.size() - all.size();
  EXPECT_EQ(found.compare(header, all.size(), all), 0);
  Checksum sum;
  sum.add(found.data(), header);
  EXPECT_EQ(sums.header, sum.value());
}

// Writes that a disk cannot do directly go through its cache.
TEST_P(CheckpointFileIn, UnalignedWritesSucceedToo) {
  NewFile file;
  std::string data = pattern(10001, 0);
  ASSERT_TRUE(file.open(folder / "f"));
  file.setDirect(true);
  ASSERT_TRUE(file.write(0, data.data() + 1, 10000));
  ASSERT_TRUE(file.commit());
  EXPECT_EQ(contents(folder / "f"), data.substr(1));
}

} // namespace
