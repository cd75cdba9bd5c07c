// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// .npz files: arrays are read in place or inflated, and a damaged archive is
// refused with a reason. The archives are built here byte by byte, so that each
// test can damage one; tests/programs reads those of NumPy.
#include "runtime/data/sample_file.h"
#include "tests/runtime/data/runtime_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <string>
#include <utility>
#include <vector>

using namespace fsdpc;
using namespace fsdpc::runtime;
using testing::HasSubstr;

namespace {

std::string le(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i)
    text += char(value >> (8 * i));
  return text;
}

std::string deflated(const std::string &bytes) {
  std::string out(bytes.size() + 100, '\0');
  z_stream stream = {};
  deflateInit2(&stream, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef *>(const_cast<char *>(bytes.data()));
  stream.avail_in = uInt(bytes.size());
  stream.next_out = reinterpret_cast<Bytef *>(out.data());
  stream.avail_out = uInt(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

// An archive as NumPy writes it; with `wide`, all sizes and places are in the
// fields of 64 bits.
std::string
archive(const std::vector<std::pair<std::string, std::string>> &files,
        bool packs, bool wide = false) {
  std::string bytes, directory;
  for (const auto &[name, content] : files) {
    std::string data = packs ? deflated(content) : content;
    uint64_t begin = bytes.size();
    std::string method = le(packs ? 8 : 0, 2),
                crc =
                    le(crc32(0, reinterpret_cast<const Bytef *>(content.data()),
                             uInt(content.size())),
                       4);
    bytes += le(0x04034b50, 4) + le(45, 2) + le(0, 2) + method + le(0, 4) +
             crc + le(0xffffffff, 4) + le(0xffffffff, 4) + le(name.size(), 2) +
             le(20, 2) + name + le(1, 2) + le(16, 2) + le(content.size(), 8) +
             le(data.size(), 8) + data;
    std::string extra = le(1, 2) + le(24, 2) + le(content.size(), 8) +
                        le(data.size(), 8) + le(begin, 8);
    auto field = [&](uint64_t value) { return le(wide ? ~0ull : value, 4); };
    directory += le(0x02014b50, 4) + le(45, 2) + le(45, 2) + le(0, 2) + method +
                 le(0, 4) + crc + field(data.size()) + field(content.size()) +
                 le(name.size(), 2) + le(wide ? extra.size() : 0, 2) +
                 le(0, 2) + le(0, 8) + field(begin) + name +
                 (wide ? extra : "");
  }
  uint64_t begin = bytes.size();
  bytes += directory;
  if (wide) {
    uint64_t record = bytes.size();
    bytes += le(0x06064b50, 4) + le(44, 8) + le(45, 2) + le(45, 2) + le(0, 8) +
             le(files.size(), 8) + le(files.size(), 8) +
             le(directory.size(), 8) + le(begin, 8);
    bytes += le(0x07064b50, 4) + le(0, 4) + le(record, 8) + le(1, 4);
  }
  return bytes + le(0x06054b50, 4) + le(0, 4) + le(files.size(), 2) +
         le(files.size(), 2) + le(wide ? ~0ull : directory.size(), 4) +
         le(wide ? ~0ull : begin, 4) + le(0, 2);
}

Input ids() { return {"ids", {2, 3}, "i64", 100, 0, -100, true}; }

class Npz : public testing::Test {
protected:
  std::string error(const std::string &bytes, const std::string &array = "") {
    auto file = openArraySamples(ids(), folder.write("x.npz", bytes) + array);
    return file ? "" : file.error().message;
  }
  std::string whole(bool packs, bool wide = false) {
    return archive({{"other.npy", npy<float>("<f4", "(7,)", 7)},
                    {"ids.npy", npy<int64_t>("<i8", "(4, 3)", 12)}},
                   packs, wide);
  }
  TemporaryFolder folder;
};

// The array is called as the input, or by name behind a colon. Its bytes are
// the same whether they were packed.
TEST_F(Npz, ReadsStoredAndDeflatedArrays) {
  for (bool packs : {false, true})
    for (bool wide : {false, true})
      for (const char *name : {"", ":ids", ":ids.npy"}) {
        folder.write("x.npz", whole(packs, wide));
        auto file = openArraySamples(ids(), (folder / "x.npz") + name);
        ASSERT_TRUE(file) << file.error().message;
        EXPECT_EQ(file->samples, 4);
        std::vector<int64_t> values(12);
        ASSERT_TRUE(file->file.read(file->offset, values.data(), 96));
        for (int64_t i = 0; i < 12; ++i)
          EXPECT_EQ(values[size_t(i)], i);
      }
}

TEST_F(Npz, NamesWhatIsWrong) {
  EXPECT_THAT(error(whole(false), ":idx"),
              HasSubstr("x.npz' has no array 'idx'"));
  EXPECT_THAT(error(whole(false), ":z"), HasSubstr("it has 'other', 'ids'"));
  EXPECT_THAT(error(whole(true), ":other"), HasSubstr("contains f32"));
  EXPECT_THAT(error(""), HasSubstr("has no directory at its end"));
  EXPECT_THAT(error(npy<int64_t>("<i8", "(4, 3)", 12)),
              HasSubstr("is a damaged .npz file"));
  std::string stored = whole(false);
  EXPECT_THAT(error(stored.substr(0, stored.size() - 1)),
              HasSubstr("as if it was cut off"));
  std::string changed = whole(true);
  changed[changed.find("ids.npy") + 7 + 20 + 40] ^= 1;
  EXPECT_THAT(error(changed), HasSubstr("is a damaged .npz file: "));
  EXPECT_THAT(error(archive({{"ids.npy", "text"}}, false)),
              HasSubstr("is not a .npy file"));
}

// Whatever is cut off or changed, the file is refused or read without leaving
// its bounds (the sanitizers look). Each change is a file, so not every byte.
TEST_F(Npz, SurvivesDamageAnywhere) {
  for (bool packs : {false, true}) {
    std::string bytes = whole(packs, packs);
    for (size_t at = 0; at < bytes.size(); at += 7) {
      EXPECT_NE(error(bytes.substr(0, at)), "") << at;
      for (char to : {'\0', '\xff', char(bytes[at] ^ 1)}) {
        std::string changed = bytes;
        changed[at] = to;
        error(changed);
      }
    }
  }
}

} // namespace
