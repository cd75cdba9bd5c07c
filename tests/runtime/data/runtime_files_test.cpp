// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Files from outside: .npy files and token streams are read exactly, or refused
// with a reason. They are never trusted: each test of refusal changes one thing
// of a valid file.
#include "runtime/cli/command_line.h"
#include "runtime/data/data_files.h"
#include "runtime/data/sample_file.h"
#include "tests/runtime/data/runtime_files.h"
#include "tests/runtime/train/runtime_inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

using namespace fsdpc;
using namespace fsdpc::runtime;
using testing::HasSubstr;

namespace {

std::string npyError(const std::string &bytes, const Input &input = ids()) {
  TemporaryFolder folder;
  auto file = openArraySamples(input, folder.write("x.npy", bytes));
  return file ? "" : file.error().message;
}

// Versions differ in the length of the header's size field.
TEST(Npy, ReadsEveryVersion) {
  for (int version : {1, 2, 3})
    EXPECT_EQ(npyError(npy<int32_t>("<i4", "(4, 3)", 12, version)), "");
  EXPECT_EQ(npyError(npy<uint8_t>("|u1", "(1,3)", 3)), "");
}

// Each way in which a file can be wrong has its own message.
TEST(Npy, NamesWhatIsWrong) {
  EXPECT_THAT(npyError(""), HasSubstr("x.npy' is empty"));
  EXPECT_THAT(npyError("hello, world"), HasSubstr("is not a .npy file"));
  EXPECT_THAT(npyError(npy<float>("<f4", "(4, 3)", 12)),
              HasSubstr("contains f32, but input 'ids' is i64"));
  EXPECT_THAT(npyError(npy<uint64_t>("<u8", "(4, 3)", 12)),
              HasSubstr("contains u64"));
  EXPECT_THAT(npyError(npy<int64_t>(">i8", "(4, 3)", 12)),
              HasSubstr("type '>i8'; little-endian"));
  EXPECT_THAT(npyError(npy<int64_t>("<i8", "(12,)", 12)),
              HasSubstr("has shape [12], but input 'ids' takes [samples, 3]"));
  EXPECT_THAT(npyError(npy<int64_t>("<i8", "(3, 4)", 12)),
              HasSubstr("has shape [3, 4]"));
  EXPECT_THAT(npyError(npy<int64_t>("<i8", "(4, 3)", 11)),
              HasSubstr("is truncated"));
  // Two arrays in one file, or another shape.
  EXPECT_THAT(npyError(npy<int64_t>("<i8", "(4, 3)", 13)),
              HasSubstr("is longer than its data: shape [4, 3] needs 96 bytes, "
                        "104 are there"));
  EXPECT_THAT(npyError(npy<int64_t>("<i8", "(4611686018427387904, 3)", 3)),
              HasSubstr("overflows"));
  EXPECT_THAT(npyError(npy<int64_t>("<i8", "(99999999999999999999, 3)", 3)),
              HasSubstr("malformed"));
  EXPECT_THAT(npyError(npy<int64_t>("<i8", "(-4, 3)", 12)),
              HasSubstr("malformed"));
  // A key stands twice, text after the dict, and what is not a tuple.
  for (const char *shape :
       {"(4, 3), 'shape': (3,)", "(4, 3), 'descr': '<i8'",
        "(4, 3), 'shape': (4, 3)", "(4, 3), 'fortran_order': True",
        "(4, 3), 'more': 1", "(4, 3)} {", "(4, 3)}, (1", "(4 3)", "(,)", "(12)",
        "(4, 3, )), ((", "(+4, 3)", "(0x4, 3)", "(4, 3"})
    EXPECT_THAT(npyError(npy<int64_t>("<i8", shape, 12)),
                HasSubstr("malformed"))
        << shape;
  EXPECT_THAT(npyError(npy<int64_t>("<i8", "(4, 3)", 12).substr(0, 30)),
              HasSubstr("truncated"));
  EXPECT_THAT(npyError(npy<int64_t>("<i8", "(4, 3)", 12, 1, "True")),
              HasSubstr("Fortran order"));
}

// Windows of three tokens, then the same shifted by one. Only complete windows
// count.
TEST(Tokens, CutsWindows) {
  TemporaryFolder folder;
  std::string path = folder.write("text", "abcdefghij");
  auto file = openTokenWindows(ids(), path, "u8", 0);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->samples, 3);
  auto shifted = openTokenWindows(ids(), path, "u8", 2);
  ASSERT_TRUE(shifted);
  EXPECT_EQ(shifted->samples, 2);
  EXPECT_EQ(shifted->offset, 2u);
  auto beyond = openTokenWindows(ids(), path, "u16", 100);
  ASSERT_TRUE(beyond);
  EXPECT_EQ(beyond->samples, 0);
}

// Part of a token means that the file is cut off, or of another width.
TEST(Tokens, AreWhole) {
  TemporaryFolder folder;
  auto file = openTokenWindows(ids(), folder.write("a", "abcdefg"), "u16", 0);
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().message,
              HasSubstr("has 7 bytes, which are not whole tokens of type u16"));
}

// A .npy file states its own width; for raw bytes it must be given.
TEST(Tokens, NpyNeedsNoWidthAndRawDoes) {
  TemporaryFolder folder;
  auto file = openTokenWindows(ids(), folder.write("a", "abcdef"), "", 0);
  EXPECT_THAT(file.error().message, HasSubstr(":u8"));
  std::string path = folder.write("b", npy<uint16_t>("<u2", "(7,)", 7));
  auto array = openTokenWindows(ids(), path, "", 1);
  ASSERT_TRUE(array) << array.error().message;
  EXPECT_EQ(array->samples, 2);
  auto raw = openTokenWindows(ids(), path, "u16", 0);
  EXPECT_THAT(raw.error().message, HasSubstr("drop ':u16'"));
}

// The headers of others state the type and the number of the tokens.
TEST(Tokens, HeadersOfOthersAreKnown) {
  TemporaryFolder folder;
  std::vector<int32_t> header(256);
  header[0] = 20240520;
  header[1] = 1;
  header[2] = 7;
  auto bytes = [&] {
    return std::string(reinterpret_cast<char *>(header.data()), 1024);
  };
  std::string path = folder.write("a.bin", bytes() + std::string(14, 'x'));
  auto file = openTokenWindows(ids(), path, "", 1);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->dtype, "u16");
  EXPECT_EQ(file->samples, 2);
  EXPECT_EQ(file->offset, 1026u);
  file = openTokenWindows(ids(), path, "u16", 0);
  EXPECT_THAT(file.error().message, HasSubstr("drop ':u16'"));
  file = openTokenWindows(
      ids(), folder.write("a.bin", bytes() + std::string(13, 'x')), "", 0);
  EXPECT_THAT(file.error().message, HasSubstr("promises 7 tokens"));
  header[2] = -1;
  file = openTokenWindows(ids(), folder.write("a.bin", bytes()), "", 0);
  EXPECT_THAT(file.error().message, HasSubstr("promises -1 tokens"));

  path = folder.write("b.bin", std::string(28, 'x'));
  std::string index("MMIDIDX\0\0\1\0\0\0\0\0\0\0\4", 18);
  folder.write("b.idx", index);
  file = openTokenWindows(ids(), path, "", 0);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->dtype, "i32");
  EXPECT_EQ(file->samples, 2);
  for (char code : {0, 6, 7, 9, -1}) {
    index.back() = code;
    folder.write("b.idx", index);
    file = openTokenWindows(ids(), path, "", 0);
    EXPECT_THAT(file.error().message, HasSubstr("is an index of Megatron"));
  }
  folder.write("b.idx", index.substr(0, 17));
  file = openTokenWindows(ids(), path, "", 0);
  EXPECT_THAT(file.error().message, HasSubstr("no index of Megatron"));
}

// A list of files, whose patterns match in the order of names.
TEST(DataFiles, AreOneOrAPatternOrAList) {
  TemporaryFolder folder;
  for (const char *name : {"c-10", "c-2", "c-1", "a,b", "x*"})
    folder.write(name, "");
  auto names = [&](const std::string &text) {
    auto files = dataFiles(text);
    if (!files)
      return files.error().message;
    std::string joined;
    for (const std::vector<std::string> &entry : *files) {
      joined += joined.empty() ? "" : "| ";
      for (const std::string &file : entry)
        joined += file.substr(file.rfind('/') + 1) + " ";
    }
    return joined;
  };
  std::string in = folder / "";
  EXPECT_EQ(names(in + "c-*"), "c-1 c-10 c-2 ");
  EXPECT_EQ(names(in + "c-?," + in + "c-10"), "c-1 c-2 | c-10 ");
  EXPECT_EQ(names(in + "c-[2],none"), "c-2 | none ");
  EXPECT_EQ(names(in + "a,b"), "a,b "); // a file of this very name
  EXPECT_EQ(names(in + "x*"), "x* ");
  EXPECT_THAT(names(in + "d*"), HasSubstr("matches no file"));
  EXPECT_THAT(names(in + "c-1,"), HasSubstr("an empty name"));
}

// Names of files may contain colons and plus signs.
TEST(Tokens, SuffixesAreParsedFromTheRight) {
  auto parse = [](const char *text) {
    DataSource source;
    parseTokens(text, source);
    return source.file + "|" + source.width + "|" +
           std::to_string(source.shift);
  };
  EXPECT_EQ(parse("a.txt:u8+1"), "a.txt|u8|1");
  EXPECT_EQ(parse("a.npy+12"), "a.npy||12");
  EXPECT_EQ(parse("c++:u16"), "c++|u16|0");
  EXPECT_EQ(parse("a:b+c:u8"), "a:b+c|u8|0");
  EXPECT_EQ(parse("a:u8:u16+1"), "a:u8|u16|1");
  EXPECT_EQ(parse("host:data.npy"), "host:data.npy||0");
}

// A file that shrinks while it is open is an error, not a signal; one that
// grows is read as it was.
TEST(Files, MayChangeWhileTheyAreRead) {
  TemporaryFolder folder;
  std::string path = folder.write("x", "abcdefgh");
  auto file = File::open(path);
  ASSERT_TRUE(file);
  char bytes[8];
  std::filesystem::resize_file(path, 100);
  EXPECT_EQ(file->size(), 8u);
  EXPECT_TRUE(file->read(0, bytes, 8));
  EXPECT_THAT(file->read(4, bytes, 8).error().message,
              HasSubstr("has only 8 bytes"));
  std::filesystem::resize_file(path, 4);
  EXPECT_THAT(file->read(0, bytes, 8).error().message,
              HasSubstr("was truncated while it was being read"));
}

} // namespace
