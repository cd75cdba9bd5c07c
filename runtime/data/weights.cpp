// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds and reads initial values. A rank reads only the bytes of its own shard,
// so start-up scales with the number of ranks. Where each value comes from is
// decided before any is read.
#include "runtime/data/weights.h"
#include "runtime/abi/memory_plan.h"
#include "runtime/data/sample_file.h"
#include "runtime/numeric/dtype.h"
#include "runtime/support/concat.h"
#include "runtime/support/programs.h"
#include "runtime/support/round_up.h"
#include "runtime/support/spelling.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

namespace fsdpc::runtime {
namespace {

int64_t product(const std::vector<int64_t> &shape) {
  int64_t elements = 1;
  for (int64_t extent : shape)
    elements *= extent;
  return elements;
}

} // namespace

// Decides for every value where it comes from, before any is read: the error of
// a missing file must not come after minutes of loading. Call it once. Files
// stay open until the values are loaded.
Status Weights::open(const Manifest &itsManifest,
                     const fsdpc_program &itsProgram, const Options &options) {
  manifest = &itsManifest;
  program = &itsProgram;
  directory = options.weights;
  seed = options.seed;
  if (!options.init.empty())
    FSDPC_TRY(openInit(options));
  for (const Layout &layout : manifest->layouts)
    for (const Member &member : layout.members)
      FSDPC_TRY(locate(member.name, member.aliases, member.shape, member.source,
                       !layout.ofBytes, initHas(layout)));
  for (const Buffer &buffer : manifest->buffers)
    if (!buffer.optimizerState)
      FSDPC_TRY(locate(buffer.name, buffer.aliases, buffer.shape, buffer.source,
                       false, false));
  return {};
}

// Files of --save-trained leave frozen parameters out, and those of other
// programs may lack constants of this model.
bool Weights::initHas(const Layout &layout) const {
  return init && !layout.ofBytes && (layout.trainable || init->base().empty());
}

// Returns all names of a parameter or buffer, its own first.
static InitFile::Names namesOf(const std::string &name,
                               const std::vector<std::string> &aliases) {
  InitFile::Names names = {name};
  names.insert(names.end(), aliases.begin(), aliases.end());
  return names;
}

Status Weights::openInit(const Options &options) {
  Result<InitFile> opened = InitFile::open(options.init);
  FSDPC_TRY(opened);
  init = std::move(*opened);
  std::vector<InitFile::Names> parameters;
  for (const Layout &layout : manifest->layouts)
    for (const Member &member : layout.members)
      if (initHas(layout))
        parameters.push_back(namesOf(member.name, member.aliases));
  return init->match(parameters, options.rename);
}

// Returns true if two tensors of --init have the same type, shape and bytes.
static Result<bool> areEqual(const InitTensor &one, const InitTensor &other) {
  const SafeTensor &a = one.place, &b = other.place;
  if (a.dtype != b.dtype || a.shape != b.shape || a.bytes != b.bytes)
    return false;
  constexpr uint64_t pieceBytes = 1 << 20;
  std::vector<char> first(std::min(a.bytes, pieceBytes)), second(first.size());
  for (uint64_t done = 0; done < a.bytes; done += pieceBytes) {
    uint64_t now = std::min(pieceBytes, a.bytes - done);
    FSDPC_TRY(one.file->read(a.offset + done, first.data(), now));
    FSDPC_TRY(other.file->read(b.offset + done, second.data(), now));
    if (std::memcmp(first.data(), second.data(), now) != 0)
      return false;
  }
  return true;
}

// Checks that a tied parameter has one value where the file holds it under
// several names. Trainers write it so; with different values, no choice between
// them would be what the user means.
Status Weights::checkTied(const std::string &name,
                          const InitFile::Names &names) {
  std::vector<const InitTensor *> found = init->findAll(names);
  for (size_t i = 1; i < found.size(); ++i) {
    Result<bool> equal = areEqual(*found[0], *found[i]);
    FSDPC_TRY(equal);
    if (!*equal)
      return inputError("'" + init->nameOf(*found[0]) + "' and '" +
                        init->nameOf(*found[i]) + "' of '" + init->path() +
                        "' differ, but are one tied parameter in the program; "
                        "remove the one that is not meant from the file");
    used[found[i]] = name;
  }
  return {};
}

// Decides where the value of one parameter or buffer comes from: --init first,
// then the source in the manifest.
Status Weights::locate(const std::string &name,
                       const std::vector<std::string> &aliases,
                       const std::vector<int64_t> &shape, const Source &source,
                       bool parameter, bool inInit) {
  const InitTensor *tensor =
      init ? init->find(namesOf(name, aliases)) : nullptr;
  // PyTorch saves no buffers that are non-persistent, so only a missing
  // parameter is an error.
  if (inInit && !tensor)
    return inputError("'" + init->path() + "' has no tensor '" + name + "'" +
                      init->nearestTo(name));
  if (tensor)
    FSDPC_TRY(checkTied(name, namesOf(name, aliases)));
  Result<Place> place = tensor ? placeInInit(name, *tensor, shape, parameter)
                               : placeOf(name, shape, source, parameter);
  FSDPC_TRY(place);
  places[name] = std::move(*place);
  return {};
}

// The place of a value that --init holds. Shapes must match exactly: a tensor
// that is transposed or padded elsewhere would train from garbage.
Result<Weights::Place> Weights::placeInInit(const std::string &name,
                                            const InitTensor &tensor,
                                            const std::vector<int64_t> &shape,
                                            bool parameter) {
  const auto &[dtype, itsShape, offset, bytes] = tensor.place;
  // Parameters are floats. A buffer's type is checked when it is read.
  if (itsShape != shape || dtype.empty() || (parameter && !isFloat(dtype)))
    return inputError(
        "'" + tensor.file->path() + "' has '" + name + "' as " +
        (dtype.empty() ? "an unknown type" : dtype + shapeText(itsShape)) +
        ", but the program needs " + (parameter ? "floats of " : "") +
        "shape " + shapeText(shape));
  // `unused` reports the tensors that remain unmarked.
  used[&tensor] = name;
  Place place;
  place.file = tensor.file;
  place.offset = offset;
  place.dtype = dtype;
  place.isInit = true;
  return place;
}

// The place of a value in the manifest's source. Rules are parsed here, so that
// a bad one fails before training.
Result<Weights::Place> Weights::placeOf(const std::string &name,
                                        const std::vector<int64_t> &shape,
                                        const Source &source, bool parameter) {
  Place place;
  if (source.kind == "rule") {
    Result<InitRule> rule = parseInitRule(source.rule);
    if (rule)
      rule = ruleForShape(*rule, shape);
    if (!rule)
      return rule.error().reworded("the init rule '" + source.rule + "' of '" +
                                   name + "' " + rule.error().message);
    place.rule = *rule;
    return place;
  }
  place.offset = source.offset;
  place.dtype = source.dtype;
  uint64_t bytes =
      uint64_t(product(shape)) * uint64_t(dtypeBytes(source.dtype));
  // The difference cannot wrap around, unlike the sum of offset and bytes.
  if (source.kind == "embedded") {
    if (bytes > program->weights_bytes ||
        source.offset > program->weights_bytes - bytes)
      return inputError("the embedded value of '" + name +
                        "' is outside the program");
    place.memory = static_cast<const char *>(program->weights) + source.offset;
    return place;
  }
  // The range itself is checked by File::read.
  if (source.kind == "file") {
    if (bytes != source.length)
      return inputError(concat("'", name, "' is ", source.dtype,
                               shapeText(shape), ", which does not match ",
                               source.length, " bytes"));
    Result<const File *> file = openFile(source.file, name);
    FSDPC_TRY(file);
    place.file = *file;
    return place;
  }
  return inputError(
      std::string(parameter ? "parameter" : "buffer") + " '" + name +
      "' has no initial value; compile with --init-rule='GLOB=normal(0,0.02)' "
      "or run with --init FILE.safetensors");
}

// Returns the path of a model's file. The manifest has it relative to the
// program's folder, unless the compile was told to keep absolute paths.
static std::string besideProgram(const std::string &path) {
  std::filesystem::path folder =
      std::filesystem::path(ownProgram()).parent_path();
  return (folder / path).lexically_normal().string();
}

// Opens a file once. With --weights DIR it looks for the same relative path
// there, then for the bare name, and else takes the file where it was compiled:
// a model's small tensors are in the model itself, which need not have moved
// with the others. A file that has changed is found by its hash.
Result<const File *> Weights::openFile(const std::string &path,
                                       const std::string &name) {
  auto known = files.find(path);
  if (known != files.end())
    return &known->second;
  std::string compiled = besideProgram(path), actual = compiled;
  if (!directory.empty()) {
    actual = directory + "/" + path;
    // The bare name also serves a path that was absolute where the model was
    // compiled.
    if (path.rfind('/', 0) == 0 || access(actual.c_str(), F_OK) != 0)
      actual = directory + "/" + path.substr(path.rfind('/') + 1);
    if (access(actual.c_str(), F_OK) != 0 &&
        access(compiled.c_str(), F_OK) == 0)
      actual = compiled;
  }
  Result<File> opened = File::open(actual);
  if (!opened)
    return opened.error().reworded(
        "the weights of '" + name + "' are missing: " + opened.error().message +
        "; move them with the program, set their folder "
        "with --weights DIR, or take values from "
        "--init FILE");
  // Places point into the map, whose elements do not move.
  File &file = files[path];
  file = std::move(*opened);
  return &file;
}

// Reads and converts part of a value, without holding more than one piece of
// the file in memory.
Status Weights::read(const Place &place, int64_t begin, int64_t count, void *to,
                     const std::string &dtype) const {
  int64_t size = dtypeBytes(place.dtype);
  auto *out = static_cast<char *>(to);
  // Embedded values are mapped with the executable; no piece is needed.
  if (place.memory) {
    convert(place.memory + begin * size, place.dtype, out, dtype, count);
    return {};
  }
  uint64_t offset = place.offset + uint64_t(begin * size);
  // The common case: f32 goes from the file straight to its place.
  if (place.dtype == dtype)
    return place.file->read(offset, out, uint64_t(count * size));
  std::vector<char> piece(pieceBytes);
  while (count > 0) {
    int64_t now = std::min(count, int64_t(pieceBytes) / size);
    FSDPC_TRY(place.file->read(offset, piece.data(), uint64_t(now * size)));
    convert(piece.data(), place.dtype, out, dtype, now);
    out += now * dtypeBytes(dtype);
    offset += uint64_t(now * size);
    count -= now;
  }
  return {};
}

// A rule depends on name, seed and element alone, so every rank fills its part
// with the same numbers as any other would.
Status Weights::readParameter(const Member &member, int64_t begin,
                              int64_t count, float *to) const {
  const Place &place = places.at(member.name);
  if (!place.rule)
    return read(place, begin, count, to, "f32");
  compute(*place.rule, member.name, member.shape, begin, count, to);
  return {};
}

Status Weights::readBytes(const Member &member, int64_t begin, int64_t count,
                          char *to) const {
  const Place &place = places.at(member.name);
  int64_t width = dtypeBytes(member.dtype);
  if (!place.rule && converts(place.dtype, member.dtype))
    return read(place, begin / width, count / width, to, member.dtype);
  return inputError(
      "'" + member.name + "' is " + member.dtype + ", but its value is " +
      (place.rule ? "that of a rule" : "stored as " + place.dtype));
}

void Weights::compute(const InitRule &rule, const std::string &name,
                      const std::vector<int64_t> &shape, int64_t begin,
                      int64_t count, float *to) const {
  if (rule.kind != InitRule::orthogonal)
    return applyInitRule(rule, name, seed, begin, count, to);
  if (orthogonalName != name) {
    orthogonal = orthogonalValues(rule, name, seed, shape);
    orthogonalName = name;
  }
  std::copy_n(orthogonal.begin() + begin, count, to);
}

// Returns the bits of the number 1. Those of an integer are the low bytes of a
// longer one, on a little-endian machine.
static int64_t bitsOfOne(const std::string &dtype) {
  return dtype == "f64"    ? 0x3FF0000000000000
         : dtype == "f32"  ? 0x3F800000
         : dtype == "bf16" ? 0x3F80
         : dtype == "f16"  ? 0x3C00
                           : 1;
}

// Buffers are replicated, so every rank reads all of them, unlike parameters.
Status Weights::readBuffer(const Buffer &buffer, void *to) const {
  if (buffer.optimizerState) {
    std::memset(to, 0, size_t(bufferBytes(buffer)));
    return {};
  }
  const Place &place = places.at(buffer.name);
  int64_t elements = product(buffer.shape);
  if (!place.rule) {
    if (converts(place.dtype, buffer.dtype))
      return read(place, 0, elements, to, buffer.dtype);
    return inputError("buffer '" + buffer.name + "' is " + buffer.dtype +
                      ", but its value is stored as " + place.dtype);
  }
  if (buffer.dtype == "f32") {
    compute(*place.rule, buffer.name, buffer.shape, 0, elements,
            static_cast<float *>(to));
    return {};
  }
  // Random rules give f32 only.
  if (place.rule->kind > InitRule::ones)
    return inputError("buffer '" + buffer.name + "' is " + buffer.dtype +
                      ", which the init rule '" + buffer.source.rule +
                      "' cannot fill");
  int64_t value =
      place.rule->kind == InitRule::ones ? bitsOfOne(buffer.dtype) : 0;
  int64_t size = dtypeBytes(buffer.dtype);
  for (int64_t i = 0; i < elements; ++i)
    std::copy_n(reinterpret_cast<const char *>(&value), size,
                static_cast<char *>(to) + i * size);
  return {};
}

// Only whole pages inside the values: the rest of a page may hold something
// else.
void Weights::release() const {
  std::vector<float>().swap(orthogonal);
  orthogonalName.clear();
  auto page = uintptr_t(sysconf(_SC_PAGESIZE));
  auto begin = reinterpret_cast<uintptr_t>(program->weights);
  uintptr_t first = roundUp(begin, page);
  uintptr_t last = (begin + program->weights_bytes) / page * page;
  if (first < last)
    madvise(reinterpret_cast<void *>(first), last - first, MADV_DONTNEED);
}

std::vector<std::string> Weights::paths() const {
  std::vector<std::string> paths;
  for (auto &[path, file] : files)
    paths.push_back(file.path());
  return paths;
}

std::vector<std::string> Weights::initPaths() const {
  return init ? init->files() : std::vector<std::string>();
}

std::vector<std::string> Weights::unused() const {
  std::vector<std::string> names;
  if (!init)
    return names;
  for (auto &[name, tensor] : init->tensors())
    if (!used.count(&tensor))
      names.push_back(name);
  return names;
}

} // namespace fsdpc::runtime
