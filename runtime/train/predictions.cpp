// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes NumPy's format (numpy.lib.format, version 1.0) while the evaluation
// runs. The number of samples is known, so the header comes first, and every
// microbatch has its place in the file.
#include "runtime/train/predictions.h"
#include "runtime/abi/memory_plan.h"
#include "runtime/support/concat.h"

#include <algorithm>
#include <string>

namespace fsdpc::runtime {
namespace {

// "|b1", "<f4", "<i8": NumPy's byte order, kind and size.
std::string numpyType(const std::string &dtype) {
  if (dtype == "i1")
    return "|b1";
  return concat(dtype[0] == 'f' ? "<f" : "<i", dtypeBytes(dtype));
}

// The text of the header is padded with spaces, so that the data begins at a
// multiple of 64 bytes.
std::string headerOf(const Output &output, int64_t rows) {
  std::string shape = std::to_string(rows);
  for (size_t axis = 1; axis < output.shape.size(); ++axis)
    shape += concat(", ", output.shape[axis]);
  std::string text = "{'descr': '" + numpyType(output.dtype) +
                     "', 'fortran_order': False, 'shape': (" + shape +
                     (output.shape.size() == 1 ? ",), }" : "), }");
  const std::string magic("\x93NUMPY\x01\x00", 8);
  size_t unpadded = magic.size() + 2 + text.size() + 1;
  text += std::string((64 - unpadded % 64) % 64, ' ') + "\n";
  auto length = uint16_t(text.size());
  return magic + char(length & 0xff) + char(length >> 8) + text;
}

} // namespace

// Files have their names only after commit, so an evaluation that fails leaves
// the last one's.
Status Predictions::begin(const Job &job, int64_t count) {
  samples = count;
  batch = samplesPerMicrobatch(manifest);
  files.clear();
  if (job.rank != 0)
    return {};
  for (const Prediction &prediction : wanted) {
    const Output &output = manifest.outputs[prediction.output];
    auto file = std::make_unique<File>();
    int64_t rows = output.shape[0] / batch;
    std::string header = headerOf(output, samples * rows);
    if (file->file.open(prediction.file))
      (void)bool(file->file.write(0, header.data(), header.size()));
    file->header = header.size();
    file->sampleBytes = int64_t(bytesOf(output)) / batch;
    int64_t bytes;
    if (__builtin_mul_overflow(samples, file->sampleBytes, &bytes))
      return inputError(concat("--predict: '", prediction.file, "' would have ",
                               samples, " times ", file->sampleBytes,
                               " bytes"));
    files.push_back(std::move(file));
  }
  return {};
}

void Predictions::add(fsdpc_rank &rank, int64_t j) {
  for (size_t index = 0; index < wanted.size(); ++index)
    addOne(rank, index, j);
}

// Rank 0 writes its own rows first, and then receives those of the others one
// after the other into the same memory.
void Predictions::addOne(fsdpc_rank &rank, size_t index, int64_t first) {
  size_t output = wanted[index].output;
  size_t bytes = bytesOf(manifest.outputs[output]);
  void *values = rank.outputs[output];
  if (!rank.device->isHostMemory()) {
    host.resize(bytes);
    rank.device->download(host.data(), values, bytes);
    values = host.data();
  }
  Communicator &channel = *rank.job.channel[controlChannel];
  // The last round may have fewer microbatches than ranks.
  auto exists = [&](int peer) { return (first + peer) * batch < samples; };
  if (rank.job.rank != 0) {
    Outgoing message{0, values, bytes};
    if (exists(rank.job.rank))
      channel.transfer({&message, 1}, {});
    return;
  }
  File &to = *files[index];
  for (int peer = 0; peer < rank.job.size && exists(peer); ++peer) {
    Incoming message{peer, values, bytes};
    if (peer > 0)
      channel.transfer({}, {&message, 1});
    int64_t begin = (first + peer) * batch;
    int64_t rows = std::min(batch, samples - begin);
    // The file keeps a failure, since the others still send.
    (void)bool(to.file.write(to.header + uint64_t(begin * to.sampleBytes),
                             values, uint64_t(rows * to.sampleBytes)));
  }
}

Status Predictions::commit() {
  Status first;
  for (std::unique_ptr<File> &file : files)
    if (Status committed = file->file.commit(); first && !committed)
      first = committed;
  files.clear();
  return first;
}

} // namespace fsdpc::runtime
