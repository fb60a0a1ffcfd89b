#include "training/trainer.h"

#include <filesystem>
#include <limits>
#include <numeric>
#include <optional>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/human.h"
#include "base/log.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/model_source.h"
#include "comm/accelerator.h"
#include "parallel/gradient_reducer.h"
#include "parallel/mesh.h"
#include "parallel/model_parts.h"
#include "parallel/step_exchange.h"
#include "parallel/step_executor.h"
#include "parallel/whole_model.h"
#include "training/collectively.h"
#include "training/device_peak.h"
#include "training/rank_work.h"
#include "training/run_reporter.h"
#include "training/run_setup.h"
#include "training/signals.h"
#include "training/trace.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr double kStopFlag = 1;
constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

// Tensor degrees whose parts are whole subtrees of the tree over the blocks.
std::vector<int> equivalent_tensor_degrees(const ModelConfig& model, int virtual_tensor) {
  std::vector<int> degrees = equivalent_degrees(virtual_tensor);
  std::erase_if(degrees, [&](int degree) { return !can_split(model, degree, virtual_tensor); });
  return degrees;
}

// One run: its memory, its files and its loop.
class Run {
 public:
  Run(const TrainingConfig& config, RunSetup setup, Communicator& group, Queue& queue);

  TrainingEnd loop();

 private:
  [[nodiscard]] bool is_writer() const { return group_->rank() == 0; }
  /// False on a queue that computes nothing: losses and weights then mean nothing and are not kept.
  [[nodiscard]] bool computes() const { return queue_->kind() != DeviceKind::kDry; }
  [[nodiscard]] long last_step() const { return setup_.plan->num_steps(); }
  /// Samples consumed after `updates` steps.
  [[nodiscard]] long samples_done(long updates) const {
    return updates == 0 ? 0 : setup_.plan->samples_after(updates - 1);
  }
  [[nodiscard]] WholeModel* whole() { return whole_ ? &*whole_ : nullptr; }
  [[nodiscard]] bool keeps_copy() const { return whole_ && whole_->keeps_copy(); }
  /// What rank 0 saves: of a spread model a copy, or tensor by tensor while the others serve.
  [[nodiscard]] ModelView saved_model() {
    return keeps_copy() ? whole_->copy() : whole_ ? whole_->view() : state_.view();
  }
  void add_up_peaks();
  void restore();
  void open_files();
  void announce() const;
  StepResult take_step();
  void report(const StepResult& result, double lr);
  void evaluate();
  /// `required`: nothing comes after it, so a failure to write is an error.
  void save(bool required);
  /// In every rank's log: what it did in `steps` steps.
  void log_work(long steps) const;
  /// Of a spread model, once a step.
  void update_copy();
  /// On the writer.
  void write_checkpoint(bool required);
  /// On the writer, 0 elsewhere. What the last checkpoint found on its way, if it is of this step.
  /// Collective.
  [[nodiscard]] std::uint64_t hash_of_state();
  void finish(TrainingEnd end);
  [[nodiscard]] RunState run_state() const;
  [[nodiscard]] std::size_t allocated_bytes() const;

  const TrainingConfig* config_;
  RunSetup setup_;
  Communicator* group_;
  Queue* queue_;
  std::size_t bytes_before_;  ///< taken from queue and group by others
  long step_ = 0;             ///< updates (or skipped steps) done

  Mesh mesh_;
  WorkMeter meter_;
  GradientReducer reducer_;
  ModelState state_;
  StepExchange exchange_;
  SharedGradient shared_;
  Stages stages_;
  std::optional<WholeModel> whole_;  ///< where ranks have parts of the model only
  long saved_step_ = -1;             ///< of the last checkpoint that had to be written
  long copied_step_ = -1;            ///< of which its copy is
  StepExecutor executor_;
  std::optional<BatchReader> reader_;
  std::optional<Evaluator> evaluator_;

  std::optional<CheckpointWriter> checkpoints_;
  std::optional<RunReporter> reporter_;  ///< of the writer
  std::optional<StepTracer> tracer_;
  double peak_operations_ = 0;  ///< a second, of all ranks together
};

Run::Run(const TrainingConfig& config, RunSetup setup, Communicator& group, Queue& queue)
    : config_(&config),
      setup_(std::move(setup)),
      group_(&group),
      queue_(&queue),
      bytes_before_(queue.allocated_bytes() + group.allocated_bytes()),
      mesh_(setup_.mesh_shape, group),
      meter_(mesh_, queue),
      reducer_(setup_.parts->table_of(group.rank()),
               setup_.parts->chunk_elements(group.rank()),
               setup_.layout,
               config.parallel,
               setup_.one_micro_batch,
               mesh_.data(),
               queue),
      state_(setup_.parts->table_of(group.rank()),
             setup_.dtype,
             config.optimizer,
             setup_.parts->shards_of(group.rank(), mesh_.data(), reducer_.is_packed()),
             queue),
      exchange_(
          setup_.parts->whole(), setup_.parts->norm_shares(), reducer_.pieces(), group, queue),
      shared_(state_.table(), reducer_.owned(), reducer_.pieces(), mesh_.pipeline(), queue),
      stages_(setup_.model_config,
              *setup_.parts,
              mesh_,
              setup_.pass_memory,
              setup_.pipeline,
              state_,
              stage_options(config, setup_.dtype, setup_.data->info()),
              queue),
      executor_(stages_.runner(),
                state_,
                reducer_,
                shared_,
                exchange_,
                setup_.layout,
                config.parallel.accumulate == "tree-fold",
                setup_.pipeline.schedules,
                queue) {
  if (needs_whole_model(*setup_.parts, queue.planned_kind())) {
    whole_.emplace(setup_.parts->canonical(),
                   setup_.parts->model_shares(),
                   state_,
                   group.host(),
                   config.checkpoint.async_write,
                   queue);
  }
  queue.workspace(setup_.pass_memory.workspace);
  queue.seal_workspace();
  add_up_peaks();
  restore();
  reader_.emplace(*setup_.data,
                  SampleOrder(static_cast<std::uint64_t>(config.run.seed),
                              setup_.data->num_samples(),
                              config.data.shuffle),
                  *setup_.plan,
                  reader_options(config, setup_.layout, step_));
  if (setup_.validation) {
    evaluator_.emplace(*setup_.validation,
                       config.train.micro_batch_size,
                       config.train.eval_batches * config.train.global_batch_size);
  }
  open_files();
  announce();
}

void Run::add_up_peaks() {
  const double mine = setup_.device_peak;
  std::vector<double> all(static_cast<std::size_t>(group_->size()));
  group_->all_gather({&mine, 1}, all);
  peak_operations_ = std::accumulate(all.begin(), all.end(), 0.0);
}

void Run::restore() {
  state_.initialise(static_cast<std::uint64_t>(config_->run.seed));
  const std::string& source = setup_.model_config.init_from;
  if (!setup_.resume && source.empty()) {
    return;
  }
  // One rank reads, so that hosts need not share a disk.
  collectively(*group_, [&] {
    on_whole_model(whole(), state_, group_->rank(), [&](const ModelView& model) {
      if (setup_.resume) {
        load_checkpoint(setup_.resume->path, model, false);
      } else {
        load_source_weights(source, setup_.model_config, model);
      }
    });
  });
  const std::vector<float*> buffers = state_.buffers();
  const std::size_t loaded = setup_.resume ? buffers.size() : 1;
  if (!whole_) {
    for (std::size_t i = 0; i < loaded; ++i) {
      group_->broadcast(buffers[i], state_.master_bytes(), 0);
    }
  }
  state_.refresh_compute_copy();
  if (!setup_.resume) {
    return;
  }
  step_ = setup_.resume->state.step;
  if (step_ > last_step()) {
    throw_request_error(
        "the checkpoint to go on from is at step {}, this configuration ends at {}: "
        "raise train.steps or train.epochs, or use another train.output_dir",
        step_,
        last_step());
  }
}

void Run::open_files() {
  const std::string& directory = config_->train.output_dir;
  try {
    fs::create_directories(directory + "/logs");  // each host its own, if they share no disk
    if (!config_->log.trace.empty()) {
      fs::create_directories(directory + "/trace");
    }
    log::add_file(directory + "/logs");
    tracer_.emplace(parse_trace_range(config_->log.trace), directory + "/trace", group_->rank());
    if (!is_writer()) {
      return;
    }
    reporter_.emplace(
        directory,
        config_->log,
        config_->text,
        RunReporter::Facts{.first_step = step_,
                           .last_step = last_step(),
                           .targets_per_sample = setup_.data->targets_per_sample(),
                           .operations_per_target = setup_.parts->operations_per_target(),
                           .peak_operations = peak_operations_});
    checkpoints_.emplace(
        directory, config_->checkpoint, saved_model(), whole_.has_value(), *queue_);
  } catch (const fs::filesystem_error& failure) {
    throw_error("train.output_dir: {}", failure.what());
  }
}

void Run::announce() const {
  if (!is_writer()) {
    return;
  }
  const ParameterTable& table = setup_.parts->whole();
  const VirtualLayout& layout = setup_.layout;
  log::info("model: {}, {} parameters in {} tensors, {}",
            setup_.model_config.architecture,
            human_count(static_cast<double>(table.num_elements())),
            table.parameters().size(),
            config_->run.precision);
  log::info("data: {} samples, {} validation samples, {} steps",
            setup_.data->num_samples(),
            setup_.validation ? setup_.validation->num_samples() : 0,
            last_step());
  if (setup_.mesh_shape.tensor > 1 || setup_.mesh_shape.pipeline > 1) {
    log::info("mesh: {} x data, {} x pipeline, {} x tensor",
              setup_.mesh_shape.data,
              setup_.mesh_shape.pipeline,
              setup_.mesh_shape.tensor);
    for (const std::string& line : mesh_.lines()) {
      log::info("{}", line);
    }
  }
  log::info("virtual layout: {} x data, {} x tensor; same bits on {} data and {} tensor ranks ({})",
            layout.virtual_data,
            layout.virtual_tensor,
            fmt::join(equivalent_degrees(layout.virtual_data), ", "),
            fmt::join(equivalent_tensor_degrees(setup_.model_config, layout.virtual_tensor), ", "),
            config_->parallel.reduction == "ordered"
                ? machine_fingerprint(*queue_)
                : "not promised: parallel.reduction is native");
  log::info("peak: {} operations/s of matrix products on all ranks, measured",
            human_count(peak_operations_));
  log::info("memory of a rank: {} ({})",
            human_bytes(static_cast<std::int64_t>(setup_.memory.total())),
            setup_.memory.text());
  if (setup_.resume) {
    log::info("going on from step {} ({})", step_, setup_.resume->path);
  }
}

std::size_t Run::allocated_bytes() const {
  return queue_->allocated_bytes() + queue_->workspace_bytes() + mesh_.allocated_bytes() -
         bytes_before_ + reader_->buffer_bytes() + (evaluator_ ? evaluator_->buffer_bytes() : 0);
}

RunState Run::run_state() const {
  RunState state;
  state.step = step_;
  state.samples = samples_done(step_);
  state.tokens = state.samples * setup_.data->targets_per_sample();
  state.seed = static_cast<std::uint64_t>(config_->run.seed);
  state.virtual_data = setup_.layout.virtual_data;
  state.virtual_tensor = setup_.layout.virtual_tensor;
  state.accumulate = config_->parallel.accumulate;
  state.precision = config_->run.precision;
  state.optimizer = config_->optimizer.name;
  state.fingerprint = machine_fingerprint(*queue_);
  state.model = setup_.model_config;
  return state;
}

StepResult Run::take_step() {
  const StepBatch& batch = reader_->next();
  const double lr = learning_rate(config_->optimizer, config_->lr_schedule, step_, last_step());
  tracer_->begin_step(step_ + 1);
  const StepResult result = executor_.run(batch,
                                          {.lr = lr,
                                           .grad_clip = config_->optimizer.grad_clip,
                                           .update_number = step_ + 1,
                                           .flags = stop_requested() ? kStopFlag : 0});
  tracer_->end_step(step_ + 1);
  if (!result.finite && config_->fault.nan == "stop") {
    throw_error(
        "step {}: loss {} and gradient norm {} are not both finite; nothing of this step "
        "was kept (fault.nan = \"skip\" goes on without the update)",
        step_ + 1,
        result.loss,
        result.grad_norm);
  }
  ++step_;
  if (!result.updated && is_writer()) {
    log::warn("step {} skipped: {}",
              step_,
              result.finite ? "its batch has no trained target" : "loss or norm is not finite");
  }
  report(result, lr);
  return result;
}

void Run::report(const StepResult& result, double lr) {
  if (!is_writer() || !reporter_->wants(step_)) {
    return;
  }
  TrainRecord record;
  record.step = step_;
  record.epoch = setup_.plan->epochs_after(step_ - 1);
  record.samples = samples_done(step_);
  record.loss = result.updated && computes() ? result.loss : kNoNumber;
  record.grad_norm = computes() ? result.grad_norm : kNoNumber;
  record.lr = lr;
  record.memory_bytes = static_cast<long>(allocated_bytes());
  reporter_->step(record);
}

void Run::evaluate() {
  const WorkPause pause(meter_);
  const std::int64_t begin = now_ns();
  const Evaluation evaluation = evaluator_->run(stages_.runner(), setup_.layout, mesh_);
  if (is_writer()) {
    reporter_->evaluation(evaluation, step_);
    reporter_->exclude(now_ns() - begin);
  }
}

// To be called when nothing writes the last checkpoint from the buffers any more.
void Run::update_copy() {
  if (keeps_copy() && copied_step_ != step_) {
    whole_->update_copy();
    copied_step_ = step_;
  }
}

void Run::write_checkpoint(bool required) {
  // The older checkpoints are still there: training is worth more than one in between. The last
  // one must be written, or the exit status would promise what is not there.
  try {
    checkpoints_->save(run_state());
  } catch (const Error& failure) {
    if (required) {
      throw;
    }
    log::error("checkpoint not written: {}", failure.what());
  }
}

void Run::save(bool required) {
  if (!computes()) {
    return;
  }
  const WorkPause pause(meter_);
  const std::int64_t begin = now_ns();
  if (is_writer()) {
    reporter_->sync();
    try {
      checkpoints_->wait();
    } catch (const Error& failure) {
      log::error("checkpoint not written: {}", failure.what());
    }
  }
  update_copy();
  if (whole_ && !keeps_copy()) {
    on_whole_model(
        whole(), state_, group_->rank(), [&](const ModelView&) { write_checkpoint(required); });
  } else if (is_writer()) {
    write_checkpoint(required);
  }
  if (required) {
    saved_step_ = step_;
  }
  if (is_writer()) {
    reporter_->exclude(now_ns() - begin);
  }
}

std::uint64_t Run::hash_of_state() {
  if (saved_step_ == step_) {
    return is_writer() ? checkpoints_->written_hash() : 0;
  }
  std::uint64_t hash = 0;
  const auto find = [&](const ModelView& model) {
    hash = hash_of_model(model, checkpoints_->room());
  };
  if (keeps_copy()) {
    update_copy();
    if (is_writer()) {
      find(whole_->copy());
    }
  } else {
    on_whole_model(whole(), state_, group_->rank(), find);
  }
  return hash;
}

TrainingEnd Run::loop() {
  if (is_writer() && step_ == last_step()) {
    log::info("already complete: step {} of {}", step_, last_step());
  }
  group_->barrier();
  tracer_->set_origin(now_ns());
  if (is_writer()) {
    reporter_->begin(samples_done(step_), meter_);
  }
  const long first_step = step_;
  meter_.resume();
  TrainingEnd end = TrainingEnd::kFinished;
  while (step_ < last_step()) {
    const StepResult result = take_step();
    const bool stop = result.flags >= kStopFlag;
    const bool last = step_ == last_step();
    const auto due = [&](long interval) { return interval > 0 && step_ % interval == 0; };
    // Whoever asked for a stop may not wait for long: the checkpoint comes first then.
    if (stop) {
      save(true);
    }
    if (evaluator_ && (last || due(config_->train.eval_interval))) {
      evaluate();
    }
    if (!stop && (last || due(config_->checkpoint.interval))) {
      save(last);
    }
    if (stop && !last) {
      end = TrainingEnd::kStopped;
      break;
    }
  }
  meter_.pause();
  log_work(step_ - first_step);
  finish(end);
  return end;
}

void Run::log_work(long steps) const {
  if (steps == 0) {
    return;
  }
  const RankWork work = meter_.total();
  log::info("work of this rank in {} steps: {:.0f} operations, {:.0f} bytes sent ({})",
            steps,
            work.operations,
            work.bytes_sent(),
            work.text());
}

void Run::finish(TrainingEnd end) {
  tracer_->finish();
  const std::size_t planned = setup_.memory.total();
  if (!is_writer()) {
    const auto say = allocated_bytes() == planned ? spdlog::level::debug : spdlog::level::warn;
    spdlog::log(say, "memory: {} bytes allocated, {} planned", allocated_bytes(), planned);
  }
  if (is_writer()) {
    checkpoints_->wait();
  }
  const std::uint64_t hash = computes() ? hash_of_state() : 0;
  if (is_writer()) {
    reporter_->finish(step_, samples_done(step_), static_cast<long>(allocated_bytes()));
    log::info("memory: {} bytes allocated, {} planned", allocated_bytes(), planned);
    if (computes()) {
      log::info("hash of weights and optimiser state: {}", to_hex(hash));
    }
    if (end == TrainingEnd::kStopped) {
      log::info("stopped by a signal after step {}; start again to go on", step_);
    }
  }
  group_->barrier();  // every file is durable before any rank leaves
}

}  // namespace

TrainingEnd train(const TrainingConfig& config, Communicator& group, Queue& queue) {
  collectively(group, [&] { parse_trace_range(config.log.trace); });
  RunSetup setup = set_up_run(config, group, queue);
  setup.device_peak = measure_device_peak(queue, setup.dtype);
  if (queue.kind() == DeviceKind::kCuda) {
    constexpr std::size_t kForAlignment = std::size_t{1} << 20U;
    accelerator()->reserve(queue, setup.memory.device() + kForAlignment);
  }
  catch_stop_signals();
  Run run(config, std::move(setup), group, queue);
  return run.loop();
}

}  // namespace lockstep
