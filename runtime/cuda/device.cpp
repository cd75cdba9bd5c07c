// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The CUDA device: memory, the calls of the training loop, and launches. The
// calls that communicate are in device_collectives.cpp. Each call of the C ABI
// opens a CallScope, by which errors and profilers name the program's op.
#include "runtime/cuda/device.h"
#include "runtime/core/matrices.h"
#include "runtime/core/plan_checks.h"
#include "runtime/cuda/affinity.h"
#include "runtime/cuda/device_choice.h"
#include "runtime/cuda/product_tuning.h"

#include <algorithm>
#include <cstring>
#include <set>

namespace fsdpc::runtime {

CudaDevice::CudaDevice(CudaApi &api, const Manifest &manifest,
                       const fsdpc_program &program, Job &job,
                       const DeviceOptions &options)
    : context(api, job, manifest), program(program), options(options),
      memory(context), products(context), matrixProducts(context, products),
      selection(context) {
  context.limitSeconds = options.firstStepSeconds;
}

CudaDevice::~CudaDevice() {
  // Work must be complete before the memory and events that it uses are
  // destroyed. There is none if `prepare` has failed before it made the events.
  if (drained.back())
    synchronize();
}

Status CudaDevice::selectDevice() {
  FSDPC_TRY(chooseDevice(context.api, context.job));
  CudaDeviceInfo info;
  if (CudaStatus status = context.api.deviceInfo(info))
    return runError("cannot use the GPU: " + context.api.errorText(status));
  // Pinned memory is allocated after this, so it lies near the GPU.
  if (std::string list = stayNear(info.pciAddress); !list.empty())
    chosen.push_back("processors near GPU " + info.pciAddress + ": " + list);
  if (CudaStatus status = context.api.loadProgram(program))
    return runError("cannot load the program's kernels: " +
                    context.api.errorText(status));
  return {};
}

// Attention by products keeps the library's choices: its shapes follow from
// what cuDNN refuses, which ranks on other GPUs may not share.
Status CudaDevice::tune() {
  std::vector<CudaGemmShape> shapes;
  std::set<std::string> seen;
  for (const MatmulPlan &plan : context.manifest.matmuls) {
    FSDPC_TRY(checkShape(plan));
    CudaGemmShape shape = cutProduct(plan).shape;
    if (shape.dtypeA == shape.dtypeB && seen.insert(keyOf(shape)).second)
      shapes.push_back(shape);
  }
  auto tuned = tuneProducts(context, shapes, options.tuneProducts,
                            options.deterministic);
  FSDPC_TRY(tuned);
  products.tune(std::move(tuned->codes), !options.deterministic);
  chosen.insert(chosen.end(), tuned->notes.begin(), tuned->notes.end());
  return {};
}

// Plans every call before training, so that a step makes no plans and the log
// can say what each library chose.
Status CudaDevice::planLibraries() {
  const Manifest &manifest = context.manifest;
  if (!options.tuneProducts.empty())
    FSDPC_TRY(tune());
  for (const MatmulPlan &plan : manifest.matmuls) {
    // The log gets one line per distinct shape from `products`, below.
    Result<Product> product = products.plan(plan);
    FSDPC_TRY(product);
    // The index in each list is the index of the plan in the manifest, which is
    // what calls of the C ABI name.
    matmuls.push_back(std::move(*product));
  }
  for (const ConvolutionPlan &plan : manifest.convolutions) {
    convolutions.emplace_back(context);
    auto choice = convolutions.back().plan(plan, options.deterministic);
    FSDPC_TRY(choice);
    chosen.push_back("convolution " + plan.kind + ": " + *choice);
  }
  CudaScratch scratch = scratchSizes();
  for (const AttentionPlan &plan : manifest.attentions) {
    attentions.emplace_back(context);
    auto choice = attentions.back().plan(plan, products, options.deterministic,
                                         scratch.library + scratch.attention);
    FSDPC_TRY(choice);
    chosen.push_back(std::string("attention ") +
                     (plan.backward ? "backward" : "forward") + ": " + *choice);
  }
  FSDPC_TRY(matrixProducts.plan(manifest));
  for (const PoolingPlan &plan : manifest.poolings)
    FSDPC_TRY(checkPooling(plan));
  chosen.insert(chosen.begin(), products.choices().begin(),
                products.choices().end());
  return {};
}

// Only programs that offload fork the streams of its copies in each section,
// and have further events behind the program's: for activations as many again.
void CudaDevice::makeSections() {
  const Manifest &manifest = context.manifest;
  bool offloadsLayouts =
      std::any_of(manifest.layouts.begin(), manifest.layouts.end(),
                  [](const Layout &layout) { return layout.isOffloaded(); });
  bool offloadsActivations = manifest.activationFileBytes > 0;
  std::vector<int> forked = {FSDPC_STREAM_GATHER, FSDPC_STREAM_REDUCE};
  if (offloadsLayouts || offloadsActivations)
    forked.insert(forked.end(), {offloadInStream, offloadOutStream});
  int events = std::max(manifest.events, 0);
  int ofLayouts = offloadsActivations ? 2 * events : events;
  int count = offloadsLayouts ? ofLayouts + CudaOffload::eventCount : ofLayouts;
  sections = std::make_unique<Sections>(context, count, forked);
  if (offloadsActivations)
    activations = std::make_unique<CudaActivations>(context, *sections, events);
  if (offloadsLayouts)
    pinned = std::make_unique<CudaOffload>(context, *sections, ofLayouts);
}

// The order matters: a GPU before its streams, and streams before the parts
// whose constructors create events. Memory is reserved later, when its plan is
// known.
Status CudaDevice::prepare() {
  FSDPC_TRY(selectDevice());
  FSDPC_TRY(context.makeStreams());
  FSDPC_TRY(planLibraries());
  // These create events, so they follow the choice of the device.
  makeSections();
  for (std::unique_ptr<OwnedEvent> &event : drained)
    event = std::make_unique<OwnedEvent>(context);
  inputs = std::make_unique<CudaInputs>(context, memory);
  update = std::make_unique<CudaUpdate>(context, memory, pinned.get());
  return {};
}

// Reserves everything at once: the memory of runtime/core, the constants, all
// scratch and reports. Takes this device's own parts first.
Status CudaDevice::reserve(const MemoryPlan &plan) {
  const Manifest &manifest = context.manifest;
  CudaScratch scratch = scratchSizes();
  int64_t constants = int64_t(program.constants_bytes);
  int64_t kept = options.leavesOut ? CudaUpdate::keptBytes(manifest) : 0;
  // Each kind that a layout offloads may lose a page in front of it, and so may
  // the activations.
  int64_t lost = plan.offloaded > 0
                     ? (3 * int64_t(manifest.layouts.size()) + 1) * 4096
                     : 0;
  FSDPC_TRY(memory.reserve(
      plan.allocated + constants + scratch.total() + kept +
          CudaUpdate::reportBytes(manifest, options.accumulate),
      CudaInputs::pinnedBytes(manifest) +
          CudaUpdate::pinnedBytes(manifest, options.accumulate) +
          plan.offloaded + lost,
      plan.offloaded,
      options.symmetricMemory && !isAlone() && !context.job.sharesProcess));
  if (activations)
    activations->use(
        static_cast<char *>(memory.takePinned(manifest.activationFileBytes)));
  // One block: library workspace first, then the scratch of attention.
  library = static_cast<char *>(
      memory.takeDevice(scratch.library + scratch.attention));
  wire = memory.takeDevice(scratch.wire);
  wireCapacity = size_t(scratch.wire);
  collectiveScratch = memory.takeDevice(scratch.collectives);
  if (int64_t bytes = compressionBytes(manifest))
    compressionMemory = memory.takeDevice(bytes);
  if (constants > 0) {
    void *to = memory.takeDevice(constants);
    memory.upload(to, program.constants, size_t(constants));
    deviceConstants = to;
  }
  return {};
}

void *CudaDevice::allocate(size_t bytes) {
  return memory.takeDevice(int64_t(bytes));
}
// The host can write there.
void *CudaDevice::allocateOffloaded(size_t bytes) {
  void *pinned = memory.takePinned(int64_t(bytes));
  if (pinned)
    std::memset(pinned, 0, bytes);
  return pinned;
}
void CudaDevice::zero(void *to, size_t bytes) { memory.zero(to, bytes); }
void CudaDevice::upload(void *to, const void *from, size_t bytes) {
  memory.upload(to, from, bytes);
}
void CudaDevice::download(void *to, const void *from, size_t bytes) {
  memory.download(to, from, bytes);
}

Result<void *> CudaDevice::staging(int slot, void *to, size_t bytes) {
  return inputs->staging(slot, to, bytes);
}
void CudaDevice::awaitSlot(int slot) { inputs->await(slot); }
void CudaDevice::send(int slot) { inputs->send(slot); }

// The step's numbers are copied before its first section and the report after
// its last. Both lie outside the graph, since their host memory alternates from
// step to step.
void CudaDevice::enter(fsdpc_rank &rank, const Section &entered,
                       void (*entry)(fsdpc_rank *)) {
  // A step's first microbatch gathers what the update before has changed, also
  // after an evaluation that has gathered it: all steps then send the same, and
  // no graph is made late in a run.
  Section section = entered;
  section.gathers = gathers =
      section.update || (section.evaluate ? changed : section.first);
  if (section.update || section.evaluate)
    changed = section.update;
  std::string name = section.update     ? "update"
                     : section.evaluate ? "evaluate"
                                        : "microbatch";
  name += suffixOfBucket(section.bucket);
  context.begin(name, section.step);
  context.api.beginRange(name.c_str());
  // Also for a replay, so that the watchdog names the right step.
  for (const std::unique_ptr<Collectives> &channel : channels)
    if (channel)
      channel->beginSection(section.step);
  if (!section.update)
    inputs->beginUse(section.slot);
  if (!section.update && !section.evaluate) {
    if (section.first) {
      update->sendNumbers(rank, section.step);
      update->clearZeroed(rank);
      update->keepBuffers();
    }
    update->setLossScale(rank);
  }
  context.commands.begin(section);
  sections->run(section, options.graphs, [&] { entry(&rank); });
  context.commands.end();
  sent.add(section, sentSoFar());
  if (section.update) {
    update->restoreBuffers();
    update->sendReport(section.step);
  } else {
    inputs->endUse(section.slot);
  }
  context.api.endRange();
}

void CudaDevice::results(fsdpc_rank &rank, int64_t step, StepResults &results) {
  update->awaitReport(rank, step, results);
  // The first step is done.
  context.isFirstStep = false;
  context.limitSeconds = options.watchdogSeconds;
}

void CudaDevice::report(int64_t step) { update->sendReport(step); }

// Also waits for the copy stream, whose copies of inputs belong to no section.
// By events, since a wait for a stream has no time limit.
void CudaDevice::synchronize() {
  for (int stream = 0; stream < cudaStreams; ++stream) {
    drained[size_t(stream)]->record(stream);
    drained[size_t(stream)]->await();
  }
}

void CudaDevice::eventRecord(int32_t stream, int32_t event) {
  sections->record(stream, event);
  if (activations)
    activations->record(stream, event);
}
void CudaDevice::eventWait(int32_t stream, int32_t event) {
  sections->wait(stream, event);
  if (activations)
    activations->wait(stream, event);
}

// Kernels are looked up by name once; the map is keyed by the program's table.
void CudaDevice::launchKernel(const fsdpc_kernel &kernel, int64_t blocks,
                              void *const *buffers, int count) {
  CudaFunction &function = functions[&kernel];
  if (!function)
    context.check(context.api.findKernel(kernel, function));
  context.check(context.api.launch(function, blocks, kernel.threads, buffers,
                                   count,
                                   context.streams[FSDPC_STREAM_COMPUTE]));
}

CudaUpdate::Launch CudaDevice::launcher(const fsdpc_kernel &kernel) {
  return [this, &kernel](OptimizerOperands &operands, int64_t blocks) {
    launchKernel(kernel, blocks, operands.list.data(), int(operands.count));
  };
}

// Launches a kernel of the program with the grid that was planned for it
// (plan-grids). The optimizer below is the only kernel whose grid depends on
// the rank.
void CudaDevice::launch(const fsdpc_kernel *kernel, void *const *buffers,
                        int32_t count) {
  CallScope scope(context, FSDPC_STREAM_COMPUTE);
  launchKernel(*kernel, kernel->blocks, buffers, count);
}

void CudaDevice::matmul(int plan, const void *a, const void *b,
                        const void *bias, const void *addend, const void *input,
                        void *c, void *extra) {
  CallScope scope(context, FSDPC_STREAM_COMPUTE);
  matmuls[size_t(plan)].run(context, {a, b, c, bias, addend, input, extra},
                            library);
}

void CudaDevice::convolution(int plan, const void *x, const void *w, void *y) {
  CallScope scope(context, FSDPC_STREAM_COMPUTE);
  convolutions[size_t(plan)].run(x, w, y, library);
}

void CudaDevice::pooling(int plan, const void *source, void *destination,
                         void *workspace) {
  CallScope scope(context, FSDPC_STREAM_COMPUTE);
  // Pooling takes no library: the kernel reads its shape from the plan. The
  // result of a gradient has the extents of the input, that of a forward call
  // those of the output.
  const PoolingPlan &p = context.manifest.poolings[size_t(plan)];
  PoolingCells cells;
  cells.shape = poolingShape(p);
  cells.planes = p.batch * p.channels;
  cells.maximum = p.kind == "max" || p.kind == "max_grad";
  cells.gradient = p.kind != "max" && p.kind != "average";
  cells.type = wireType(p.dtype);
  cells.source = source;
  cells.destination = destination;
  cells.indices = static_cast<int32_t *>(workspace);
  int64_t plane =
      cells.gradient ? p.height * p.width : p.outHeight * p.outWidth;
  context.launch(cells, cells.planes * plane, FSDPC_STREAM_COMPUTE);
}

// The row kernel is for the host; here the runtime has its own
// (kernels/softmax.h).
void CudaDevice::attention(int32_t plan, const fsdpc_kernel *,
                           const void *query, const void *key,
                           const void *value, const void *mask, void *output,
                           void *lse) {
  CallScope scope(context, FSDPC_STREAM_COMPUTE);
  const void *operands[] = {query, key, value, mask, output, lse};
  attentions[size_t(plan)].run(operands, library);
}

void CudaDevice::attentionGrad(int32_t plan, const fsdpc_kernel *,
                               const void *grad, const void *query,
                               const void *key, const void *value,
                               const void *output, const void *lse,
                               const void *mask, void *dquery, void *dkey,
                               void *dvalue) {
  CallScope scope(context, FSDPC_STREAM_COMPUTE);
  const void *operands[] = {grad, query, key,    value, output,
                            lse,  mask,  dquery, dkey,  dvalue};
  attentions[size_t(plan)].run(operands, library);
}

void CudaDevice::poison(void *to, int64_t bytes) {
  CallScope scope(context, FSDPC_STREAM_COMPUTE);
  // Bytes of ones are a NaN in every float type.
  context.fill(to, 0xff, size_t(bytes), FSDPC_STREAM_COMPUTE);
}

void CudaDevice::reportLoss(fsdpc_rank &rank, const void *loss,
                            const void *valid) {
  CallScope scope(context, FSDPC_STREAM_COMPUTE);
  update->reportLoss(rank, loss, valid);
}

void CudaDevice::reportOutput(fsdpc_rank &rank, int32_t plan,
                              const void *value) {
  CallScope scope(context, FSDPC_STREAM_COMPUTE);
  update->reportOutput(rank, plan, value);
}

void CudaDevice::reportZeroed(fsdpc_rank &, const void *zeroed) {
  CallScope scope(context, FSDPC_STREAM_COMPUTE);
  update->reportZeroed(zeroed);
}

void CudaDevice::sumSquares(fsdpc_rank &rank, int count, const int32_t *layouts,
                            void *sums) {
  CallScope scope(context, FSDPC_STREAM_COMPUTE);
  update->sumSquares(rank, count, layouts, sums);
}

void CudaDevice::clip(fsdpc_rank &rank, int count, const int32_t *layouts,
                      const void *sums, double maxNorm, void *scale) {
  CallScope scope(context, FSDPC_STREAM_COMPUTE);
  update->clip(rank, count, layouts, sums, maxNorm, scale);
}

void CudaDevice::memberSums(fsdpc_rank &rank, const fsdpc_kernel *kernel,
                            int32_t count, const int32_t *layouts,
                            const void *scale, int32_t perMember, void *sums,
                            const void *factors) {
  CallScope scope(context, FSDPC_STREAM_COMPUTE);
  auto *to = static_cast<double *>(sums);
  auto *ofLayout = static_cast<const double *>(factors);
  for (int32_t i = 0; i < count; ++i) {
    update->sumMembers(rank, layouts[i], scale, perMember, ofLayout, to,
                       launcher(*kernel));
    if (factors)
      ofLayout += update->factorCount(layouts[i]);
    to += rank.manifest.layouts[size_t(layouts[i])].members.size() *
          size_t(perMember) * normDigits;
  }
}

void CudaDevice::factorSums(fsdpc_rank &rank, int32_t count,
                            const int32_t *layouts, const void *scale,
                            double clipValue, void *sums) {
  CallScope scope(context, FSDPC_STREAM_COMPUTE);
  update->sumFactors(rank, count, layouts, scale, clipValue,
                     static_cast<double *>(sums));
}

void CudaDevice::updateFactors(fsdpc_rank &rank, int32_t count,
                               const int32_t *layouts, const void *sums,
                               double eps, double power, void *factors) {
  CallScope scope(context, FSDPC_STREAM_COMPUTE);
  update->updateFactors(rank, count, layouts, static_cast<const double *>(sums),
                        eps, power, static_cast<double *>(factors));
}

void CudaDevice::momentumUpdates(fsdpc_rank &rank, int32_t index,
                                 const void *scale, double momentum,
                                 double clipValue, int32_t nesterov,
                                 int32_t maximize, void *updates) {
  CallScope scope(context, FSDPC_STREAM_COMPUTE);
  update->momentumUpdates(
      rank, index, scale,
      momentumStep(momentum, clipValue, nesterov != 0, maximize != 0), updates);
}

// The room lies behind the results: the program has planned it with them.
void CudaDevice::orthogonalize(fsdpc_rank &rank, int32_t index,
                               const void *updates, double a, double b,
                               double c, double eps, int32_t steps,
                               int32_t bf16, int32_t matchRms, void *result) {
  CallScope scope(context, FSDPC_STREAM_COMPUTE);
  const Layout &layout = rank.manifest.layouts[size_t(index)];
  MatrixSteps by{a, b, c, eps, steps, bf16 != 0};
  std::vector<int> owners =
      matrixOwners(layout, rank.layouts[size_t(index)], rank.job.size);
  auto *from = static_cast<const float *>(updates);
  auto *to = static_cast<float *>(result);
  int64_t all = elementsBefore(layout, layout.members.size());
  MatrixProducts::Room room{to + (all + 3) / 4 * 4, update->normOfMatrix(),
                            library};
  for (size_t m = 0; m < layout.members.size(); ++m) {
    const Member &member = layout.members[m];
    if (owners[m] == rank.job.rank)
      matrixProducts.orthogonalize(member, from, to, room, by,
                                   matrixFactor(member, matchRms != 0));
    from += member.elements;
    to += member.elements;
  }
}

void CudaDevice::offload(fsdpc_rank &, const void *from, int64_t bytes,
                         int64_t place) {
  CallScope scope(context, FSDPC_STREAM_REDUCE);
  activations->offload(from, bytes, place);
}

void CudaDevice::fetch(fsdpc_rank &, void *to, int64_t bytes, int64_t place) {
  CallScope scope(context, FSDPC_STREAM_GATHER);
  activations->fetch(to, bytes, place);
}

void CudaDevice::optimizer(fsdpc_rank &rank, const fsdpc_kernel *kernel,
                           int32_t index, const void *scale, int32_t perMember,
                           const void *sums, const void *factors,
                           const void *updates, const void *gradient) {
  CallScope scope(context, FSDPC_STREAM_COMPUTE);
  update->optimize(rank, index, scale, perMember, sums,
                   static_cast<const double *>(factors), updates, gradient,
                   launcher(*kernel));
}

} // namespace fsdpc::runtime
