// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Opens the files of --init by their form, and matches the names of tensors.
// Exporters wrap a model in a module that computes its loss, so the names of a
// hub's checkpoint lack a prefix, and those of a trainer's have one too many.
#include "runtime/data/init_file.h"
#include "runtime/data/npz.h"
#include "runtime/data/sharded_safetensors.h"
#include "runtime/support/concat.h"
#include "runtime/support/json_text.h"
#include "runtime/support/nearest.h"
#include "runtime/support/spelling.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <sys/stat.h>
#include <utility>

namespace fsdpc::runtime {
namespace {

bool endsWith(const std::string &text, const std::string &end) {
  return text.size() >= end.size() &&
         text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// torch.save writes a zip archive or, in its old form, a pickle.
bool isTorchFile(const File &file) {
  char start[4] = {};
  return file.size() >= 4 && file.read(0, start, 4) &&
         (std::memcmp(start, "PK\3\4", 4) == 0 ||
          std::memcmp(start, "\x80\2", 2) == 0);
}

} // namespace

// ---- files ----

Result<InitFile> InitFile::open(const std::string &path) {
  InitFile init;
  init.given = path;
  std::string folder = shardedFolder(path);
  if (!folder.empty()) {
    auto files = openSharded(folder);
    FSDPC_TRY(files);
    init.opened = *std::move(files);
  } else if (struct stat status;
             stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) {
    return inputError(
        "'" + path +
        "' is a folder without model.safetensors or an index of such "
        "files; those of a checkpoint are written by 'fsdpc ckpt "
        "consolidate " +
        path + " -o F.safetensors'");
  } else {
    Result<File> file = File::open(path);
    FSDPC_TRY(file);
    if (endsWith(path, ".npz")) {
      auto arrays = arraysInNpz(path);
      FSDPC_TRY(arrays);
      init.npz = std::make_unique<File>(*std::move(file));
      for (auto &[name, array] : *arrays)
        init.entries[name] = {init.npz.get(), array};
      return init;
    }
    if (isTorchFile(*file))
      return inputError("'" + path +
                        "' is a file of torch.save; write its tensors to a "
                        "safetensors file with 'fsdpc ckpt convert " +
                        path + " --from state-dict --to safetensors -o " +
                        path + ".safetensors'");
    Result<SafeTensors> tensors = SafeTensors::open(path);
    FSDPC_TRY(tensors);
    init.opened.push_back(*std::move(tensors));
  }
  for (const SafeTensors &file : init.opened) {
    for (auto &[name, tensor] : file.tensors())
      init.entries[name] = {&file.file(), tensor};
    init.aliases.insert(file.aliases().begin(), file.aliases().end());
  }
  return init;
}

std::vector<std::string> InitFile::files() const {
  if (npz)
    return {given};
  std::vector<std::string> paths;
  for (const SafeTensors &file : opened)
    paths.push_back(file.file().path());
  return paths;
}

std::string InitFile::base() const {
  for (const SafeTensors &file : opened)
    if (!file.base().empty())
      return file.base();
  return "";
}

// ---- names ----

std::string InitFile::nameInFile(const std::string &name,
                                 const Renaming &by) const {
  return storedName(name.rfind(by.inProgram, 0) == 0
                        ? by.inFile + name.substr(by.inProgram.size())
                        : name);
}

const InitTensor *InitFile::lookUp(const std::string &name,
                                   const Renaming &by) const {
  std::string key = nameInFile(name, by);
  auto entry = entries.find(key);
  if (auto alias = aliases.find(key);
      entry == entries.end() && alias != aliases.end())
    entry = entries.find(alias->second);
  return entry == entries.end() ? nullptr : &entry->second;
}

const InitTensor *InitFile::lookUp(const Names &names,
                                   const Renaming &by) const {
  for (const std::string &name : names)
    if (const InitTensor *tensor = lookUp(name, by))
      return tensor;
  return nullptr;
}

// A prefix is one of all names: those of a tied parameter have it as well.
bool InitFile::fits(const std::vector<Names> &parameters,
                    const Renaming &by) const {
  return std::all_of(
      parameters.begin(), parameters.end(), [&](const Names &names) {
        return names[0].rfind(by.inProgram, 0) == 0 && lookUp(names, by);
      });
}

// Returns the prefixes with which one parameter has its name in the file: each
// of its own that the file may lack, and each that the file may have in front.
std::vector<InitFile::Renaming> InitFile::candidates(const Names &names) const {
  std::vector<Renaming> found;
  const std::string &name = names[0];
  for (size_t dot = name.find('.'); dot != std::string::npos;
       dot = name.find('.', dot + 1))
    found.push_back({"", name.substr(0, dot + 1)});
  for (const std::string &end : names)
    for (auto &[other, tensor] : entries)
      if (endsWith(other, "." + end))
        found.push_back({other.substr(0, other.size() - end.size()), ""});
  return found;
}

Status InitFile::match(const std::vector<Names> &parameters,
                       const std::string &rename) {
  if (!rename.empty()) {
    size_t equals = rename.find('=');
    renaming = {rename.substr(0, equals), rename.substr(equals + 1)};
    return {};
  }
  if (parameters.empty() || fits(parameters, {}))
    return {};
  std::set<Renaming> fitting;
  for (const Renaming &candidate : candidates(parameters[0]))
    if (fits(parameters, candidate))
      fitting.insert(candidate);
  if (fitting.size() > 1) {
    std::string flags;
    for (const Renaming &one : fitting)
      flags += (flags.empty() ? "'--rename=" : " or '--rename=") +
               printable(one.inFile + "=" + one.inProgram) + "'";
    return inputError(
        concat("'", given, "' has the program's parameters under ",
               fitting.size(), " prefixes; say which is meant with ", flags));
  }
  if (!fitting.empty())
    renaming = *fitting.begin();
  return {};
}

const InitTensor *InitFile::find(const Names &names) const {
  return lookUp(names, renaming);
}

std::vector<const InitTensor *> InitFile::findAll(const Names &names) const {
  std::vector<const InitTensor *> found;
  for (const std::string &name : names)
    if (const InitTensor *tensor = lookUp(name, renaming);
        tensor && std::find(found.begin(), found.end(), tensor) == found.end())
      found.push_back(tensor);
  return found;
}

std::string InitFile::nameOf(const InitTensor &tensor) const {
  for (auto &[name, entry] : entries)
    if (&entry == &tensor)
      return name;
  return "";
}

std::string InitFile::note() const {
  const auto &[inFile, inProgram] = renaming;
  if (inFile.empty() && inProgram.empty())
    return "";
  auto quoted = [](const std::string &prefix) {
    return "'" + printable(prefix) + "'";
  };
  std::string change =
      inFile.empty() ? "without " + quoted(inProgram)
      : inProgram.empty()
          ? "with " + quoted(inFile) + " in front"
          : "with " + quoted(inFile) + " for " + quoted(inProgram);
  return "'" + given + "' has the names of the parameters " + change;
}

std::string InitFile::nearestTo(const std::string &name) const {
  std::vector<std::string> names;
  for (auto &[other, tensor] : entries)
    names.push_back(other);
  std::string near = nearest(nameInFile(name, renaming), names);
  return near.empty() ? "" : "; the nearest is '" + near + "'";
}

} // namespace fsdpc::runtime
