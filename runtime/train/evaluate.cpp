// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// When a run evaluates, and what follows from the result: the log's line, the
// folder of --best, and the end by --patience. Every rank computes the same
// loss, so all ranks decide the same.
#include "runtime/core/failure.h"
#include "runtime/support/concat.h"
#include "runtime/train/progress.h"
#include "runtime/train/trainer.h"

#include <algorithm>
#include <cmath>

namespace fsdpc::runtime {

// Opens the data and the folder of --best; called by `check`.
Status Trainer::openEvaluation() {
  FSDPC_TRY(evaluation.open(manifest, program, options));
  FSDPC_TRY(evaluation.check(job));
  if (options.best.empty() || job.rank != 0)
    return {};
  return best.open(options.best, !options.resume.empty());
}

// Ranks that evaluate or measure at other times would wait for each other for
// ever. These facts are no part of a checkpoint, since they decide nothing that
// is learnt. Every rank lists as many.
Status Trainer::findEvaluationFacts() {
  bool isOn = evaluation.isOn();
  evaluationFacts = {
      {"--eval", isOn ? "on" : "off"},
      {"--eval-every", std::to_string(options.evalEvery)},
      {"--eval-steps", std::to_string(options.evalSteps)},
      {"--patience", std::to_string(options.patience)},
      {"--histogram-every", std::to_string(options.histogramEvery)},
      {"--best", options.best.empty() ? "off" : "on"}};
  std::string metrics, predicted;
  for (const Metric &metric : options.metrics)
    metrics += concat(metric.output, metric.sum ? ":sum " : " ");
  for (const Prediction &prediction : options.predictions)
    predicted += concat(prediction.output, " ");
  evaluationFacts.push_back({"--metric", metrics});
  evaluationFacts.push_back({"--predict", predicted});
  for (size_t i = 0; i < manifest.inputs.size(); ++i) {
    Result<uint64_t> hash = isOn ? evaluation.data().hashOf(i) : uint64_t(0);
    FSDPC_TRY(hash);
    evaluationFacts.push_back({"the hash of the evaluation samples of input '" +
                                   manifest.inputs[i].name + "'",
                               std::to_string(*hash)});
  }
  return {};
}

bool Trainer::isEvaluationStep(int64_t done) const {
  return options.evalEvery > 0 && done % options.evalEvery == 0;
}

// All ranks call it together after a step, when the device is idle. A run that
// was asked to stop has no time left.
Status Trainer::evaluateDue(Progress &progress) {
  return isEvaluationStep(state.step) && !stopping ? evaluateNow(progress)
                                                   : Status();
}

// After the last step, unless that step has just been evaluated.
Status Trainer::evaluateLast(Progress &progress) {
  return evaluation.isOn() && evaluated != state.step && !stopping
             ? evaluateNow(progress)
             : Status();
}

// A loss that is not finite is a warning only: the training itself may be fine.
Status Trainer::evaluateNow(Progress &progress) {
  EvaluationRecord record;
  record.step = evaluated = state.step;
  FSDPC_TRY(evaluation.run(*rank, record));
  predicted = evaluation.commitPredictions();
  if (job.rank == 0) {
    if (!std::isfinite(record.loss)) {
      std::string why = evaluation.describeNonFinite();
      printWarning(concat("the loss of the evaluation after step ", record.step,
                          " is ", record.loss, why.empty() ? "" : ": ", why));
    }
    progress.evaluation(record);
    if (Status logged = log.evaluation(options, record); !logged)
      printWarning(logged.error().message +
                   "; the run goes on, and its log ends here");
    std::vector<Scalar> scalars = {{"eval_loss", record.loss}};
    for (size_t m = 0; m < record.metrics.size(); ++m)
      scalars.emplace_back("eval_metrics/" + options.metrics[m].name,
                           record.metrics[m]);
    if (Status added = events.add(record.step, scalars); !added)
      printWarning(added.error().message +
                   "; the run goes on, and its event file ends here");
  }
  if (isBest(record))
    kept = keepBest(record);
  // The last one's failures are reported when the run ends.
  bool goesOn = state.step < options.steps && !exhausted;
  for (const Status *written : {&predicted, &kept})
    if (goesOn && !*written)
      printWarning(
          concat(written->error().message,
                 "; the run goes on without what the evaluation after step ",
                 record.step, " found"));
  // Its time and what it has sent belong to no step.
  StepRecord unused;
  countSent(unused);
  finished = std::chrono::steady_clock::now();
  // The next one may come between two looks at --time-limit.
  longestStepSeconds = std::max(longestStepSeconds, record.milliseconds / 1e3);
  return {};
}

// Without --best the lowest loss counts from where this run began. Rank 0's
// lowest loss counts for all, since it alone reads best.json.
bool Trainer::isBest(const EvaluationRecord &record) {
  std::vector<double> lowest(size_t(job.size));
  double own = options.best.empty() ? lowestLoss : best.loss();
  job.channel[controlChannel]->allGather(&own, lowest.data(), sizeof own);
  // Not true of a loss that is not a number either.
  bool isBetter = record.loss < lowest[0];
  worse = isBetter ? 0 : worse + 1;
  exhausted = options.patience > 0 && worse >= options.patience;
  if (isBetter)
    lowestLoss = record.loss;
  return isBetter && !options.best.empty();
}

// If it cannot be written, the folder keeps the best one before, which a later
// evaluation then has to beat.
Status Trainer::keepBest(const EvaluationRecord &record) {
  countMicrobatches();
  // Only rank 0 names a file; the others send their parts.
  NewFile parameters;
  FSDPC_TRY(saveUncommitted(*rank, Saved::parameters, best.pathOf(record.step),
                            savedForm(), parameters));
  return job.rank == 0 ? best.publish(record.step, record.loss, parameters)
                       : Status();
}

} // namespace fsdpc::runtime
