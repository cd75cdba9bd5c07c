// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Windows of a flat token stream, so that text needs no preparation: the bytes
// of a file are tokens of width u8, and the same file with a shift of 1 holds
// the labels.
#include "runtime/abi/memory_plan.h"
#include "runtime/data/sample_file.h"
#include "runtime/numeric/dtype.h"
#include "runtime/support/concat.h"
#include "runtime/support/spelling.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

namespace fsdpc::runtime {

namespace {

// Reads the type of the tokens, where they begin and how many there are.
struct Stream {
  std::string dtype;
  uint64_t offset = 0, length = 0;
};

// The files of llm.c and of what descends from it: 256 numbers of which the
// first tells the type of the tokens and the third their number. Returns
// nullopt for a file without such a header, an error for one whose header does
// not fit.
std::optional<Result<Stream>> llmcStream(const File &file) {
  int32_t header[256];
  if (file.size() < sizeof header)
    return {};
  FSDPC_TRY(file.read(0, header, sizeof header));
  const char *dtype = header[0] == 20240520   ? "u16"
                      : header[0] == 20240801 ? "u32"
                                              : nullptr;
  if (!dtype)
    return {};
  uint64_t bytes = file.size() - sizeof header;
  uint64_t length = bytes / uint64_t(dtypeBytes(dtype));
  if (header[2] < 0 || uint64_t(header[2]) != length ||
      bytes % uint64_t(dtypeBytes(dtype)) != 0)
    return inputError(
        concat("'", file.path(), "' has a header of llm.c, which promises ",
               header[2], " tokens, but it has ", bytes, " bytes of ", dtype));
  return Stream{dtype, sizeof header, length};
}

// Megatron's tokens, whose type stands in an index beside them. Its documents
// are one stream here. Only the head of the index is read: the type. Sizes and
// documents in it are not used.
std::optional<Result<Stream>> megatronStream(const File &file) {
  std::string index = file.path();
  if (index.size() < 4 || index.substr(index.size() - 4) != ".bin")
    return {};
  index.replace(index.size() - 4, 4, ".idx");
  Result<File> found = File::open(index);
  char header[18]; // magic, u64 version, u8 type
  if (!found || found->size() < sizeof header)
    return {};
  FSDPC_TRY(found->read(0, header, sizeof header));
  if (std::memcmp(header, "MMIDIDX\0\0", 9) != 0)
    return {};
  const char *const dtypes[] = {"",    "u8",  "i8",  "i16", "i32",
                                "i64", "f64", "f32", "u16"};
  uint64_t version;
  std::memcpy(&version, header + 9, sizeof version);
  size_t code = static_cast<unsigned char>(header[17]);
  if (version != 1 || code == 0 || code >= std::size(dtypes) ||
      dtypes[code][0] == 'f')
    return inputError(
        concat("'", index, "' is an index of Megatron of version ", version,
               " and type ", code,
               "; only version 1 and types of integers are known"));
  uint64_t bytes = uint64_t(dtypeBytes(dtypes[code]));
  if (file.size() % bytes != 0)
    return inputError(concat("'", file.path(), "' has ", file.size(),
                             " bytes, which are not whole tokens of type ",
                             dtypes[code], " as '", index, "' says"));
  return Stream{dtypes[code], 0, file.size() / bytes};
}

// A width is for raw tokens. A file with a header states its own type, so both
// together are refused.
Result<Stream> streamOf(const Input &input, const File &file,
                        const std::string &width) {
  const std::string &path = file.path();
  Result<bool> isArray = isNpy(file);
  FSDPC_TRY(isArray);
  // Raw tokens: the whole file, without a header.
  if (!width.empty()) {
    if (*isArray)
      return inputError(
          "'" + path +
          "' is a .npy file, which has its own type; drop ':" + width + "'");
    // A wrong header is a chance of the tokens.
    if (auto stream = llmcStream(file); stream && *stream)
      return inputError(
          "'" + path +
          "' has a header of llm.c, which states the type; drop ':" + width +
          "'");
    uint64_t bytes = uint64_t(dtypeBytes(width));
    if (file.size() % bytes != 0)
      return inputError(
          concat("'", path, "' has ", file.size(),
                 " bytes, which are not whole tokens of type ", width,
                 ": the file is cut off, or its tokens are of another type"));
    return Stream{width, 0, file.size() / bytes};
  }
  if (!*isArray) {
    for (auto known : {llmcStream, megatronStream})
      if (auto stream = known(file))
        return *stream;
    return inputError(
        "'" + path +
        "' has no header of NumPy or llm.c, and no index of Megatron; "
        "give the type of its tokens, as in '" +
        input.name + "=" + path + ":u8'");
  }
  Result<NpyHeader> header = readNpyHeader(file);
  FSDPC_TRY(header);
  if (header->shape.size() != 1)
    return inputError(
        "'" + path + "' has shape " + shapeText(header->shape) +
        ", but a token stream must have one axis; samples are given with "
        "--data or --eval");
  return Stream{header->dtype, header->offset, uint64_t(header->shape[0])};
}

} // namespace

// Window i holds tokens [shift + i·T, shift + (i + 1)·T).
Result<SampleFile> openTokenWindows(const Input &input, const std::string &path,
                                    const std::string &width, int64_t shift) {
  if (input.shape.size() != 2 || !isInteger(input.dtype))
    return inputError(
        "input '" + input.name + "' is " + input.dtype +
        shapeText(input.shape) +
        ", but a token stream requires [samples, T] integers; give "
        "samples with --data or --eval");
  Result<File> file = File::open(path);
  FSDPC_TRY(file);
  Result<Stream> stream = streamOf(input, *file, width);
  FSDPC_TRY(stream);
  if (!isInteger(stream->dtype) || !converts(stream->dtype, input.dtype))
    return inputError("'" + path + "' contains " + stream->dtype +
                      ", but input '" + input.name + "' is " + input.dtype);
  // A shift past the end leaves no samples, which Samples::open reports.
  uint64_t skipped = std::min(uint64_t(shift), stream->length);
  SampleFile samples;
  samples.file = std::move(*file);
  samples.dtype = stream->dtype;
  samples.tokens = int64_t(stream->length);
  samples.shift = int64_t(skipped);
  samples.sampleElements = input.shape[1];
  samples.offset =
      stream->offset + skipped * uint64_t(dtypeBytes(stream->dtype));
  // Whole windows only. The shift may cost the last one; `unshifted` is what
  // streams of the same file have in common.
  samples.samples = int64_t(stream->length - skipped) / samples.sampleElements;
  samples.unshifted = int64_t(stream->length) / samples.sampleElements;
  return samples;
}

} // namespace fsdpc::runtime
