// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The buckets of a command line: the shapes that one program is compiled for,
// from lists of values of --dim. Value k of each list makes bucket k.
#pragma once

#include "tools/fsdpc/CommandLine.h"

#include "mlir/IR/Diagnostics.h"

namespace fsdpc::driver {

/// Returns the number of buckets; 1 without lists.
size_t bucketCount(const CommandLine &line);

/// Returns the options of the compile for one bucket. Everything from the
/// import to the phase `runtime` has the options of one shape.
fsdp::CompileOptions optionsOf(const CommandLine &line, size_t bucket);

/// Returns the dimensions in which the buckets differ, as this one has them:
/// "B=8,T=128".
std::string nameOfBucket(const CommandLine &line, size_t bucket);

/// Names the bucket in the errors of its import and its passes, as long as it
/// lives. Does nothing if there is one bucket.
class BucketErrors : public mlir::ScopedDiagnosticHandler {
public:
  BucketErrors(mlir::MLIRContext *context, const CommandLine &line,
               size_t bucket);
};

/// Returns the folder of --dump-ir for a bucket, or "". Where there are
/// several, each has a folder of its name within it.
std::string dumpFolderOf(const CommandLine &line, size_t bucket);

/// Takes a value "NAME=V,V…" of --dim. Returns an error message, or "".
std::string takeDimension(llvm::StringRef text, CommandLine &line);

/// Returns an error message if the lists do not go together, or if the command
/// line asks for what is of one shape; else "".
std::string checkBuckets(const CommandLine &line);

} // namespace fsdpc::driver
