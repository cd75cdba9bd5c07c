// Windows of a flat token stream, so that text needs no preparation: the bytes
// of a file are tokens of width u8, and the same file with a shift of 1 holds
// the labels.
#include "runtime/core/dtype.h"
#include "runtime/core/sample_file.h"
#include "shared/memory_plan.h"

#include <algorithm>
#include <utility>

namespace fsdpc::runtime {

namespace {

// Reads the type of the tokens, where they begin and how many there are.
struct Stream {
  std::string dtype;
  uint64_t offset = 0, length = 0;
};

Result<Stream> streamOf(const Input &input, const File &file,
                        const std::string &width) {
  const std::string &path = file.path();
  // Raw tokens: the whole file, without a header.
  if (!width.empty()) {
    if (isNpy(file))
      return Error{"'" + path +
                   "' is a .npy file, which has its own type; drop ':" + width +
                   "'"};
    uint64_t bytes = uint64_t(dtypeBytes(width));
    if (file.size() % bytes != 0)
      return Error{"'" + path + "' has " + std::to_string(file.size()) +
                   " bytes, which are not whole tokens of type " + width +
                   ": the file is cut off, or its tokens are of another type"};
    return Stream{width, 0, file.size() / bytes};
  }
  if (!isNpy(file))
    return Error{
        "'" + path +
        "' is not a .npy file; give the type of its tokens, as in --tokens " +
        input.name + "=" + path + ":u8"};
  Result<NpyHeader> header = readNpyHeader(file);
  FSDPC_TRY(header);
  if (header->shape.size() != 1)
    return Error{
        "'" + path + "' has shape " + shapeText(header->shape) +
        ", but a token stream must have one axis; use --data for samples"};
  return Stream{header->dtype, header->offset, uint64_t(header->shape[0])};
}

} // namespace

Result<SampleFile> openTokenWindows(const Input &input, const std::string &path,
                                    const std::string &width, int64_t shift) {
  if (input.shape.size() != 2 || !isInteger(input.dtype))
    return Error{"input '" + input.name + "' is " + input.dtype +
                 shapeText(input.shape) +
                 ", but --tokens requires [samples, T] integers; use --data"};
  Result<File> file = File::open(path);
  FSDPC_TRY(file);
  Result<Stream> stream = streamOf(input, *file, width);
  FSDPC_TRY(stream);
  if (!isInteger(stream->dtype) || !converts(stream->dtype, input.dtype))
    return Error{"'" + path + "' contains " + stream->dtype + ", but input '" +
                 input.name + "' is " + input.dtype};
  // A shift past the end leaves no samples, which Samples::open reports.
  uint64_t skipped = std::min(uint64_t(shift), stream->length);
  SampleFile samples;
  samples.file = std::move(*file);
  samples.dtype = stream->dtype;
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
