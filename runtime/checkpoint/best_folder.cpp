// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Only rank 0 uses the folder. A name of its own for each step keeps a crash
// from leaving one step's parameters beside another step's loss.
#include "runtime/checkpoint/best_folder.h"
#include "runtime/support/file.h"
#include "runtime/support/new_file.h"

#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstdio>
#include <sys/stat.h>
#include <unistd.h>

namespace fsdpc::runtime {

using Json = nlohmann::ordered_json;

BestFolder::~BestFolder() {
  if (made && file.empty())
    rmdir(folder.c_str());
}

// A folder without best.json may hold other files, which stay.
Status BestFolder::open(const std::string &path, bool resumes) {
  folder = path;
  made = mkdir(path.c_str(), 0777) == 0;
  if (!made && errno != EEXIST)
    return fileError(path, "create");
  std::string index = path + "/best.json";
  if (access(index.c_str(), F_OK) != 0)
    return checkWritable(index);
  if (!resumes)
    return Error{"'" + path +
                 "' holds the best parameters of another run; continue that "
                 "run with --resume, or name another folder"};
  auto opened = File::open(index);
  FSDPC_TRY(opened);
  std::string text(size_t(opened->size()), ' ');
  FSDPC_TRY(opened->read(0, text.data(), text.size()));
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("file") ||
      !json["file"].is_string() || !json.contains("eval_loss") ||
      !json["eval_loss"].is_number())
    return Error{"'" + index +
                 "' is not a file that --best wrote; name another folder"};
  file = json["file"].get<std::string>();
  lowest = json["eval_loss"].get<double>();
  return checkWritable(index);
}

std::string BestFolder::pathOf(int64_t step) const {
  char name[64];
  std::snprintf(name, sizeof name, "/step-%07lld.safetensors",
                static_cast<long long>(step));
  return folder + name;
}

// The order keeps best.json true at every moment: new file, new index, and only
// then is the old file removed.
Status BestFolder::publish(int64_t step, double loss) {
  std::string path = pathOf(step), name = path.substr(folder.size() + 1);
  std::string text =
      Json{{"file", name}, {"step", step}, {"eval_loss", loss}}.dump() + "\n";
  NewFile index;
  FSDPC_TRY(index.open(folder + "/best.json"));
  FSDPC_TRY(index.write(0, text.data(), text.size()));
  FSDPC_TRY(index.commit());
  // A name with a slash was not written by this program.
  if (!file.empty() && file != name && file.find('/') == std::string::npos)
    unlink((folder + "/" + file).c_str());
  file = name;
  lowest = loss;
  return {};
}

} // namespace fsdpc::runtime
