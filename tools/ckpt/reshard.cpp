// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// `fsdpc ckpt reshard`: the same checkpoint for another number of ranks. A run
// may resume on any number of ranks without it; it is for storage where each
// rank reads a file of its own, and for other tools.
#include "tools/ckpt/checkpoint_writer.h"
#include "tools/ckpt/checkpoints.h"
#include "tools/ckpt/commands.h"

namespace fsdpc::ckpt {

using namespace runtime;

int reshard(const Arguments &arguments) {
  auto opened = openWhole(arguments.input, arguments.step);
  if (!opened)
    return report(opened.error());
  const TrainingCheckpoint &from = *opened;
  // Shards lie elsewhere in the new files, but each is read and written by the
  // parameter's name, so no index between the two cuts is needed.
  CheckpointManifest stored = from.manifest();
  cutFor(stored, arguments.ranks);
  CheckpointValues values;
  values.parameter = [&](const Member &member, int32_t part, int64_t begin,
                         int64_t count, float *to) {
    return part == 0 ? from.readMaster(member, begin, count, to)
                     : from.readState(member, part - 1, begin, count, to);
  };
  values.buffer = [&](const Buffer &buffer, void *to) {
    return from.readBuffer(buffer, to);
  };
  values.bytes = [&](const Member &member, int64_t begin, int64_t count,
                     char *to) {
    return from.readBytes(member, begin, count, to);
  };
  values.residual = [&](const Member &member, int64_t rank, int64_t begin,
                        int64_t count, float *to) {
    return from.readResidual(member, rank, arguments.ranks, begin, count, to);
  };
  values.compressionState = [&](const Member &member,
                                const Compression &compression, int64_t count,
                                float *to) {
    return from.readCompressionState(member, compression, 0, count, to);
  };
  Status written = writeCheckpoint(stored, values, arguments.output);
  return written ? int(ExitCode::success) : report(written.error());
}

} // namespace fsdpc::ckpt
