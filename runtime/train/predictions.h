// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The files of --predict: outputs of the evaluation, one row (or several) per
// sample. Rows are in the order of the samples, whatever the number of ranks.
// Rank 0 writes each microbatch at its place in the file, so no rank holds more
// than one microbatch.
#pragma once

#include "runtime/cli/output_flags.h"
#include "runtime/core/rank.h"
#include "runtime/support/new_file.h"

#include <memory>
#include <vector>

namespace fsdpc::runtime {

class Predictions {
public:
  /// Keeps references to both.
  Predictions(const Manifest &manifest, const std::vector<Prediction> &wanted)
      : manifest(manifest), wanted(wanted) {}

  /// Begins the files of one evaluation, for `samples` samples. Only rank 0
  /// opens them; one that cannot be written fails in `commit`.
  Status begin(const Job &job, int64_t samples);
  /// Writes the outputs of the microbatches j, j + 1, …, j + N - 1, of which
  /// rank r has just computed j + r; those past the last sample are left out.
  /// All ranks call it together, when their devices are idle.
  void add(fsdpc_rank &rank, int64_t j);
  /// Gives the files their names. A file that fails keeps the last evaluation's
  /// content.
  Status commit();

private:
  /// A file of predictions, and the place of a microbatch's rows in it.
  struct File {
    NewFile file;
    uint64_t header = 0;     ///< bytes before the first row
    int64_t sampleBytes = 0; ///< of all rows of a sample
  };
  void addOne(fsdpc_rank &rank, size_t index, int64_t j);

  const Manifest &manifest;
  const std::vector<Prediction> &wanted;
  std::vector<std::unique_ptr<File>> files; ///< of rank 0
  int64_t samples = 0, batch = 1;
  std::vector<char> host; ///< an output that the host cannot read where it is
};

} // namespace fsdpc::runtime
