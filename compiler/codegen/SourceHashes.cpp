// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The import records where values lie and does not read them: a model of many
// gigabytes is planned from its shapes. Only a link hashes them.
//
// XXH64 is not a cryptographic hash: it finds files that were replaced by
// mistake, not by an attacker.
#include "compiler/codegen/SourceHashes.h"

#include "runtime/support/input_file.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/StringExtras.h"

#include <algorithm>
#include <memory>
#include <vector>
#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace mlir;
using namespace fsdpc;

// Reads in pieces, since a parameter may be larger than memory.
static Result<std::string> hashOf(const Source &source) {
  Result<InputFile> file = InputFile::open(source.file);
  FSDPC_TRY(file);
  std::unique_ptr<XXH64_state_t, XXH_errorcode (*)(XXH64_state_t *)> state(
      XXH64_createState(), XXH64_freeState);
  XXH64_reset(state.get(), 0);
  std::vector<char> piece(std::min<uint64_t>(source.length, 1 << 20));
  for (uint64_t at = 0; at < source.length; at += piece.size()) {
    uint64_t count = std::min<uint64_t>(piece.size(), source.length - at);
    FSDPC_TRY(file->read(source.offset + at, piece.data(), count));
    XXH64_update(state.get(), piece.data(), count);
  }
  return llvm::utohexstr(XXH64_digest(state.get()), true, 16);
}

LogicalResult codegen::hashSources(Location loc, Manifest &manifest) {
  auto add = [&](const std::string &name, Source &source) -> LogicalResult {
    // A dump of an earlier version has the hash of its import.
    if (source.kind != "file" || !source.hash.empty())
      return success();
    Result<std::string> hash = hashOf(source);
    if (!hash)
      return emitError(loc) << "the weights of '" << name
                            << "' cannot be read: " << hash.error().message;
    source.hash = *hash;
    return success();
  };
  for (Layout &layout : manifest.layouts)
    for (Member &member : layout.members)
      if (failed(add(member.name, member.source)))
        return failure();
  for (Buffer &buffer : manifest.buffers)
    if (failed(add(buffer.name, buffer.source)))
      return failure();
  return success();
}
