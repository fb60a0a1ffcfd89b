// No step allocates: every operator new between the exchanges of two steps is counted.
#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include <dlfcn.h>

#include "comm/mpi/runtime.h"
#include "device/cpu/cpu_queue.h"
#include "support/catch.h"
#include "support/scratch_folder.h"
#include "training/trainer.h"

namespace {

std::atomic<long> num_allocations{0};
std::atomic<bool> counting{false};

// Whether `address` is code of a library that allocates as it likes: oneDNN, MPI and what MPI loads.
// All else is ours, or the standard library's and fmt's on our behalf.
bool is_foreign(void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) {
    return false;
  }
  const std::string_view path = info.dli_fname;
  for (const char* name : {"libdnnl", "libmpi", "libopen-", "libpmix", "libevent", "/mca_"}) {
    if (path.find(name) != std::string_view::npos) {
      return true;
    }
  }
  return false;
}

void* allocate(std::size_t bytes, std::size_t alignment, void* caller) {
  if (counting.load(std::memory_order_relaxed) && !is_foreign(caller)) {
    num_allocations.fetch_add(1, std::memory_order_relaxed);
  }
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, bytes) != 0) {
    throw std::bad_alloc();
  }
  return memory;
}

constexpr std::size_t kDefaultAlignment = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

}  // namespace

// The array and nothrow forms of the standard library call these.
void* operator new(std::size_t bytes) {
  return allocate(bytes, kDefaultAlignment, __builtin_return_address(0));
}
void* operator new[](std::size_t bytes) {
  return allocate(bytes, kDefaultAlignment, __builtin_return_address(0));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
  std::free(memory);
}

namespace lockstep {
namespace {

constexpr long kSteps = 8;

/// Passes everything on; notes how much was allocated whenever a step exchanges its norm, which it
/// does once. The exchange has more values than any at the start.
class StepWatcher final : public Communicator {
 public:
  explicit StepWatcher(Communicator& group) : group_(&group) { counts_.reserve(kSteps); }

  /// Allocations from the exchange of each step to that of the next.
  [[nodiscard]] std::vector<long> between_steps() const {
    std::vector<long> differences;
    for (std::size_t i = 1; i < counts_.size(); ++i) {
      differences.push_back(counts_[i] - counts_[i - 1]);
    }
    return differences;
  }

  void all_gather(std::span<const double> mine, std::span<double> all) override {
    group_->all_gather(mine, all);
    constexpr std::size_t kLeastOfAStep = 3;  // loss, flags and at least one subtree
    if (mine.size() >= kLeastOfAStep) {
      counts_.push_back(num_allocations.load());
    }
  }

  [[nodiscard]] int rank() const override { return group_->rank(); }
  [[nodiscard]] int size() const override { return group_->size(); }
  Memory allocate(std::size_t bytes) override { return group_->allocate(bytes); }
  Memory allocate_shared(std::size_t bytes) override { return group_->allocate_shared(bytes); }
  [[nodiscard]] bool takes_shared() const override { return group_->takes_shared(); }
  [[nodiscard]] std::size_t allocated_bytes() const override { return group_->allocated_bytes(); }
  std::unique_ptr<Operation> make_all_reduce(float* data, long count, Reduction kind) override {
    return group_->make_all_reduce(data, count, kind);
  }
  std::unique_ptr<Operation> make_reduce_scatter(float* data, long count, long chunk) override {
    return group_->make_reduce_scatter(data, count, chunk);
  }
  std::unique_ptr<Operation> make_all_gather(void* data,
                                             std::size_t bytes,
                                             std::size_t chunk_bytes,
                                             std::function<void()> contribute) override {
    return group_->make_all_gather(data, bytes, chunk_bytes, std::move(contribute));
  }
  std::unique_ptr<Operation> make_send(const void* data,
                                       std::size_t bytes,
                                       int to,
                                       int tag) override {
    return group_->make_send(data, bytes, to, tag);
  }
  std::unique_ptr<Operation> make_receive(void* data,
                                          std::size_t bytes,
                                          int from,
                                          int tag) override {
    return group_->make_receive(data, bytes, from, tag);
  }
  void broadcast(void* data, std::size_t bytes, int root) override {
    group_->broadcast(data, bytes, root);
  }
  void barrier() override { group_->barrier(); }
  std::vector<std::string> all_gather_text(const std::string& text) override {
    return group_->all_gather_text(text);
  }
  std::unique_ptr<Communicator> split(std::span<const int> color_of) override {
    return group_->split(color_of);
  }
  [[nodiscard]] const std::vector<int>& host_of() const override { return group_->host_of(); }
  void poll() override { group_->poll(); }
  void set_time_limit(double seconds) override { group_->set_time_limit(seconds); }
  [[nodiscard]] double bytes_sent() const override { return group_->bytes_sent(); }
  [[nodiscard]] std::span<const TrafficCount> traffic() const override { return group_->traffic(); }

 private:
  Communicator* group_;
  std::vector<long> counts_;
};

TrainingConfig tiny_training(const std::string& architecture, const std::string& precision) {
  TrainingConfig config;
  config.model.architecture = architecture;
  config.model.layer_sizes = {16, 100, 100, 10};
  config.model.num_layers = 2;
  config.model.hidden_size = 48;
  config.model.num_heads = 6;
  config.model.num_kv_heads = architecture == "llama" ? 2 : 0;
  config.model.seq_length = 12;
  config.model.vocab_size = 101;
  config.data.kind = "synthetic";
  config.data.ignore_token = 7;  // targets are then counted in every step
  config.train.steps = kSteps;
  config.train.global_batch_size = 11;
  config.train.micro_batch_size = 2;
  config.train.eval_interval = 0;
  config.run.precision = precision;
  config.parallel.virtual_data = 4;
  config.parallel.virtual_tensor = 2;
  config.parallel.bucket_mib = 1;
  config.checkpoint.interval = 0;
  config.log.interval = 0;  // lines of the first and the last step only
  config.log.tensorboard = false;
  config.log.progress = false;
  return config;
}

void check_steps(const MpiRuntime& runtime, TrainingConfig config, int threads) {
  const test::ScratchFolder folder;
  config.train.output_dir = folder / "run";
  CpuQueue queue(threads);
  const auto world = make_world(runtime, {&queue.threads()});
  StepWatcher watcher(*world);

  counting = true;
  const TrainingEnd end = train(config, watcher, queue);
  counting = false;

  CHECK(end == TrainingEnd::kFinished);
  const std::vector<long> allocations = watcher.between_steps();
  REQUIRE(allocations.size() == kSteps - 1);
  if (world->rank() == 0) {
    CHECK(allocations.front() > 0);  // the line of step 1: the count sees this program
  }
  CHECK((std::vector<long>(allocations.begin() + 1, allocations.end()) ==
         std::vector<long>(kSteps - 2, 0)));
}

}  // namespace

TEST_CASE("no step allocates after the second") {
  int argc = 0;
  char** argv = nullptr;
  const MpiRuntime runtime(argc, argv);
  for (const char* architecture : {"gpt2", "llama", "mlp"}) {
    for (const char* precision : {"f32", "bf16"}) {
      for (const int threads : {1, 2}) {
        CAPTURE(architecture, precision, threads);
        check_steps(runtime, tiny_training(architecture, precision), threads);
      }
    }
  }
  if (runtime.global_size() == 2) {
    for (const char* schedule : {"1f1b", "zero-bubble"}) {
      CAPTURE(schedule);
      TrainingConfig config = tiny_training("gpt2", "f32");
      config.parallel.pipeline = 2;
      config.parallel.schedule = schedule;
      check_steps(runtime, config, 1);
    }
  }
}

TEST_CASE("the count sees what the standard library allocates for this program") {
  counting = true;
  const long before = num_allocations.load();
  const std::string text(1000, 'x');
  const std::vector<long> numbers(text.size());
  counting = false;

  CHECK(num_allocations.load() - before == 2);
}

}  // namespace lockstep
