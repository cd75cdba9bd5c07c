// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A stand-in of cuDNN's graph API. Descriptors keep the attributes that they
// were given. The heuristic knows two engines: the second is nondeterministic
// and needs more workspace than there is. A run is checked against the tensors
// of its graph. Nothing is computed.
//
// Rules: cuDNN Backend API 9, "cudnn_graph Library":
// cudnnBackendSetAttribute(), cudnnBackendFinalize(), cudnnBackendExecute() and
// the descriptors' attributes.
#include "runtime/emulation/handles.h"
#include "tests/runtime/cuda/vendor/cudart_state.h"

#include <cstdint>
#include <cstring>
#include <cudnn.h>
#include <map>
#include <mutex>

using namespace fsdpc::vendor;
using fsdpc::runtime::emulation::Handles;

namespace {

constexpr int64_t smallWorkspace = 4096, hugeWorkspace = int64_t(1) << 50;

struct Descriptor;
using Pointer = std::shared_ptr<Descriptor>;

struct Attribute {
  std::string bytes;
  int64_t count = 0;
  std::vector<Pointer> descriptors; // of CUDNN_TYPE_BACKEND_DESCRIPTOR
};
struct Descriptor {
  explicit Descriptor(cudnnBackendDescriptorType_t type) : type(type) {}

  const cudnnBackendDescriptorType_t type;
  bool finalized = false;
  std::map<cudnnBackendAttributeName_t, Attribute> attributes;
  int engine = 0; // of an engine or its configuration
  Pointer graph;  // of a configuration that the heuristic made

  template <typename T>
  std::vector<T> values(cudnnBackendAttributeName_t name) {
    const std::string &bytes = attributes[name].bytes;
    std::vector<T> result(bytes.size() / sizeof(T));
    memcpy(result.data(), bytes.data(), result.size() * sizeof(T));
    return result;
  }
  template <typename T> T value(cudnnBackendAttributeName_t name, T missing) {
    auto all = values<T>(name);
    return all.empty() ? missing : all[0];
  }
};
struct Handle {
  int device;
  cudaStream_t stream = nullptr;
};

std::mutex mutex;
Handles<Handle> handles;
Handles<Descriptor> descriptors;

size_t widthOf(cudnnBackendAttributeType_t type) {
  switch (type) {
  case CUDNN_TYPE_HANDLE:
  case CUDNN_TYPE_INT64:
  case CUDNN_TYPE_DOUBLE:
  case CUDNN_TYPE_VOID_PTR:
  case CUDNN_TYPE_BACKEND_DESCRIPTOR:
    return 8;
  case CUDNN_TYPE_BOOLEAN:
  case CUDNN_TYPE_CHAR:
    return 1;
  default: // enums, f32 and 32-bit integers
    return 4;
  }
}

size_t widthOf(cudnnDataType_t type) {
  return type == CUDNN_DATA_BFLOAT16 || type == CUDNN_DATA_HALF  ? 2
         : type == CUDNN_DATA_INT64 || type == CUDNN_DATA_DOUBLE ? 8
                                                                 : 4;
}

// A tensor of memory that the caller gives at each run.
struct Operand {
  int64_t alignment = 1;
  size_t bytes = 0;
};

// Collects the operands below a descriptor by their unique ids.
void collect(const Pointer &from, std::map<int64_t, Operand> &operands) {
  if (from->graph)
    collect(from->graph, operands);
  for (auto &[name, attribute] : from->attributes)
    for (const Pointer &below : attribute.descriptors)
      collect(below, operands);
  if (from->type != CUDNN_BACKEND_TENSOR_DESCRIPTOR ||
      from->value<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0) ||
      from->value<char>(CUDNN_ATTR_TENSOR_IS_BY_VALUE, 0))
    return;
  auto extents = from->values<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  auto strides = from->values<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  size_t last = 0;
  for (size_t i = 0; i < extents.size(); ++i)
    last += size_t(extents[i] - 1) * size_t(strides[i]);
  auto type = from->value(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT);
  operands[from->value<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, 0)] = {
      from->value<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1),
      (last + 1) * widthOf(type)};
}

bool isTensorSound(Descriptor &d) {
  auto extents = d.values<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  auto strides = d.values<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  bool positive = !extents.empty();
  for (int64_t extent : extents)
    positive &= extent > 0;
  return positive && extents.size() == strides.size() &&
         !d.values<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID).empty();
}

// The heuristic knows this of an engine or its configuration.
bool answer(const Pointer &d, cudnnBackendAttributeName_t name, int64_t asked,
            int64_t &count, void *values) {
  auto number = [&](int64_t value, size_t bytes) {
    count = 1;
    if (values)
      memcpy(values, &value, bytes);
    return true;
  };
  auto *given = static_cast<cudnnBackendDescriptor_t *>(values);
  switch (name) {
  case CUDNN_ATTR_ENGINEHEUR_RESULTS:
    count = asked == 0 ? 2 : std::min<int64_t>(asked, 2);
    for (int64_t i = 0; given && i < count; ++i) {
      Pointer configuration = descriptors.find(given[i]);
      if (!configuration)
        continue;
      configuration->engine = int(i);
      configuration->finalized = true;
      configuration->graph =
          d->attributes[CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH].descriptors[0];
    }
    return true;
  case CUDNN_ATTR_ENGINECFG_ENGINE:
    count = 1;
    if (Pointer engine = descriptors.find(given[0]))
      engine->engine = d->engine;
    return true;
  case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
    return d->engine == 1
               ? number(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, sizeof(int))
               : (count = 0, true);
  case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
  case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES:
    count = 0;
    return true;
  case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
    return number(d->engine, sizeof(int64_t));
  case CUDNN_ATTR_ENGINECFG_SHARED_MEMORY_USED:
    return number(0, sizeof(int32_t));
  case CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE:
    return number(d->engine == 1 ? hugeWorkspace : smallWorkspace,
                  sizeof(int64_t));
  case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE: {
    Pointer chosen =
        d->attributes[CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG].descriptors[0];
    return number(chosen->engine == 1 ? hugeWorkspace : smallWorkspace,
                  sizeof(int64_t));
  }
  default:
    return false;
  }
}

} // namespace

extern "C" {

size_t cudnnGetVersion() { return CUDNN_VERSION; }
size_t cudnnGetCudartVersion() { return 13000; }
const char *cudnnGetErrorString(cudnnStatus_t) { return "an error"; }
void cudnnGetLastErrorString(char *text, size_t bytes) {
  strncpy(text, "first line\nsecond line", bytes);
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
  if (fails(__func__))
    return CUDNN_STATUS_NOT_INITIALIZED;
  std::lock_guard<std::mutex> lock(mutex);
  *handle = static_cast<cudnnHandle_t>(
      handles.add(std::make_shared<Handle>(Handle{currentDevice()})));
  return CUDNN_STATUS_SUCCESS;
}

// "The stream must belong to the handle's device".
cudnnStatus_t cudnnSetStream(cudnnHandle_t of, cudaStream_t stream) {
  if (fails(__func__))
    return CUDNN_STATUS_BAD_PARAM;
  std::lock_guard<std::mutex> lock(mutex);
  auto handle = handles.find(of);
  if (!require(handle && deviceOf(stream) == handle->device, __func__,
               "a live handle, and a stream of its device"))
    return CUDNN_STATUS_BAD_PARAM;
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetStream(cudnnHandle_t of, cudaStream_t *stream) {
  if (fails(__func__))
    return CUDNN_STATUS_BAD_PARAM;
  std::lock_guard<std::mutex> lock(mutex);
  auto handle = handles.find(of);
  if (!require(bool(handle), __func__, "a live handle"))
    return CUDNN_STATUS_BAD_PARAM;
  *stream = handle->stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                             cudnnBackendDescriptor_t *descriptor) {
  if (fails(__func__))
    return CUDNN_STATUS_ALLOC_FAILED;
  std::lock_guard<std::mutex> lock(mutex);
  *descriptor = static_cast<cudnnBackendDescriptor_t>(
      descriptors.add(std::make_shared<Descriptor>(type)));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  bool failing = fails(__func__);
  std::lock_guard<std::mutex> lock(mutex);
  // cudnn_frontend also destroys what could not be made.
  if (!require(!descriptor || descriptors.remove(descriptor), __func__,
               "a live descriptor"))
    return CUDNN_STATUS_BAD_PARAM;
  return failing ? CUDNN_STATUS_INTERNAL_ERROR : CUDNN_STATUS_SUCCESS;
}

// Attributes are set before the descriptor is finalized, to descriptors that
// are.
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t of,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type,
                                       int64_t count, const void *values) {
  if (fails(__func__))
    return CUDNN_STATUS_BAD_PARAM;
  std::lock_guard<std::mutex> lock(mutex);
  Pointer descriptor = descriptors.find(of);
  if (!require(descriptor && !descriptor->finalized && (values || count == 0),
               __func__, "a live descriptor that is not final, and values"))
    return CUDNN_STATUS_BAD_PARAM;
  Attribute attribute;
  attribute.count = count;
  attribute.bytes.assign(static_cast<const char *>(values),
                         size_t(count) * widthOf(type));
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
    for (int64_t i = 0; i < count; ++i) {
      auto *given = static_cast<const cudnnBackendDescriptor_t *>(values);
      Pointer below = descriptors.find(given[i]);
      if (!require(below && below->finalized, __func__,
                   "the descriptors of an attribute are final"))
        return CUDNN_STATUS_BAD_PARAM;
      attribute.descriptors.push_back(below);
    }
  descriptor->attributes[name] = std::move(attribute);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t of) {
  if (fails(__func__))
    return CUDNN_STATUS_NOT_SUPPORTED;
  std::lock_guard<std::mutex> lock(mutex);
  Pointer descriptor = descriptors.find(of);
  if (!require(descriptor && !descriptor->finalized, __func__,
               "a live descriptor that is not final"))
    return CUDNN_STATUS_BAD_PARAM;
  bool isTensor = descriptor->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR;
  if (!require(!isTensor || isTensorSound(*descriptor), __func__,
               "a tensor has extents, as many strides, and an id"))
    return CUDNN_STATUS_BAD_PARAM;
  descriptor->finalized = true;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t of,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type,
                                       int64_t asked, int64_t *count,
                                       void *values) {
  if (fails(__func__))
    return CUDNN_STATUS_BAD_PARAM;
  std::lock_guard<std::mutex> lock(mutex);
  Pointer descriptor = descriptors.find(of);
  if (!require(descriptor || hasFailed(), __func__, "a live descriptor") ||
      !descriptor)
    return CUDNN_STATUS_BAD_PARAM;
  int64_t found = 0;
  if (!answer(descriptor, name, asked, found, values)) {
    const Attribute &kept = descriptor->attributes[name];
    found = kept.count;
    if (values)
      memcpy(values, kept.bytes.data(),
             std::min(kept.bytes.size(), size_t(asked) * widthOf(type)));
  }
  if (count)
    *count = found;
  return CUDNN_STATUS_SUCCESS;
}

// "Data pointers" must be aligned as their tensors say.
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t of,
                                  cudnnBackendDescriptor_t planOf,
                                  cudnnBackendDescriptor_t packOf) {
  if (fails(__func__))
    return CUDNN_STATUS_EXECUTION_FAILED;
  std::lock_guard<std::mutex> lock(mutex);
  auto handle = handles.find(of);
  Pointer plan = descriptors.find(planOf), pack = descriptors.find(packOf);
  if (!require(handle && plan && pack && plan->finalized && pack->finalized,
               __func__, "a live handle, a final plan and a final pack") ||
      !require(handle->device == currentDevice() &&
                   deviceOf(handle->stream) == handle->device,
               __func__, "handle, stream and thread have one device"))
    return CUDNN_STATUS_BAD_PARAM;
  std::map<int64_t, Operand> operands;
  collect(plan, operands);
  auto ids = pack->values<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  auto places = pack->values<void *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  size_t given = 0;
  for (size_t i = 0; i < ids.size() && i < places.size(); ++i) {
    auto operand = operands.find(ids[i]);
    if (operand == operands.end())
      continue; // a number that is passed by value
    ++given;
    auto [alignment, bytes] = operand->second;
    if (!require(reinterpret_cast<uintptr_t>(places[i]) % size_t(alignment) ==
                         0 &&
                     spans(places[i], bytes, handle->device),
                 __func__, "aligned operands within memory of the device"))
      return CUDNN_STATUS_BAD_PARAM;
  }
  auto *workspace =
      pack->value<void *>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, nullptr);
  if (!require(given == operands.size(), __func__, "every operand is given") ||
      !require(spans(workspace, smallWorkspace, handle->device), __func__,
               "a workspace as large as the plan's"))
    return CUDNN_STATUS_BAD_PARAM;
  enqueue(handle->stream);
  return CUDNN_STATUS_SUCCESS;
}

} // extern "C"

// Handles are kept by design: one a thread and device, until the process ends.
std::string fsdpc::vendor::aliveInCudnn() {
  std::lock_guard<std::mutex> lock(mutex);
  return descriptors.size()
             ? std::to_string(descriptors.size()) + " descriptors of cuDNN; "
             : "";
}
