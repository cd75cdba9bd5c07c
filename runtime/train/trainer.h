// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Training on one rank: preparation and checks before the first step
// (prepare.cpp), the steps (loop.cpp), the exchange between ranks in a step
// (exchange.cpp), and the run's messages (reports.cpp).
//
// Input errors must be found on all ranks before any rank waits for another in
// a collective, or the job would hang. Therefore `prepare` and every step
// exchange whether a rank has an error.
#pragma once

#include "runtime/checkpoint/best_folder.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/checkpoint_hook.h"
#include "runtime/checkpoint/loss_scaler.h"
#include "runtime/checkpoint/training_checkpoint.h"
#include "runtime/checkpoint/training_state.h"
#include "runtime/comm/common_memory.h"
#include "runtime/core/rank.h"
#include "runtime/data/samples.h"
#include "runtime/data/weights.h"
#include "runtime/train/evaluation.h"
#include "runtime/train/event_file.h"
#include "runtime/train/log.h"
#include "runtime/train/loss_weights.h"
#include "runtime/train/startup.h"
#include "runtime/train/step_watch.h"
#include "runtime/train/stragglers.h"
#include "runtime/train/trace.h"
#include "runtime/train/update_ratios.h"

#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <string>

namespace fsdpc::runtime {

class Progress;

/// One per rank, used by one thread. An error of one rank alone is a Status,
/// which the ranks compare before anybody acts on it. Whatever else decides how
/// the run goes on is decided from numbers that all ranks have exchanged, and
/// so is decided the same everywhere.
class Trainer {
public:
  /// All references must outlive the trainer. Opens and allocates nothing.
  Trainer(const Manifest &manifest, const fsdpc_program &program,
          const Options &options, Job &job)
      : manifest(manifest), program(program), options(options), job(job),
        microbatches(job.size * options.accumulate),
        scaler(manifest.lossScale) {
    for (size_t bucket = 0; bucket < bucketCount(manifest); ++bucket)
      microbatchNames.push_back("microbatch" + suffixOfBucket(bucket));
  }

  /// Checks the inputs, allocates the rank and reads its first samples. If any
  /// rank has an error, every rank returns one of the same code, and one of
  /// them has the message (see `agree`).
  Status prepare();
  /// Runs all steps and saves what was asked for, what matters most first. An
  /// error is one that only this rank knows of; the caller must end the job. A
  /// failure that all ranks find ends it here. A log or trace that cannot be
  /// written is a warning.
  Status train();
  /// Returns true if the ranks were asked to stop before their last step.
  bool wasInterrupted() const { return stopping != 0; }

private:
  /// Before the first step, in prepare.cpp. The ranks agree on what each of
  /// these returned before the next is called.
  Status check();
  Status checkPaths() const;
  Status checkStepSize() const;
  Status makeGroups();
  void placeShards();
  Status load();
  Status findBase();
  Status checkBase() const;
  Status openFiles();
  Status readStep(int64_t step);
  int64_t numberOf(int64_t step, int64_t k, int64_t rank) const;
  Status fill(size_t slot, int64_t step, int64_t k);
  void send(size_t slot, int64_t k);
  Status readNext(int64_t step, int64_t k);
  /// One step, in loop.cpp. A device that runs ahead, as GPUs do, is given step
  /// n before the results of step n - 1 are read (runStepAhead, drain); another
  /// one finishes a step first (runStep). Neither way may allocate after the
  /// first step: what a step needs are members.
  void enter(const char *name, const Section &section,
             void (*entry)(fsdpc_rank *));
  Status runMicrobatches(int64_t step);
  Status runUpdate(int64_t step);
  Status runStep(Progress &progress);
  Status runStepAhead(Progress &progress);
  Status complete(Progress &progress);
  Status drain(Progress &progress);
  StepNumbers numbersAt(int64_t step, const LossScaler &after) const;
  void begin(StepRecord &record);
  void note(StepRecord &record) const;
  int stopRequest() const;
  bool isHistogramStep(int64_t step) const {
    return updateRatios && (step + 1) % options.histogramEvery == 0;
  }
  /// The exchange of a step, in exchange.cpp. All ranks must reach it in every
  /// step, also a rank that has an error: it reports that and then stops with
  /// the rest.
  void exchange(StepRecord *record);
  void exchangeWeights();
  void combineWeights();
  size_t placeOfWeight(int64_t k, size_t i) const;
  void packReport();
  void applyReports();
  void mergeReports(StepRecord &record);
  void sumMicrobatches(StepRecord &record);
  void sumUpdateRatios(StepRecord &record);
  void findStragglers(int64_t step);
  void judge(StepRecord &record);
  SentBytes sentByChannels() const;
  void countSent(StepRecord &record);
  Status checkNext();
  void publish(const StepRecord &record);
  Status finish(StepRecord &record);
  [[noreturn]] void stopAtLoss(int64_t step, double loss);
  std::string unitOfNonFinite() const;
  /// Steps that are not finite, in nonfinite.cpp, with `judge` and what stops.
  bool toleratesNonFinite() const {
    return options.onNonFinite.kind != NonFinitePolicy::stop;
  }
  void keepBuffers();
  void restoreBuffers();
  Status leaveOut(StepRecord &record);
  Status rollBack(int64_t step);
  void countMicrobatches();
  Status saveResults(Progress &progress);
  /// Checkpoints, in resume.cpp. A checkpoint is written beside the steps, in
  /// stages that all ranks begin together (start, advance, finish); a failure
  /// to write one is a warning until the last one, since training can go on.
  Status openCheckpoints();
  Status openFolder();
  void warnOfSmallDisk() const;
  void planCheckpoints();
  Status chooseCheckpoint();
  Status findCheckpoint(const std::string &wanted);
  Status loadFrom(const TrainingCheckpoint &checkpoint, bool keepsBase);
  static constexpr char samplesPerStep[] = "the number of samples per step";
  static constexpr char lossMeanSetting[] = "--loss-mean";
  Status checkLossMean() const;
  std::vector<std::pair<std::string, std::string>> settings() const;
  void reportResumed() const;
  Status beginReports(Progress &progress);
  void endReports(Progress &progress, const StepRecord &record);
  bool isCheckpointDue() const;
  bool isCheckpointStep(int64_t done) const;
  Status writeDueCheckpoint();
  Together writeLastCheckpoint();
  Status prepareCheckpoints();
  Together startCheckpoint();
  void advanceCheckpoint();
  void finishCheckpoint();
  void warnOfLost(const Together &outcome) const;
  void noteCheckpoint();
  Status removeOld(int64_t newest);
  void awaitHook();
  /// Evaluations, in evaluate.cpp. They take the slots and the arena of a step,
  /// so the device must be idle, and change nothing that training reads.
  Status openEvaluation();
  Status findEvaluationFacts();
  bool isEvaluationStep(int64_t done) const;
  Status evaluateDue(Progress &progress);
  Status evaluateLast(Progress &progress);
  Status evaluateNow(Progress &progress);
  bool isBest(const EvaluationRecord &record);
  Status keepBest(const EvaluationRecord &record);
  void warnOfUnused() const;
  Status saveTo(const std::string &path, Saved what);
  /// Returns true if the run begins with initial values: all, or those that the
  /// checkpoint leaves to the base.
  bool takesWeights() const { return !resumed || resumed->leavesOut(); }
  /// Returns the form of the files of --save, --save-ema and --best.
  SavedForm savedForm() const {
    return {options.saveTrained ? base : "", options.saveRename};
  }

  const Manifest &manifest;
  const fsdpc_program &program;
  const Options &options;
  Job &job;
  const int64_t microbatches; ///< V: microbatches per step over all ranks
  std::vector<std::string> microbatchNames; ///< the entry of each bucket
  /// Facts of the run that its header shows and the log records.
  RunInfo info;
  std::vector<Fact> facts;           ///< that must be the same on every rank
  std::vector<Fact> evaluationFacts; ///< likewise
  Samples samples;
  LossWeights lossWeights; ///< of the next step
  Weights weights;
  /// For the gather and for the reduce channel; null if no layout is gathered
  /// or reduced in groups, and on GPUs.
  std::array<std::unique_ptr<ShardGroups>, 2> groups;
  /// Of the shards that are gathered in place; null if there are none.
  std::shared_ptr<CommonMemory> sideBySide;
  std::unique_ptr<fsdpc_rank> rank;
  std::unique_ptr<FlightRecorder> recorder; ///< both from `train` on
  std::unique_ptr<StepWatch> watch;
  TrainingState state;   ///< after the last completed step
  TrainingState started; ///< where this run began
  /// Steps of which buffers count the microbatches, or that were left out.
  int64_t counted = 0;
  /// The hash of the frozen parameters; empty if no file needs it.
  std::string base;
  CheckpointFolder folder;
  std::optional<TrainingCheckpoint> resumed; ///< while it is being read
  CheckpointHook hook;                       ///< of rank 0
  std::unique_ptr<CheckpointWriter> writer;  ///< null without --checkpoint
  bool stageDone = false;    ///< on all ranks, of the checkpoint being written
  int64_t checkpointed = -1; ///< step of the newest checkpoint, -1: none
  std::chrono::steady_clock::time_point checkpointedAt;
  bool due = false; ///< by the clock of rank 0
  /// `openEvaluation` opens its data and counts. Empty without --eval.
  Evaluation evaluation;
  BestFolder best;        ///< of rank 0
  int64_t evaluated = -1; ///< steps before the last evaluation, -1: none
  double lowestLoss = std::numeric_limits<double>::infinity();
  int64_t worse = 0;      ///< evaluations since the lowest loss
  bool exhausted = false; ///< --patience has run out
  /// The errors of writing the last evaluation, and the best one. A later one
  /// may succeed.
  Status predicted, kept;
  Log log;
  EventFile events; ///< of rank 0
  std::unique_ptr<UpdateRatios>
      updateRatios; ///< null without --histogram-every
  Trace trace;
  /// The same on all ranks, since it sees the agreed result only.
  LossScaler scaler;
  StepResults results;   ///< of the last completed step
  StepRecord next;       ///< the step that is being enqueued
  StepRecord record;     ///< the step whose results are read
  bool pending = false;  ///< those results are still to be read
  int64_t leftOut = 0;   ///< steps that --on-nonfinite has left out in this run
  bool wentBack = false; ///< the last step was followed by a rollback
  /// The buffers of the model before the step that runs, one after the other;
  /// empty if no step is left out.
  std::vector<char> buffersBefore;
  /// The ranks' reports of a step (exchange.cpp). Members, so that a step
  /// allocates nothing.
  struct {
    std::vector<double> own, all;
    ComputeTimes computed;
    size_t perRank = 0; ///< numbers in a report
    size_t width = 0;   ///< and in its row of one microbatch
    const double *of(int rank) const {
      return all.data() + perRank * size_t(rank);
    }
  } exchanged;
  Stragglers stragglers;
  /// Times of this rank in the last completed step: waiting in `exchange`, and
  /// the rest of the step without waiting for other ranks.
  double exchangeMilliseconds = 0, computeMilliseconds = 0;
  /// The process's processor time in that step, and in all steps up to it.
  double processorMilliseconds = 0, processorTotal = 0;
  /// The bytes that this rank's communicators had sent when they were counted
  /// last, and those that each rank sent in the last counted step.
  SentBytes sent = {};
  std::vector<SentBytes> sentOfRanks;
  std::chrono::steady_clock::time_point finished; ///< when that step completed
  Status nextRead;      ///< this rank's reading of the next step's samples
  int nextFailure = -1; ///< lowest rank with such an error, -1: none
  bool warned = false;  ///< warned of a microbatch without a valid target
  int stopping = 0;     ///< a request that some rank got (stop_request.h)
  /// --time-limit counts from here.
  const std::chrono::steady_clock::time_point constructed =
      std::chrono::steady_clock::now();
  /// A run stops before a step that may not fit into what is left of the limit.
  double longestStepSeconds = 0;
};

/// Trains on one rank. Returns its exit code, which is that of all ranks; if it
/// is an error's, one rank has printed it. Ranks that share a process call it
/// on a thread each.
ExitCode runRank(const Manifest &manifest, const fsdpc_program &program,
                 const Options &options, Job &job);

} // namespace fsdpc::runtime
