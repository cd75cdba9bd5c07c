// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See remote_script.h.
#include "tools/run/remote_script.h"

#include "runtime/support/concat.h"
#include "runtime/support/programs.h"

#include <cstdlib>
#include <filesystem>

extern char **environ;

namespace fsdpc::run {

std::string remoteScript(const RemoteJob &job, size_t host) {
  int64_t first = 0;
  for (size_t i = 0; i < host; ++i)
    first += job.hosts[i].slots;
  int64_t here = job.hosts[host].slots;
  std::error_code error;
  std::string script =
      "read -r FSDPC_SECRET; export FSDPC_SECRET; exec 3<&0; cd " +
      shellQuoted(std::filesystem::current_path(error).string()) +
      " || exit 1; ";
  for (char **at = environ; *at; ++at) {
    std::string variable = *at, name = variable.substr(0, variable.find('='));
    if (name.starts_with("FSDPC_") && name != "FSDPC_SECRET" &&
        name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") ==
            std::string::npos)
      script += "export " + name + "=" +
                shellQuoted(variable.substr(name.size() + 1)) + "; ";
  }
  std::string words;
  for (const std::string &word : job.program)
    words += " " + shellQuoted(word);
  script += "p=; for l in";
  for (int64_t local = 0; local < here; ++local)
    script += concat(" ", local);
  script += concat("; do RANK=$((", first,
                   "+l)) LOCAL_RANK=$l WORLD_SIZE=", job.ranks,
                   " LOCAL_WORLD_SIZE=", here,
                   " MASTER_ADDR=", shellQuoted(job.hosts[0].address()),
                   " MASTER_PORT=", job.port, words,
                   " </dev/null 3<&- & p=\"$p $!\"; done; ");
  // Without a reader of its input, the ranks get a minute to save.
  script += "(trap '' TERM; while read -r s <&3; do kill -s $s $p; done; "
            "kill -s TERM $p; sleep 60; kill -s KILL $p) 2>/dev/null & w=$!; "
            "c=0; for i in $p; do wait $i; e=$?; "
            "[ $c -ne 0 ] || c=$e; done; kill -s KILL $w; exit $c";
  return script;
}

} // namespace fsdpc::run
