#include "training/progress.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <string_view>
#include <vector>

#include <spdlog/sinks/base_sink.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/human.h"
#include "base/log.h"

namespace lockstep {

/// The sink stands before the console's, so a message finds the line wiped.
class Progress::Line final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit Line(int descriptor) : descriptor_(descriptor) {}

  void show(std::string text) {
    const std::lock_guard lock(mutex_);
    winsize window = {};
    // A line as wide as the terminal would wrap, and could then not be rewritten.
    if (::ioctl(descriptor_, TIOCGWINSZ, &window) == 0 && window.ws_col > 0) {
      text.resize(std::min<std::size_t>(text.size(), window.ws_col - 1U));
    }
    put("\r" + text + "\x1b[K");
    shown_ = true;
  }

  void wipe() {
    const std::lock_guard lock(mutex_);
    wipe_locked();
  }

 private:
  void sink_it_(const spdlog::details::log_msg& /*message*/) override { wipe_locked(); }
  void flush_() override {}

  void wipe_locked() {
    if (shown_) {
      put("\r\x1b[K");
      shown_ = false;
    }
  }

  void put(std::string_view bytes) const {
    [[maybe_unused]] const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
  }

  int descriptor_;
  bool shown_ = false;
};

Progress::Progress(const ProgressOptions& options, int descriptor)
    : options_(options), live_(options.live && ::isatty(descriptor) == 1), begin_ns_(now_ns()) {
  if (live_) {
    line_ = std::make_shared<Line>(descriptor);
    auto& sinks = spdlog::default_logger()->sinks();
    sinks.insert(sinks.begin(), line_);
  }
}

Progress::~Progress() {
  if (live_) {
    line_->wipe();
    auto& sinks = spdlog::default_logger()->sinks();
    sinks.erase(std::remove(sinks.begin(), sinks.end(), line_), sinks.end());
  }
}

void Progress::update(const TrainRecord& record, std::int64_t now) {
  constexpr std::int64_t kMinPause = 100'000'000;
  const bool last = record.step == options_.last_step;
  const bool due = live_ ? shown_ns_ == 0 || last || now - shown_ns_ >= kMinPause
                         : is_logged_step(record.step, options_.log_interval, options_.last_step);
  if (!due) {
    return;
  }
  shown_ns_ = now;
  const auto steps_done = static_cast<double>(record.step - options_.first_step + 1);
  const auto steps_left = static_cast<double>(options_.last_step - record.step);
  const double elapsed = static_cast<double>(now - begin_ns_) * 1e-9;
  const std::string text =
      progress_text(record, options_.last_step, elapsed / steps_done * steps_left);
  if (live_) {
    line_->show(text);
  } else {
    log::info("{}", text);
  }
}

void Progress::clear() {
  if (live_) {
    line_->wipe();
  }
}

std::string progress_text(const TrainRecord& record, long last_step, double seconds_left) {
  std::string text = fmt::format(
      "step {}/{} | loss {:.4f} | lr {:.2e}", record.step, last_step, record.loss, record.lr);
  if (record.tokens_per_second > 0.0) {
    text += fmt::format(" | {} tokens/s", human_count(std::round(record.tokens_per_second)));
  }
  if (seconds_left >= 0.0) {
    text += fmt::format(" | {} left", human_duration(seconds_left));
  }
  return text;
}

namespace {

std::string bytes_sent_text(const RankWork& work) {
  const auto bytes = [](double number) { return human_bytes(std::lround(number)); };
  std::string groups;
  for (const GroupWork& group : work.groups) {
    if (group.any()) {
      groups +=
          fmt::format("{}{} {}", groups.empty() ? "" : ", ", group.name, bytes(group.bytes()));
    }
  }
  return fmt::format("{} a step by rank 0 ({})", bytes(work.bytes_sent()), groups);
}

}  // namespace

std::string summary_table(const RunSummary& summary) {
  std::string table;
  const auto row = [&table](std::string_view label, const std::string& value) {
    table += fmt::format("  {:<16}{}\n", label, value);
  };
  row("steps", fmt::format("{}", summary.steps));
  row("final loss", fmt::format("{:.4f}", summary.loss));
  if (summary.evaluation) {
    row("eval loss", fmt::format("{:.4f}", summary.evaluation->loss));
    if (std::isnan(summary.evaluation->accuracy)) {
      row("eval perplexity", fmt::format("{:.2f}", summary.evaluation->perplexity));
    } else {
      row("eval accuracy", fmt::format("{:.2f} %", 100.0 * summary.evaluation->accuracy));
    }
  }
  if (summary.tokens_per_second > 0.0) {
    row("tokens/s", human_count(std::round(summary.tokens_per_second)));
  }
  row("wall time", human_duration(summary.seconds));
  row("peak memory", human_bytes(summary.memory_bytes) + " a rank");
  if (summary.work.bytes_sent() > 0) {
    row("bytes sent", bytes_sent_text(summary.work));
  }
  row("output", summary.output_dir);
  return table;
}

}  // namespace lockstep
