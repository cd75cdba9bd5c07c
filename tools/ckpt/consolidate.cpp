// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// `fsdpc ckpt consolidate`: the weights of a checkpoint as one safetensors
// file, with the bytes that --save would have written, or as Hugging Face's
// sharded layout: files of a limited size and an index that says where each
// tensor is.
#include "runtime/cli/output_paths.h"
#include "runtime/data/safetensors.h"
#include "runtime/support/json_text.h"
#include "runtime/support/new_file.h"
#include "runtime/support/renaming.h"
#include "tools/ckpt/commands.h"
#include "tools/ckpt/new_folder.h"
#include "tools/ckpt/source.h"

#include <cstdio>

namespace fsdpc::ckpt {

using namespace runtime;

namespace {

// Writes some of the tensors, in their order, as one file.
Status writeFile(const TensorSource &source, const std::vector<size_t> &tensors,
                 const Renaming &names, const std::string &path) {
  SafeTensorsHeader header;
  header.setBase(source.base());
  header.setRenaming(names);
  std::vector<uint64_t> offsets;
  for (size_t index : tensors) {
    const Tensor &tensor = source.tensors()[index];
    offsets.push_back(
        header.add(tensor.name, tensor.dtype, tensor.shape, tensor.aliases));
  }
  std::string text = header.text();
  NewFile file;
  FSDPC_TRY(file.open(path));
  FSDPC_TRY(file.write(0, text.data(), text.size()));
  for (size_t i = 0; i < tensors.size(); ++i)
    FSDPC_TRY(forEachPiece(source, tensors[i],
                           [&](const char *piece, uint64_t at, uint64_t bytes) {
                             return file.write(text.size() + offsets[i] + at,
                                               piece, bytes);
                           }));
  return file.commit();
}

// A file is full when the next tensor would exceed the limit; a tensor that
// exceeds it alone has a file of its own.
std::vector<std::vector<size_t>> split(const TensorSource &source,
                                       uint64_t mostBytes) {
  std::vector<std::vector<size_t>> files;
  uint64_t bytes = 0;
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    uint64_t more = source.tensors()[i].bytes;
    if (files.empty() || (bytes > 0 && bytes + more > mostBytes)) {
      files.emplace_back();
      bytes = 0;
    }
    files.back().push_back(i);
    bytes += more;
  }
  return files;
}

// The names are those that transformers looks for.
std::string shardName(size_t file, size_t files) {
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", file + 1,
                files);
  return files == 1 ? "model.safetensors" : name;
}

// Writes the folder under a temporary name and renames it at the end, so that a
// reader never finds an index whose files are missing.
Status writeSharded(const TensorSource &source, const Renaming &names,
                    const Arguments &arguments) {
  NewFolder folder;
  FSDPC_TRY(folder.open(arguments.output));
  auto files = split(source, arguments.mostShard);
  nlohmann::ordered_json index;
  uint64_t bytes = 0;
  for (const Tensor &tensor : source.tensors())
    bytes += tensor.bytes;
  index["metadata"]["total_size"] = bytes;
  for (size_t i = 0; i < files.size(); ++i) {
    std::string name = shardName(i, files.size());
    FSDPC_TRY(
        writeFile(source, files[i], names, folder.temporary() + "/" + name));
    for (size_t tensor : files[i])
      index["weight_map"][names(source.tensors()[tensor].name)] = name;
  }
  // transformers reads a single model.safetensors without an index.
  if (files.size() > 1) {
    std::string text = dump(index, 2) + "\n";
    NewFile file;
    FSDPC_TRY(file.open(folder.temporary() + "/model.safetensors.index.json"));
    FSDPC_TRY(file.write(0, text.data(), text.size()));
    FSDPC_TRY(file.commit());
  }
  return folder.commit();
}

// Refuses an output that is a file of the checkpoint, also under another path:
// the rename at the end would destroy what is being read.
Status writeOne(const TensorSource &source, const Renaming &names,
                const std::string &path) {
  std::vector<RunFile> inputs;
  for (const std::string &file : source.files())
    inputs.push_back({"the checkpoint", file});
  FSDPC_TRY(checkDistinct({{"-o", path}}, inputs));
  std::vector<size_t> all;
  for (size_t i = 0; i < source.tensors().size(); ++i)
    all.push_back(i);
  return writeFile(source, all, names, path);
}

} // namespace

int consolidate(const Arguments &arguments) {
  auto names = Renaming::parse("--rename", arguments.rename);
  if (!names)
    return report(names.error());
  auto source = openTensors(arguments.input, Content::values, arguments.step);
  if (!source)
    return report(source.error());
  if (Status different = names->check(namesOf(**source)); !different)
    return report(different.error());
  Status written = arguments.mostShard > 0
                       ? writeSharded(**source, *names, arguments)
                       : writeOne(**source, *names, arguments.output);
  return written ? int(ExitCode::success) : report(written.error());
}

} // namespace fsdpc::ckpt
