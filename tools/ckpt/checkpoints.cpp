// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checkpoints on disk. Nothing here takes the lock of a folder: reading beside
// a run that writes is safe, because a checkpoint gets its name when it is
// whole. One that the run removes meanwhile is an error that names it.
#include "tools/ckpt/checkpoints.h"
#include "runtime/abi/compressions.h"
#include "runtime/abi/factors.h"
#include "runtime/abi/memory_plan.h"
#include "runtime/checkpoint/checkpoint_file.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/member_order.h"
#include "runtime/support/concat.h"

#include <algorithm>
#include <functional>
#include <sys/stat.h>
#include <utility>

namespace fsdpc::ckpt {

using namespace runtime;

Result<std::vector<std::string>> findCheckpoints(const std::string &path) {
  struct stat status;
  if (stat((path + "/" + checkpointManifestName).c_str(), &status) == 0)
    return std::vector<std::string>{path};
  CheckpointFolder folder;
  folder.name(path);
  auto steps = folder.steps();
  FSDPC_TRY(steps);
  if (steps->empty())
    return inputError(
        "'" + path +
        "' has no checkpoint: neither a checkpoint.json nor a folder "
        "step-…");
  std::vector<std::string> found;
  for (int64_t step : *steps)
    found.push_back(folder.folderOf(step));
  return found;
}

Result<std::string> findCheckpoint(const std::string &path,
                                   std::optional<int64_t> step) {
  auto found = findCheckpoints(path);
  FSDPC_TRY(found);
  if (!step)
    return found->back();
  CheckpointFolder folder;
  folder.name(path);
  std::string wanted = folder.folderOf(*step);
  if (std::find(found->begin(), found->end(), wanted) == found->end())
    return inputError(concat("'", path, "' has no checkpoint of step ", *step,
                             "; the newest is '", found->back(), "'"));
  return wanted;
}

Result<TrainingCheckpoint> openWhole(const std::string &path,
                                     std::optional<int64_t> step) {
  auto folder = findCheckpoint(path, step);
  FSDPC_TRY(folder);
  Result<TrainingCheckpoint> opened = TrainingCheckpoint::open(*folder);
  FSDPC_TRY(opened);
  FSDPC_TRY(opened->verify(0, 1));
  return opened;
}

std::string settingOf(const CheckpointManifest &stored,
                      const std::string &name) {
  for (auto &[key, value] : stored.settings)
    if (key == name)
      return value;
  return "";
}

// Parts of tensors other than the states of elements.
constexpr std::string_view otherParts[] = {
    "value", "buffer",       "number",          "step",
    "ema",   rowFactors + 1, columnFactors + 1, vectorFactors + 1};

// Returns true if the name of a state can stand in an exchange with PyTorch
// ("NAME/PARAMETER"). A program of the user's names its states at will.
static bool isPlain(const std::string &name) {
  return name.find('/') == std::string::npos &&
         std::find(std::begin(otherParts), std::end(otherParts), name) ==
             std::end(otherParts);
}

std::vector<std::string> stateNames(const StoredLayout &layout) {
  std::vector<std::string> names = layout.stateNames;
  if (!std::all_of(names.begin(), names.end(), isPlain))
    names.clear();
  for (size_t i = names.size(); i < size_t(layout.ownStates()); ++i)
    names.push_back(concat("state", i));
  if (layout.average)
    names.push_back("ema");
  return names;
}

namespace {

// The tensors of a checkpoint, in the order of --save: parameters, then
// buffers. States follow, those of factored optimizers first, and residuals.
class CheckpointSource : public TensorSource {
public:
  CheckpointSource(TrainingCheckpoint opened, const std::string &folder,
                   Content content)
      : checkpoint(std::move(opened)) {
    const CheckpointManifest &stored = checkpoint.manifest();
    baseHash = stored.base;
    paths.push_back(folder + "/" + checkpointManifestName);
    for (int64_t rank = 0; rank < stored.ranks; ++rank)
      paths.push_back(folder + "/" + rankFileName(rank));
    addValues(stored);
    if (content == Content::valuesAndStates)
      addStates(stored);
  }
  Status read(size_t tensor, uint64_t offset, void *to,
              uint64_t bytes) const override {
    return readers[tensor](offset, to, bytes);
  }

  int64_t residualRanks() const override {
    const CheckpointManifest &stored = checkpoint.manifest();
    auto has = [](const StoredLayout &layout) { return layout.residual > 0; };
    return std::any_of(stored.layouts.begin(), stored.layouts.end(), has)
               ? stored.ranks
               : 0;
  }
  void addResiduals(int64_t ranks) override {
    for (const StoredLayout &layout : checkpoint.manifest().layouts)
      for (const Member &member : layout.members) {
        for (int64_t rank = 0; layout.residual > 0 && rank < ranks; ++rank)
          add(member, concat("residual of rank ", rank),
              [this, &member, rank, ranks](auto... place) {
                return checkpoint.readResidual(member, rank, ranks, place...);
              });
        if (layout.compression)
          addCompressionState(member, layout.compression);
      }
  }

private:
  using Reader =
      std::function<Status(uint64_t offset, void *to, uint64_t bytes)>;

  void addValues(const CheckpointManifest &stored) {
    for (auto [layout, index] : membersInOrder(stored.layouts)) {
      const Member &member = stored.layouts[layout].members[index];
      if (!checkpoint.holds(member))
        continue;
      if (stored.layouts[layout].ofBytes())
        addBytes(member);
      else
        add(member, "", [this, &member](auto... place) {
          return checkpoint.readMaster(member, place...);
        });
    }
    for (const Buffer &buffer : stored.buffers)
      if (!buffer.optimizerState)
        add(buffer, buffer.name, "");
  }
  void addStates(const CheckpointManifest &stored) {
    // A state that is not one number per element: PARAMETER.row_var.
    for (const Buffer &buffer : stored.buffers)
      if (size_t dot = buffer.name.rfind('.'); buffer.optimizerState)
        add(buffer, buffer.name.substr(0, dot), buffer.name.substr(dot + 1));
    for (const StoredLayout &layout : stored.layouts)
      for (const Member &member : layout.members)
        for (int32_t state = 0; state < layout.states; ++state)
          add(member, stateNames(layout)[size_t(state)],
              [this, &member, state](auto... place) {
                return checkpoint.readState(member, state, place...);
              });
  }

  void addCompressionState(const Member &member,
                           const Compression &compression) {
    const CompressionInfo &info = infoOf(compression);
    std::vector<int64_t> shape =
        info.stateShape(compression.amount, member.shape);
    if (!shape.empty())
      add(member, info.state->part, shape,
          [this, &member, &compression](auto... place) {
            return checkpoint.readCompressionState(member, compression,
                                                   place...);
          });
  }

  // Adds a constant that is stored in its own type.
  void addBytes(const Member &member) {
    Tensor tensor;
    tensor.name = member.name;
    tensor.dtype = member.dtype;
    tensor.shape = member.shape;
    tensor.aliases = member.aliases;
    tensor.bytes = uint64_t(member.elements);
    list.push_back(std::move(tensor));
    readers.push_back(
        [this, &member](uint64_t offset, void *to, uint64_t bytes) {
          return checkpoint.readBytes(member, int64_t(offset), int64_t(bytes),
                                      static_cast<char *>(to));
        });
  }

  // Adds f32 values of a parameter, with its shape unless another is given.
  // readElements(begin, count, to) reads some of them.
  template <typename ReadElements>
  void add(const Member &member, const std::string &part,
           const ReadElements &readElements) {
    add(member, part, member.shape, readElements);
  }
  template <typename ReadElements>
  void add(const Member &member, const std::string &part,
           const std::vector<int64_t> &shape,
           const ReadElements &readElements) {
    Tensor tensor;
    tensor.name = member.name;
    tensor.part = part;
    tensor.dtype = "f32";
    tensor.shape = shape;
    tensor.aliases = member.aliases;
    tensor.bytes = sizeof(float);
    for (int64_t extent : shape)
      tensor.bytes *= uint64_t(extent);
    list.push_back(std::move(tensor));
    readers.push_back([=](uint64_t offset, void *to, uint64_t bytes) {
      return readElements(int64_t(offset / sizeof(float)),
                          int64_t(bytes / sizeof(float)),
                          static_cast<float *>(to));
    });
  }
  void add(const Buffer &buffer, const std::string &name,
           const std::string &part) {
    Tensor tensor;
    tensor.name = name;
    tensor.part = part;
    tensor.dtype = buffer.dtype;
    tensor.shape = buffer.shape;
    tensor.isBuffer = !buffer.optimizerState;
    tensor.bytes = uint64_t(bufferElements(buffer) * dtypeBytes(buffer.dtype));
    uint64_t all = tensor.bytes;
    list.push_back(std::move(tensor));
    readers.push_back([this, &buffer, all](uint64_t offset, void *to,
                                           uint64_t bytes) -> Status {
      std::vector<char> whole(all);
      FSDPC_TRY(checkpoint.readBuffer(buffer, whole.data()));
      std::copy_n(whole.begin() + std::ptrdiff_t(offset), bytes,
                  static_cast<char *>(to));
      return {};
    });
  }

  // Readers refer to its manifest, so this object is never moved.
  TrainingCheckpoint checkpoint;
  std::vector<Reader> readers; // of each tensor
};

} // namespace

Result<std::unique_ptr<TensorSource>>
openCheckpointTensors(const std::string &path, Content content,
                      std::optional<int64_t> step) {
  auto folder = findCheckpoint(path, step);
  FSDPC_TRY(folder);
  auto opened = openWhole(*folder, {});
  FSDPC_TRY(opened);
  return std::unique_ptr<TensorSource>(
      std::make_unique<CheckpointSource>(*std::move(opened), *folder, content));
}

} // namespace fsdpc::ckpt
