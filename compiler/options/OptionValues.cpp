// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sets options from texts and attributes, and writes the attribute, by the
// functions in the rows of the table. An attribute lists only what was given.
#include "compiler/options/OptionTable.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace fsdpc::fsdp {

// Remembers that an option was given, once for repeated flags. Only given
// options go into the attribute and are checked for having an effect.
static void markGiven(const OptionInfo &option, CompileOptions &options) {
  if (!llvm::is_contained(options.given, &option))
    options.given.push_back(&option);
}

std::string setOption(const OptionInfo &option, StringRef text,
                      CompileOptions &options) {
  std::string fault = option.parse(option, text, options);
  if (!fault.empty())
    return ("--" + option.name + " '" + text + "' " + fault).str();
  markGiven(option, options);
  return "";
}

// Stops at the first fault. Keys come in the dictionary's sorted order, so the
// same dump gives the same message.
std::string readOptions(DictionaryAttr attribute, CompileOptions &options) {
  std::string error;
  llvm::raw_string_ostream stream(error);
  for (NamedAttribute entry : attribute) {
    StringRef name = entry.getName();
    const OptionInfo *option = findOption(name);
    if (!option) {
      SmallVector<StringRef> names;
      for (const OptionInfo &known : allOptions())
        names.push_back(known.name);
      stream << "there is no option '" << name << "'" << meant(name, names);
      return error;
    }
    std::string fault = option->read(*option, entry.getValue(), options);
    if (!fault.empty()) {
      stream << "'" << name << "' = " << entry.getValue() << " " << fault;
      return error;
    }
    markGiven(*option, options);
  }
  return error;
}

// Options at their defaults are left out, so a default that changes in a new
// version of the compiler also changes for an old dump.
DictionaryAttr writeOptions(const CompileOptions &options,
                            MLIRContext *context) {
  NamedAttrList list;
  for (const OptionInfo *option : options.given)
    if (Attribute value = option->write(options, context))
      list.set(option->name, value);
  return list.getDictionary(context);
}

CompileOptions CompileOptions::of(ModuleOp module) {
  CompileOptions options;
  if (auto attribute = module->getAttrOfType<DictionaryAttr>(kAttribute)) {
    // Nothing is cached: each call parses the attribute anew.
    [[maybe_unused]] std::string error = readOptions(attribute, options);
    assert(error.empty() && "the dialect verifies its attribute");
  }
  return options;
}

} // namespace fsdpc::fsdp
