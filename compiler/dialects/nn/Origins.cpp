// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Puts the modules of an op into its location, and names such locations.
#include "compiler/dialects/nn/Origins.h"

#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::nn;

Location nn::withModules(Location location, ModulesAttr modules) {
  SmallVector<Attribute> list;
  for (auto [path, cls] :
       llvm::zip_equal(modules.getPaths(), modules.getClasses()))
    list.append({path, cls});
  MLIRContext *context = location.getContext();
  return FusedLoc::get({location}, ArrayAttr::get(context, list), context);
}

// Returns the list of modules, or null.
static ArrayAttr modulesIn(Location location) {
  auto fused = dyn_cast<FusedLoc>(location);
  auto list =
      fused ? dyn_cast_if_present<ArrayAttr>(fused.getMetadata()) : ArrayAttr();
  bool areTexts =
      list && !list.empty() && llvm::all_of(list, llvm::IsaPred<StringAttr>);
  return areTexts ? list : ArrayAttr();
}

// Returns null if a class is missing.
static ModulesAttr parseModules(ArrayAttr list) {
  if (list.size() % 2 != 0)
    return {};
  SmallVector<StringAttr> paths, classes;
  for (auto [i, text] : llvm::enumerate(list.getAsRange<StringAttr>()))
    (i % 2 == 0 ? paths : classes).push_back(text);
  return ModulesAttr::get(list.getContext(), paths, classes);
}

bool nn::hasModules(Location location) { return bool(modulesIn(location)); }

std::pair<Location, ModulesAttr> nn::withoutModules(Location location) {
  ArrayAttr list = modulesIn(location);
  assert(list && "a location without modules");
  // MLIR returns the location itself where there is one.
  Location plain = FusedLoc::get(cast<FusedLoc>(location).getLocations(),
                                 Attribute(), location.getContext());
  return {plain, parseModules(list)};
}

// Returns the end of a name, of whole words and no longer than a line bears.
static StringRef shortened(StringRef name) {
  constexpr size_t longest = 36;
  while (name.size() > longest) {
    size_t word = name.find('_');
    if (word == StringRef::npos)
      break;
    name = name.substr(word).ltrim('_');
  }
  // A name begins with a letter.
  StringRef trimmed = name.ltrim("0123456789_");
  return trimmed.empty() ? "origin" : trimmed;
}

OpAsmDialectInterface::AliasResult
OriginNames::getAlias(Attribute attribute, raw_ostream &os) const {
  auto location = dyn_cast<LocationAttr>(attribute);
  ArrayAttr list = location ? modulesIn(location) : ArrayAttr();
  ModulesAttr modules = list ? parseModules(list) : ModulesAttr();
  if (!modules)
    return AliasResult::NoAlias;
  std::string name;
  llvm::raw_string_ostream stream(name);
  (void)modules.getAlias(stream);
  os << shortened(name);
  return AliasResult::FinalAlias;
}
