#include "training/run_reporter.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "formats/append_file.h"

namespace lockstep {

RunReporter::RunReporter(const std::string& directory,
                         const LogConfig& config,
                         const std::string& config_text,
                         const Facts& facts)
    : directory_(directory),
      config_(config),
      facts_(facts),
      metrics_(directory + "/metrics.jsonl") {
  replace_file(directory + "/config.toml", config_text);
  metrics_.truncate_after(facts.first_step);
  if (config.tensorboard) {
    std::filesystem::create_directories(directory + "/tensorboard");
    tensorboard_.emplace(directory + "/tensorboard", facts.first_step + 1);
  }
}

void RunReporter::begin(long samples, const WorkMeter& meter) {
  meter_ = &meter;
  progress_.emplace(ProgressOptions{.first_step = facts_.first_step + 1,
                                    .last_step = facts_.last_step,
                                    .log_interval = config_.interval,
                                    .live = config_.progress});
  begin_ns_ = now_ns();
  begin_samples_ = samples;
  window_begin_ns_ = begin_ns_;
  window_step_ = facts_.first_step;
  window_samples_ = samples;
}

bool RunReporter::wants(long step) const {
  return progress_->live() || is_logged_step(step, config_.interval, facts_.last_step);
}

void RunReporter::step(TrainRecord record) {
  const std::int64_t now = now_ns();
  const double seconds = static_cast<double>(now - window_begin_ns_) * 1e-9;
  const auto targets = static_cast<double>(facts_.targets_per_sample);
  record.tokens = record.samples * facts_.targets_per_sample;
  const auto steps = static_cast<double>(std::max(1L, record.step - window_step_));
  record.seconds = seconds / steps;
  record.tokens_per_second =
      static_cast<double>(record.samples - window_samples_) * targets / seconds;
  record.mfu = record.tokens_per_second * facts_.operations_per_target / facts_.peak_operations;
  progress_->update(record, now);
  last_loss_ = record.loss;
  if (!is_logged_step(record.step, config_.interval, facts_.last_step)) {
    return;
  }
  const RankWork work = meter_->total();
  record.work = work;
  record.work -= window_work_;
  record.work /= steps;
  metrics_.write(record);
  if (tensorboard_) {
    write_scalars(*tensorboard_, record);
  }
  training_seconds_ += seconds;
  window_begin_ns_ = now;
  window_step_ = record.step;
  window_samples_ = record.samples;
  window_work_ = work;
}

void RunReporter::evaluation(const Evaluation& evaluation, long step) {
  EvalRecord record;
  record.step = step;
  record.loss = evaluation.loss;
  record.perplexity = std::exp(evaluation.loss);
  record.accuracy = evaluation.accuracy;
  metrics_.write(record);
  if (tensorboard_) {
    write_scalars(*tensorboard_, record);
  }
  last_evaluation_ = record;
  log::info("step {}: validation loss {:.4f}{} ({} targets)",
            step,
            record.loss,
            std::isnan(record.accuracy) ? fmt::format(", perplexity {:.2f}", record.perplexity)
                                        : fmt::format(", accuracy {:.2f} %", 100 * record.accuracy),
            evaluation.targets);
}

void RunReporter::finish(long step, long samples, long memory_bytes) {
  metrics_.sync();
  progress_.reset();
  if (step == facts_.first_step) {
    return;
  }
  RunSummary summary;
  summary.steps = step;
  summary.loss = last_loss_;
  summary.evaluation = last_evaluation_;
  const auto targets = static_cast<double>((samples - begin_samples_) * facts_.targets_per_sample);
  summary.tokens_per_second = training_seconds_ > 0 ? targets / training_seconds_ : 0;
  summary.seconds = seconds_since(begin_ns_);
  summary.memory_bytes = memory_bytes;
  summary.work = meter_->total();
  summary.work /= static_cast<double>(step - facts_.first_step);
  summary.output_dir = directory_;
  fmt::print("{}", summary_table(summary));
}

}  // namespace lockstep
