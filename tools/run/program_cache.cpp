// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See program_cache.h. A folder that others may write to, or that cannot be
// written, is not used: the program then lies in a temporary folder. Each
// writer compiles to a file of its own and renames it.
#include "tools/run/program_cache.h"

#include "runtime/comm/wire.h"
#include "runtime/support/cache_folder.h"
#include "runtime/support/concat.h"
#include "runtime/support/diagnostics.h"
#include "runtime/support/file.h"
#include "runtime/support/input_file.h"
#include "runtime/support/programs.h"
#include "runtime/support/system_error.h"
#include "tools/run/notes.h"

#include <cerrno>
#include <climits>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace fsdpc::run {
namespace {

namespace fs = std::filesystem;

// A model is one message of protobuf, which has fewer bytes.
constexpr uint64_t mostModelBytes = uint64_t(1) << 31;

// What a name in the model stands for may be large, so its content does not
// count but what changes with it.
std::string stampOf(const fs::path &path) {
  struct stat state;
  if (stat(path.c_str(), &state) != 0)
    return path.string() + " absent\n";
  return concat(path.string(), " ", state.st_size, " ", state.st_ino, " ",
                state.st_mtim.tv_sec, ".", state.st_mtim.tv_nsec, "\n");
}

// Describes the files of external tensors. The message has them as the key
// "location" and a string; what only looks like one does no harm.
std::string externalFiles(const std::string &model, const fs::path &folder) {
  constexpr std::string_view mark("\x0a\x08location\x12", 11);
  std::string text, last;
  for (size_t at = model.find(mark); at != std::string::npos;
       at = model.find(mark, at + 1)) {
    size_t begin = at + mark.size(), bytes = 0;
    for (int shift = 0; begin < model.size() && shift < 28; shift += 7) {
      uint8_t byte = uint8_t(model[begin++]);
      bytes |= size_t(byte & 0x7f) << shift;
      if (byte < 0x80)
        break;
    }
    if (begin + bytes > model.size() || bytes > PATH_MAX)
      continue;
    std::string name = model.substr(begin, bytes);
    if (name == last || name.find('\0') != std::string::npos)
      continue;
    text += stampOf(folder / name);
    last = name;
  }
  return text;
}

// The processor decides what --cpu=native compiles.
std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  std::string text;
  for (std::string line; std::getline(file, line) && !line.empty();)
    if (line.starts_with("model name") || line.starts_with("flags"))
      text += line + "\n";
  return text;
}

Result<std::string> digestOfFile(const std::string &path) {
  Result<InputFile> file = InputFile::open(path);
  FSDPC_TRY(file);
  Result<std::string> content = file->readAll(mostModelBytes);
  FSDPC_TRY(content);
  return runtime::hexOf(runtime::digestOf(*content));
}

// Returns the digest of all that a compile reads.
Result<std::string> keyOf(const Arguments &arguments, const fs::path &tool) {
  Result<InputFile> file = InputFile::open(arguments.target);
  FSDPC_TRY(file);
  Result<std::string> model = file->readAll(mostModelBytes);
  FSDPC_TRY(model);
  // The program reads weights from where the model lies.
  std::error_code error;
  fs::path path = fs::canonical(arguments.target, error);
  std::string text = path.string() + "\n" +
                     runtime::hexOf(runtime::digestOf(*model)) + "\n" +
                     externalFiles(*model, path.parent_path()) + processor() +
                     fs::current_path(error).string() + "\n";
  for (const std::string &word : arguments.compiler) {
    text += word + "\n";
    // A table of a schedule, a machine, a trace.
    std::string value = word.substr(word.find('=') + 1);
    if (fs::is_regular_file(value, error))
      if (Result<std::string> digest = digestOfFile(value))
        text += *digest + "\n";
  }
  text += stampOf(tool);
  for (const auto &each :
       fs::directory_iterator(tool.parent_path() / "../lib", error))
    if (each.path().filename().string().starts_with("libfsdpc_runtime"))
      text += stampOf(each.path());
  text += stampOf(tool.parent_path() / "../lib/link/complete");
  return runtime::hexOf(runtime::digestOf(text)).substr(0, 32);
}

bool isOwnProgram(const std::string &path) {
  struct stat state;
  return lstat(path.c_str(), &state) == 0 && S_ISREG(state.st_mode) &&
         state.st_uid == geteuid() && (state.st_mode & 022) == 0 &&
         access(path.c_str(), X_OK) == 0;
}

// Compiles to a file. `code` is the compiler's.
Status compile(const Arguments &arguments, const fs::path &tool,
               const std::string &output, int &code) {
  // A name that begins with a dash would be a flag.
  std::string model = arguments.target;
  if (model[0] == '-')
    model = "./" + model;
  // The program does not lie beside its model.
  std::vector<std::string> words = {
      tool.string(), model, "-o", output, "--quiet", "--absolute-paths"};
  if (!arguments.cache.empty())
    words.push_back("--cache=" + arguments.cache);
  words.insert(words.end(), arguments.compiler.begin(),
               arguments.compiler.end());
  Result<int> ended = runAndWait(std::move(words));
  FSDPC_TRY(ended);
  code = *ended;
  return {};
}

// Compiles to a folder that only lives as long as the job.
Result<Program> compileAside(const Arguments &arguments, const fs::path &tool,
                             int &code) {
  std::string folder = runtime::temporaryFolder() + "/fsdpc-run-XXXXXX";
  if (!mkdtemp(folder.data()))
    return systemError(errno, "cannot make a folder in '" +
                                  runtime::temporaryFolder() + "'");
  Program program(fs::absolute(folder) /
                  fs::path(arguments.target).stem().string());
  program.temporary = folder;
  FSDPC_TRY(compile(arguments, tool, program.path, code));
  if (code == 0)
    note("compiled '" + arguments.target + "' to '" + program.path +
         "', which goes with the job");
  return program;
}

} // namespace

Program::Program(Program &&other) noexcept
    : path(std::move(other.path)),
      temporary(std::exchange(other.temporary, "")) {}

Program::~Program() {
  std::error_code error;
  if (!temporary.empty())
    fs::remove_all(temporary, error);
}

Result<Program> findProgramOf(const Arguments &arguments, int &code) {
  std::error_code error;
  code = 0;
  if (!arguments.isModel()) {
    // A bare name is a file here, and nothing on PATH.
    std::string path = fs::absolute(arguments.target, error).string();
    FSDPC_TRY(findProgram(path));
    return Program(path);
  }
  fs::path tool = ownProgram();
  if (arguments.cache == "none")
    return compileAside(arguments, tool, code);
  Result<std::string> folder = cacheFolder(arguments.cache, "programs");
  if (!folder) {
    runtime::printWarning("compiled programs are not kept: " +
                          folder.error().message);
    return compileAside(arguments, tool, code);
  }
  Result<std::string> key = keyOf(arguments, tool);
  FSDPC_TRY(key);
  trimCache(*folder, {});
  Program program(*folder + "/" + fs::path(arguments.target).stem().string() +
                  "-" + *key);
  if (isOwnProgram(program.path)) {
    noteUse(program.path);
    note("'" + arguments.target + "' is compiled already: '" + program.path +
         "'");
    return program;
  }
  // Others may be compiling the same: each writes a file of its own, and the
  // last one to end gives its name.
  std::string own = concat(program.path, ".", getpid());
  FSDPC_TRY(compile(arguments, tool, own, code));
  if (code != 0)
    return program;
  chmod(own.c_str(), 0700);
  if (rename(own.c_str(), program.path.c_str()) != 0)
    return systemError(errno, "cannot rename '" + own + "'");
  note("compiled '" + arguments.target + "' to '" + program.path + "'");
  return program;
}

} // namespace fsdpc::run
