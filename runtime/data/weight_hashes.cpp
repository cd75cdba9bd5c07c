// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Hashes of initial values: whether the model's files are those of the compile,
// and whether all ranks read the same. Hashes need whole tensors; therefore the
// ranks share the hashing, one tensor each in turn.
#include "runtime/data/weights.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace fsdpc::runtime {

// Values that --init replaces are not checked.
Status Weights::verify(int rank, int ranks) const {
  // Every rank counts the same values, so each value has exactly one rank.
  int turn = 0;
  auto check = [&](const std::string &name, const Source &source) -> Status {
    const Place &place = places.at(name);
    if (source.kind != "file" || source.hash.empty() || place.isInit ||
        turn++ % ranks != rank)
      return {};
    return verifyFile(name, *place.file, source);
  };
  for (const Layout &layout : manifest->layouts)
    for (const Member &member : layout.members)
      FSDPC_TRY(check(member.name, member.source));
  for (const Buffer &buffer : manifest->buffers)
    if (!buffer.optimizerState)
      FSDPC_TRY(check(buffer.name, buffer.source));
  return {};
}

// Hashes a range of a file in pieces of 1 MiB.
Status Weights::verifyFile(const std::string &name, const File &file,
                           const Source &source) const {
  std::unique_ptr<XXH64_state_t, XXH_errorcode (*)(XXH64_state_t *)> state(
      XXH64_createState(), XXH64_freeState);
  std::vector<char> piece(pieceBytes);
  // Seed 0, as the compiler hashed it (Source::hash).
  XXH64_reset(state.get(), 0);
  for (uint64_t done = 0; done < source.length; done += pieceBytes) {
    uint64_t bytes = std::min(pieceBytes, source.length - done);
    Status got = file.read(source.offset + done, piece.data(), bytes);
    if (!got)
      return got.error().reworded(
          "the weights of '" + name +
          "' changed since compiling: " + got.error().message);
    XXH64_update(state.get(), piece.data(), bytes);
  }
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx",
                static_cast<unsigned long long>(XXH64_digest(state.get())));
  if (source.hash == digits)
    return {};
  return inputError(
      "the weights of '" + name + "' in '" + file.path() +
      "' changed since compiling; compile the model again, or load "
      "them with --init");
}

// Ranks read different shards, so hashes of what each has loaded could not be
// compared. Reading whole files for a hash would take each rank as long as all
// ranks take to load; files that differ do so nearly everywhere, so each rank
// hashes the same sample of every tensor.
constexpr uint64_t hashedPieces = 4;

Result<std::string> Weights::hashOfInit() const {
  if (!init)
    return std::string("none");
  uint64_t hash = 0;
  // In the order of names, since files may hold equal tensors in any order.
  for (auto &[name, tensor] : init->tensors()) {
    auto taken = used.find(&tensor);
    if (taken == used.end())
      continue;
    const SafeTensor &place = tensor.place;
    std::string about = taken->second + " " + place.dtype;
    hash = XXH64(about.data(), about.size(), hash);
    Result<uint64_t> values =
        hashOf(*tensor.file, place.offset, place.bytes, hashedPieces);
    FSDPC_TRY(values);
    hash = XXH64(&*values, sizeof *values, hash);
  }
  return std::to_string(hash);
}

Result<std::string> Weights::hashOfFiles() const {
  if (!manifest)
    return std::string("none"); // a run that resumes opens no weights
  uint64_t hash = 0;
  auto add = [&](const std::string &name, const Source &source) -> Status {
    auto place = places.find(name);
    if (source.kind != "file" || place == places.end() || place->second.isInit)
      return {};
    Result<uint64_t> values =
        hashOf(*place->second.file, source.offset, source.length, hashedPieces);
    if (!values)
      return values.error().reworded(
          "the weights of '" + name +
          "' changed since compiling: " + values.error().message);
    hash = XXH64(&*values, sizeof *values, hash);
    return {};
  };
  for (const Layout &layout : manifest->layouts)
    for (const Member &member : layout.members)
      FSDPC_TRY(add(member.name, member.source));
  for (const Buffer &buffer : manifest->buffers)
    if (!buffer.optimizerState)
      FSDPC_TRY(add(buffer.name, buffer.source));
  return std::to_string(hash);
}

} // namespace fsdpc::runtime
