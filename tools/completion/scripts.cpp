// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The scripts of the three shells. Each finds the command in the words so far
// and then reads a table by command and flag. Nothing is asked of fsdpc while a
// user types, since it takes longer to start than one waits for a completion.
#include "runtime/support/concat.h"
#include "tools/completion/completion.h"

#include <algorithm>
#include <map>

namespace fsdpc::completion {
namespace {

std::string joined(const std::vector<std::string> &words,
                   const char *separator = " ") {
  std::string text;
  for (const std::string &word : words)
    text += (text.empty() ? "" : separator) + word;
  return text;
}

std::string replaced(std::string text, const std::string &from,
                     const std::string &to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;
       at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// Returns text in single quotes, as bash and zsh read it.
std::string quoted(const std::string &text) {
  return "'" + replaced(text, "'", "'\\''") + "'";
}

// Returns the first words of all names but the compile's, in order.
std::vector<std::string> firstWords(std::span<const Command> commands) {
  std::vector<std::string> words;
  for (const Command &command : commands) {
    std::string word = command.name.substr(0, command.name.find(' '));
    if (!word.empty() && std::ranges::find(words, word) == words.end())
      words.push_back(word);
  }
  return words;
}

// Returns what may follow a command's name: the second words of longer names,
// or the choices of its argument.
std::vector<std::string> wordsAfter(const Command &command,
                                    std::span<const Command> commands) {
  std::vector<std::string> words = command.choices;
  std::string prefix = command.name + " ";
  for (const Command &other : commands)
    if (!command.name.empty() && other.name.starts_with(prefix))
      words.push_back(other.name.substr(prefix.size()));
  return words;
}

// The name of the function that completes a command in zsh.
std::string functionOf(const Command &command) {
  return "_fsdpc_" +
         (command.name.empty() ? "compile" : replaced(command.name, " ", "_"));
}

// One entry of zsh's _arguments. A colon would end a name.
std::string zshEntry(const Flag &flag, const std::string &name) {
  std::string help = summaryOf(flag.help);
  for (const char *special : {"[", "]", ":"})
    help = replaced(help, special, std::string("\\") + special);
  std::string entry = "*" + name;
  if (flag.value.empty())
    return entry + "[" + help + "]";
  entry += name.starts_with("--") ? "=" : "+";
  return entry + "[" + help + "]:" + replaced(flag.value, ":", "\\:") + ":" +
         (flag.choices.empty() ? "_files" : "(" + joined(flag.choices) + ")");
}

} // namespace

std::string bashScript(std::span<const Command> commands) {
  // Flags of several commands with the same choices share a row. Without
  // choices the list stays empty, and readline completes to files.
  std::map<std::string, std::vector<std::string>> rows;
  for (const Command &command : commands)
    for (const Flag &flag : command.flags)
      if (!flag.value.empty())
        for (const std::string &name : flag.names)
          rows[joined(flag.choices)].push_back(
              quoted(command.name + ":" + name));
  std::string values, words, second;
  for (auto &[choices, patterns] : rows)
    values += "  " + joined(patterns, " | ") +
              ")\n    words=" + quoted(choices) + " ;;\n";
  for (const Command &command : commands) {
    std::vector<std::string> names;
    for (const Flag &flag : command.flags)
      names.insert(names.end(), flag.names.begin(), flag.names.end());
    words += "    " + quoted(command.name) +
             ") words=" + quoted(joined(names)) + " ;;\n";
    if (auto after = wordsAfter(command, commands); !after.empty())
      second += "    " + quoted(command.name) +
                ") words=" + quoted(joined(after)) + " ;;\n";
  }
  std::vector<std::string> names;
  for (const Command &command : commands)
    if (!command.name.empty())
      names.push_back(quoted(command.name));
  return R"(# Completes fsdpc. Printed by 'fsdpc completion bash'.
_fsdpc() {
  local current=${COMP_WORDS[COMP_CWORD]} flag=${COMP_WORDS[COMP_CWORD-1]} command="" words="" count
  # The longest name of a command that stands in front.
  for count in 1 2; do
    ((count < COMP_CWORD)) || break
    case "${COMP_WORDS[*]:1:count}" in
    )" + joined(names, " | ") +
         R"()
      command="${COMP_WORDS[*]:1:count}" ;;
    esac
  done
  # bash splits words at '='.
  if [[ $current == = ]]; then
    current=
  elif [[ $flag == = ]]; then
    flag=${COMP_WORDS[COMP_CWORD-2]}
  fi
  COMPREPLY=()
  case "$command:$flag" in
)" + values +
         R"(  *)
    if [[ $current == -* ]]; then
      case "$command" in
)" + words +
         R"(      esac
    elif ((COMP_CWORD == 1)); then
      # A command, or a model.
      mapfile -t COMPREPLY < <(compgen -W ')" +
         joined(firstWords(commands)) +
         R"(' -- "$current"; compgen -f -- "$current")
      compopt -o filenames 2>/dev/null
      return
    elif ((COMP_CWORD == 2)); then
      case "$command" in
)" + second +
         R"(      esac
    fi ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o default -F _fsdpc fsdpc
)";
}

std::string zshScript(std::span<const Command> commands) {
  std::string script = "#compdef fsdpc\n"
                       "# Completes fsdpc. Printed by 'fsdpc completion "
                       "zsh'.\n";
  std::string cases;
  for (const Command &command : commands) {
    std::vector<std::string> after = wordsAfter(command, commands);
    script += functionOf(command) + "() {\n  _arguments";
    for (const Flag &flag : command.flags)
      for (const std::string &name : flag.names)
        script += " \\\n    " + quoted(zshEntry(flag, name));
    script += " \\\n    " +
              (after.empty() ? std::string("'*:file:_files'")
                             : "'1:command:(" + joined(after) + ")'") +
              "\n}\n";
    if (command.name.empty())
      continue;
    // Longer names are matched first.
    cases = concat(
        "  ", quoted(command.name + " "), "*) shift ",
        1 + std::ranges::count(command.name, ' '),
        " words; ((CURRENT -= ", 1 + std::ranges::count(command.name, ' '),
        ")); ", functionOf(command), " ;;\n", cases);
  }
  script += "_fsdpc() {\n"
            "  if ((CURRENT == 2)) && [[ $words[2] != -* ]]; then\n"
            "    local -a commands=(";
  for (const Command &command : commands)
    if (!command.name.empty() && command.name.find(' ') == std::string::npos)
      script +=
          "\n      " + quoted(command.name + ":" +
                              replaced(summaryOf(command.help), ":", "\\:"));
  script += ")\n"
            "    _describe command commands\n"
            "    _files\n"
            "    return\n"
            "  fi\n"
            "  case \"${words[2,CURRENT-1]} \" in\n" +
            cases +
            "  *) _fsdpc_compile ;;\n"
            "  esac\n"
            "}\n"
            // As a file of $fpath it is called by its name, and sourced it
            // registers itself.
            "if [[ $funcstack[1] == _fsdpc ]]; then _fsdpc \"$@\"; else "
            "compdef _fsdpc fsdpc; fi\n";
  return script;
}

std::string fishScript(std::span<const Command> commands) {
  std::vector<std::string> names;
  for (const Command &command : commands)
    if (!command.name.empty())
      names.push_back(quoted(command.name));
  std::string script =
      "# Completes fsdpc. Printed by 'fsdpc completion fish'.\n"
      "# Prints the command that stands in front, \"\" for a compile.\n"
      "function __fsdpc_command\n"
      "    set -l words (commandline -opc)\n"
      "    set -l command \"\"\n"
      "    for last in 2 3\n"
      "        contains -- \"$words[2..$last]\" " +
      joined(names) +
      "; and set command \"$words[2..$last]\"\n"
      "    end\n"
      "    echo $command\n"
      "end\n";
  auto text = [](const std::string &plain) {
    return "'" + replaced(replaced(plain, "\\", "\\\\"), "'", "\\'") + "'";
  };
  for (const Command &command : commands)
    if (!command.name.empty() && command.name.find(' ') == std::string::npos)
      script += "complete -c fsdpc -n 'test (count (commandline -opc)) -eq 1' "
                "-a " +
                command.name + " -d " + text(summaryOf(command.help)) + "\n";
  for (const Command &command : commands) {
    std::string row = "complete -c fsdpc -n 'test (__fsdpc_command) = \"" +
                      command.name + "\"'";
    if (auto after = wordsAfter(command, commands); !after.empty())
      script += row + " -x -a " + text(joined(after)) + "\n";
    for (const Flag &flag : command.flags) {
      script += row;
      for (const std::string &name : flag.names)
        script += name.starts_with("--") ? " -l " + name.substr(2)
                                         : " -s " + name.substr(1);
      if (!flag.value.empty())
        script += flag.choices.empty() ? " -r"
                                       : " -x -a " + text(joined(flag.choices));
      script += " -d " + text(summaryOf(flag.help)) + "\n";
    }
  }
  return script;
}

} // namespace fsdpc::completion
