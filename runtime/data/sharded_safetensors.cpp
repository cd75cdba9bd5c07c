// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads the index, and opens the files that it names.
#include "runtime/data/sharded_safetensors.h"
#include "runtime/support/json_text.h"
#include "runtime/support/spelling.h"

#include <nlohmann/json.hpp>

#include <map>
#include <set>
#include <sys/stat.h>
#include <utility>

namespace fsdpc::runtime {
namespace {

const char indexName[] = "model.safetensors.index.json";
const char onlyName[] = "model.safetensors";
constexpr uint64_t mostIndexBytes = 100000000;

// Reads the weight_map: tensor → file. The parser throws at anything else.
Result<std::map<std::string, std::string>> readIndex(const std::string &path) {
  Result<File> file = File::open(path);
  FSDPC_TRY(file);
  if (file->size() > mostIndexBytes)
    return inputError("'" + path + "' is too large for an index");
  std::string text(file->size(), '\0');
  FSDPC_TRY(file->read(0, text.data(), text.size()));
  try {
    return parseJson<nlohmann::json>(text, /*deepest=*/2)
        .at("weight_map")
        .get<std::map<std::string, std::string>>();
  } catch (const std::exception &fault) {
    return inputError("'" + path + "' is not an index of safetensors files: " +
                      printable(fault.what()));
  }
}

bool holds(const std::string &folder, const char *name) {
  struct stat status;
  return stat((folder + "/" + name).c_str(), &status) == 0;
}

} // namespace

std::string shardedFolder(const std::string &path) {
  struct stat status;
  if (stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode))
    return holds(path, indexName) || holds(path, onlyName) ? path : "";
  size_t slash = path.rfind('/') + 1; // 0 without a slash
  if (path.substr(slash) != indexName)
    return "";
  return slash == 0 ? "." : path.substr(0, slash - 1);
}

Result<std::vector<SafeTensors>> openSharded(const std::string &folder) {
  std::vector<SafeTensors> files;
  if (!holds(folder, indexName)) {
    Result<SafeTensors> only = SafeTensors::open(folder + "/" + onlyName);
    FSDPC_TRY(only);
    files.push_back(*std::move(only));
    return files;
  }
  std::string path = folder + "/" + indexName;
  auto index = readIndex(path);
  FSDPC_TRY(index);
  std::set<std::string> names;
  for (auto &[tensor, file] : *index) {
    if (file.empty() || file[0] == '.' || file.find('/') != std::string::npos)
      return inputError("'" + path + "' names the file '" + printable(file) +
                        "', which is not in its folder");
    names.insert(file);
  }
  for (const std::string &name : names) {
    Result<SafeTensors> opened = SafeTensors::open(folder + "/" + name);
    FSDPC_TRY(opened);
    for (auto &[tensor, place] : opened->tensors()) {
      auto entry = index->find(tensor);
      if (entry == index->end() || entry->second != name)
        return inputError("'" + path + "' does not say that tensor '" +
                          printable(tensor) + "' is in '" + name + "'");
      index->erase(entry);
    }
    files.push_back(*std::move(opened));
  }
  if (!index->empty())
    return inputError("'" + folder + "/" + index->begin()->second +
                      "' lacks tensor '" + printable(index->begin()->first) +
                      "', which the index says it has");
  return files;
}

} // namespace fsdpc::runtime
