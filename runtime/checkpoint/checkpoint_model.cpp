// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compares the model of a checkpoint with that of the program that reads it.
// Layouts are not compared: another strategy or number of units reads the same
// parameters.
#include "runtime/checkpoint/checkpoint_manifest.h"
#include "runtime/data/sample_file.h"
#include "runtime/support/concat.h"
#include "runtime/support/json_text.h"
#include "runtime/support/spelling.h"

#include <map>
#include <set>

namespace fsdpc::runtime {
namespace {

using Places =
    std::map<std::string, std::pair<const Member *, const StoredLayout *>>;

std::string describe(const std::string &name,
                     const std::vector<int64_t> &shape) {
  return "'" + printable(name) + "' " + shapeText(shape);
}

// Only members of layouts of bytes have a type of their own.
std::string typeOf(const Member &member) {
  return member.dtype.empty() ? "a parameter" : "of " + member.dtype;
}

// Returns the parameters of the checkpoint under each of their names.
Places placesOf(const CheckpointManifest &stored) {
  Places known;
  for (const StoredLayout &layout : stored.layouts)
    for (const Member &member : layout.members) {
      known[member.name] = {&member, &layout};
      for (const std::string &alias : member.aliases)
        known.try_emplace(alias, &member, &layout);
    }
  return known;
}

// Appends what differs between a parameter and the stored one. Either has the
// optimizer's states, unless it is frozen. A value that is left out was frozen,
// and only the values that are still frozen have a hash to be compared.
void compare(const Layout &layout, const Member &member, const Member &place,
             const StoredLayout &home, std::vector<std::string> &found) {
  if (place.shape != member.shape)
    found.push_back("its " + describe(member.name, place.shape) + " is " +
                    shapeText(member.shape) + " here");
  else if (place.dtype != member.dtype)
    found.push_back("its " + describe(member.name, place.shape) + " is " +
                    typeOf(place) + ", but " + typeOf(member) + " here");
  else if (home.leftOut && layout.trainable)
    found.push_back("its " + describe(member.name, place.shape) +
                    " is left out as frozen, but trains here");
  // A parameter that was frozen has no states; they start at zero.
  else if (int32_t own = layout.states - int32_t(layout.average);
           layout.trainable && home.ownStates() != 0 && home.ownStates() != own)
    found.push_back(concat("its ", describe(member.name, place.shape), " has ",
                           home.ownStates(), " optimizer states, but ",
                           layout.optimizer, " has ", own));
}

void compareParameters(const CheckpointManifest &stored,
                       const Manifest &manifest,
                       std::vector<std::string> &found) {
  Places known = placesOf(stored);
  std::set<const Member *> taken;
  for (const Layout &layout : manifest.layouts)
    for (const Member &member : layout.members) {
      // A tied parameter may be stored under any of its names, or under each.
      auto other = known.end();
      for (const std::string &name : storedNames(member)) {
        auto named = known.find(name);
        if (named == known.end())
          continue;
        taken.insert(named->second.first);
        if (other == known.end())
          other = named;
      }
      if (other == known.end()) {
        found.push_back("it has no " + describe(member.name, member.shape));
        continue;
      }
      const auto [place, home] = other->second;
      compare(layout, member, *place, *home, found);
    }
  // Parameters of the checkpoint that the program lacks; aliases were taken
  // with their names.
  for (auto &[name, place] : known)
    if (taken.insert(place.first).second)
      found.push_back("the program has no " +
                      describe(name, place.first->shape));
}

void compareBuffers(const CheckpointManifest &stored, const Manifest &manifest,
                    std::vector<std::string> &found) {
  std::map<std::string, const Buffer *> buffers;
  for (const Buffer &buffer : stored.buffers)
    buffers[buffer.name] = &buffer;
  for (const Buffer &buffer : manifest.buffers) {
    auto other = buffers.find(storedName(buffer.name));
    // Like a state, it begins at zero if the optimizer is new.
    if (other == buffers.end() && buffer.optimizerState)
      continue;
    if (other == buffers.end() || other->second->dtype != buffer.dtype ||
        other->second->shape != buffer.shape)
      found.push_back("it has no buffer " +
                      describe(buffer.name, buffer.shape) + " of " +
                      buffer.dtype);
  }
}

} // namespace

// Shows up to five differences, so that one line says what kind of model the
// checkpoint is of.
Status checkSameModel(const CheckpointManifest &stored,
                      const Manifest &manifest) {
  std::vector<std::string> found;
  compareParameters(stored, manifest, found);
  compareBuffers(stored, manifest, found);
  if (found.empty())
    return {};
  std::string text = found[0];
  for (size_t i = 1; i < found.size() && i < 5; ++i)
    text += "; " + found[i];
  if (found.size() > 5)
    text += concat("; and ", found.size() - 5, " more");
  return inputError("it belongs to another model: " + text);
}

} // namespace fsdpc::runtime
