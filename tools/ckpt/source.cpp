// Opens safetensors files and sharded folders. The index of a sharded folder
// comes from outside like the files: a name in it must be a file of that
// folder, and every tensor must be where the index says.
#include "tools/ckpt/source.h"
#include "runtime/core/safetensors.h"
#include "runtime/core/spelling.h"
#include "tools/ckpt/checkpoints.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <sys/stat.h>
#include <utility>

namespace fsdpc::ckpt {

using runtime::File;
using runtime::printable;
using runtime::SafeTensor;
using runtime::SafeTensors;

std::string Tensor::label() const {
  return "'" + printable(name) + "'" + (part.empty() ? "" : " " + part);
}

namespace {

const char indexName[] = "model.safetensors.index.json";
// An index has about 100 bytes per tensor; this allows a million of them.
constexpr uint64_t mostIndexBytes = 100000000;

// The tensors of one or more safetensors files, as one list.
class FileSource : public TensorSource {
public:
  // Adds the tensors of a file in the order of their data.
  Status add(const std::string &path) {
    Result<SafeTensors> opened = SafeTensors::open(path);
    FSDPC_TRY(opened);
    files.push_back(std::make_unique<SafeTensors>(*std::move(opened)));
    // The file is behind a pointer, so its address holds when `files` grows.
    paths.push_back(path);
    const SafeTensors &file = *files.back();
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
        return Error{"'" + path + "' has tensor '" + printable(name) +
                     "' of a type that fsdpc does not read; convert it to F32"};
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

// Reads the weight_map: tensor → file. The parser throws at anything else.
Result<std::map<std::string, std::string>> readIndex(const std::string &path) {
  Result<File> file = File::open(path);
  FSDPC_TRY(file);
  if (file->size() > mostIndexBytes)
    return Error{"'" + path + "' is too large for an index"};
  std::string text(file->size(), '\0');
  FSDPC_TRY(file->read(0, text.data(), text.size()));
  try {
    return nlohmann::json::parse(text)
        .at("weight_map")
        .get<std::map<std::string, std::string>>();
  } catch (const std::exception &fault) {
    return Error{"'" + path + "' is not an index of safetensors files: " +
                 printable(fault.what())};
  }
}

Result<std::unique_ptr<TensorSource>> openSharded(const std::string &folder) {
  std::string path = folder + "/" + indexName;
  auto index = readIndex(path);
  FSDPC_TRY(index);
  // Each file is opened once, in the order of its name.
  std::vector<std::string> names;
  for (auto &[tensor, file] : *index) {
    if (file.empty() || file[0] == '.' || file.find('/') != std::string::npos)
      return Error{"'" + path + "' names the file '" + printable(file) +
                   "', which is not in its folder"};
    names.push_back(file);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  auto source = std::make_unique<FileSource>();
  // Erases the index's entries as they are found; what remains is missing.
  for (const std::string &name : names) {
    size_t first = source->tensors().size();
    FSDPC_TRY(source->add(folder + "/" + name));
    for (size_t i = first; i < source->tensors().size(); ++i) {
      auto entry = index->find(source->tensors()[i].name);
      if (entry == index->end() || entry->second != name)
        return Error{"'" + path + "' does not say that tensor " +
                     source->tensors()[i].label() + " is in '" + name + "'"};
      index->erase(entry);
    }
  }
  if (!index->empty())
    return Error{"'" + folder + "/" + index->begin()->second +
                 "' lacks tensor '" + printable(index->begin()->first) +
                 "', which the index says it has"};
  return std::unique_ptr<TensorSource>(std::move(source));
}

bool exists(const std::string &path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0;
}

} // namespace

Result<std::unique_ptr<TensorSource>> openTensors(const std::string &path,
                                                  Content content,
                                                  std::optional<int64_t> step) {
  struct stat status;
  bool isFolder = stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
  if (isFolder && exists(path + "/" + indexName))
    return openSharded(path);
  if (isFolder)
    return openCheckpointTensors(path, content, step);
  size_t slash = path.rfind('/') + 1; // 0 without a slash
  if (path.substr(slash) == indexName)
    return openSharded(slash == 0 ? "." : path.substr(0, slash - 1));
  auto source = std::make_unique<FileSource>();
  FSDPC_TRY(source->add(path));
  return std::unique_ptr<TensorSource>(std::move(source));
}

} // namespace fsdpc::ckpt
