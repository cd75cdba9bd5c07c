// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Opens safetensors files and sharded folders. A folder of several files is
// read as one. checkpoints.cpp opens checkpoints, and ort_source.cpp those of
// onnxruntime.
#include "tools/ckpt/source.h"
#include "runtime/data/sharded_safetensors.h"
#include "runtime/support/spelling.h"
#include "tools/ckpt/checkpoints.h"

#include <algorithm>
#include <map>
#include <sys/stat.h>
#include <utility>

namespace fsdpc::ckpt {

using runtime::printable;
using runtime::SafeTensor;
using runtime::SafeTensors;

std::string Tensor::label() const {
  return "'" + printable(name) + "'" + (part.empty() ? "" : " " + part);
}

namespace {

class FileSource : public TensorSource {
public:
  // Adds the tensors of a file in the order of their data.
  Status add(SafeTensors opened) {
    const std::string path = opened.file().path();
    files.push_back(std::make_unique<SafeTensors>(std::move(opened)));
    paths.push_back(path);
    const SafeTensors &file = *files.back();
    if (baseHash.empty())
      baseHash = file.base();
    std::map<std::string, std::vector<std::string>> aliases;
    for (auto &[alias, name] : file.aliases())
      aliases[name].push_back(alias);
    std::vector<std::pair<uint64_t, std::string>> order;
    for (auto &[name, tensor] : file.tensors())
      order.emplace_back(tensor.offset, name);
    std::sort(order.begin(), order.end());
    for (auto &[offset, name] : order) {
      const SafeTensor &found = file.tensors().at(name);
      if (found.dtype.empty())
        return inputError(
            "'" + path + "' has tensor '" + printable(name) +
            "' of a type that fsdpc does not read; convert it to F32");
      Tensor tensor;
      tensor.name = name;
      tensor.dtype = found.dtype;
      tensor.shape = found.shape;
      tensor.aliases = aliases[name];
      tensor.bytes = found.bytes;
      list.push_back(std::move(tensor));
      places.emplace_back(&file, &found);
    }
    return {};
  }
  Status read(size_t tensor, uint64_t offset, void *to,
              uint64_t bytes) const override {
    auto [file, place] = places[tensor];
    return file->file().read(place->offset + offset, to, bytes);
  }

private:
  std::vector<std::unique_ptr<SafeTensors>> files;
  std::vector<std::pair<const SafeTensors *, const SafeTensor *>> places;
};

} // namespace

std::vector<std::string> namesOf(const TensorSource &source) {
  std::vector<std::string> names;
  for (const Tensor &tensor : source.tensors()) {
    names.push_back(tensor.name);
    names.insert(names.end(), tensor.aliases.begin(), tensor.aliases.end());
  }
  return names;
}

Result<std::unique_ptr<TensorSource>> openTensors(const std::string &path,
                                                  Content content,
                                                  std::optional<int64_t> step) {
  auto source = std::make_unique<FileSource>();
  std::string folder = runtime::shardedFolder(path);
  if (!folder.empty()) {
    auto files = runtime::openSharded(folder);
    FSDPC_TRY(files);
    for (SafeTensors &file : *files)
      FSDPC_TRY(source->add(std::move(file)));
    return std::unique_ptr<TensorSource>(std::move(source));
  }
  struct stat status;
  if (stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode))
    return openCheckpointTensors(path, content, step);
  Result<SafeTensors> file = SafeTensors::open(path);
  FSDPC_TRY(file);
  FSDPC_TRY(source->add(*std::move(file)));
  return std::unique_ptr<TensorSource>(std::move(source));
}

} // namespace fsdpc::ckpt
