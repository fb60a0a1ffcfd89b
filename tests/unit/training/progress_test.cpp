#include "training/progress.h"

#include <array>
#include <cstdlib>
#include <sstream>

#include <fcntl.h>
#include <poll.h>
#include <spdlog/sinks/ostream_sink.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/log.h"
#include "support/catch.h"

namespace lockstep {
namespace {

/// A pair of descriptors whose one end is a terminal.
class Terminal {
 public:
  explicit Terminal(unsigned short columns) : master_(::posix_openpt(O_RDWR | O_NOCTTY)) {
    REQUIRE(::grantpt(master_) == 0);
    REQUIRE(::unlockpt(master_) == 0);
    slave_ = ::open(::ptsname(master_), O_RDWR | O_NOCTTY);
    REQUIRE(slave_ >= 0);
    const winsize window{24, columns, 0, 0};
    REQUIRE(::ioctl(slave_, TIOCSWINSZ, &window) == 0);
  }
  ~Terminal() {
    ::close(slave_);
    ::close(master_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  [[nodiscard]] int descriptor() const { return slave_; }

  /// What was written since the last call; waits for it.
  std::string shown() {
    constexpr int kMostMilliseconds = 5000;  // the kernel hands it over later on a busy machine
    return read_within(kMostMilliseconds);
  }

  /// Whether nothing was written since the last call.
  bool silent() {
    constexpr int kMilliseconds = 50;
    return read_within(kMilliseconds).empty();
  }

 private:
  std::string read_within(int milliseconds) {
    std::string text;
    pollfd waiting{master_, POLLIN, 0};
    constexpr int kPause = 20;  // between the parts of one write
    for (; ::poll(&waiting, 1, milliseconds) == 1; milliseconds = kPause) {
      std::array<char, 512> bytes{};
      const ssize_t count = ::read(master_, bytes.data(), bytes.size());
      if (count <= 0) {
        break;
      }
      text.append(bytes.data(), static_cast<std::size_t>(count));
    }
    return text;
  }

  int master_;
  int slave_ = -1;
};

/// Collects the messages of the default logger while it lives.
class CapturedLog {
 public:
  CapturedLog() : old_(spdlog::default_logger()) {
    auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(text_, true);
    sink->set_pattern("%v");
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", sink));
  }
  ~CapturedLog() { spdlog::set_default_logger(old_); }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  [[nodiscard]] std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::shared_ptr<spdlog::logger> old_;
};

TrainRecord record_of(long step) {
  TrainRecord record;
  record.step = step;
  record.loss = 2.34561;
  record.lr = 1e-3;
  record.tokens_per_second = 12'345;
  return record;
}

constexpr std::int64_t kMillisecond = 1'000'000;

}  // namespace

TEST_CASE("the progress text says where the run is and how long it will take") {
  CHECK(progress_text(record_of(120), 1000, 192) ==
        "step 120/1000 | loss 2.3456 | lr 1.00e-03 | 12.3 k tokens/s | 3m 12s left");
}

TEST_CASE("what is unknown is left out of the progress text") {
  TrainRecord record = record_of(1);
  record.tokens_per_second = 0;
  CHECK(progress_text(record, 9, -1) == "step 1/9 | loss 2.3456 | lr 1.00e-03");
}

TEST_CASE("a terminal's line is rewritten at most ten times a second, and for the last step") {
  const CapturedLog captured;
  Terminal terminal(120);
  Progress progress({.last_step = 4}, terminal.descriptor());
  const std::int64_t start = now_ns();

  progress.update(record_of(1), start);
  const std::string first = terminal.shown();
  progress.update(record_of(2), start + 99 * kMillisecond);
  const bool too_soon = !terminal.silent();
  progress.update(record_of(3), start + 100 * kMillisecond);
  const std::string later = terminal.shown();
  progress.update(record_of(4), start + 101 * kMillisecond);
  const std::string last = terminal.shown();

  CHECK(progress.live());
  CHECK_THAT(first, Catch::StartsWith("\rstep 1/4 ") && Catch::EndsWith("left\x1b[K"));
  CHECK_FALSE(too_soon);
  CHECK_THAT(later, Catch::StartsWith("\rstep 3/4 "));
  CHECK_THAT(last, Catch::StartsWith("\rstep 4/4 "));
  CHECK(captured.text().empty());
}

TEST_CASE("the time left is that of this start's steps") {
  const CapturedLog captured;
  Terminal terminal(120);
  Progress progress({.first_step = 101, .last_step = 200}, terminal.descriptor());

  // Two steps in 100 seconds leave 98 steps of 50 seconds, or 1h 21m (the clock adds next to nothing).
  progress.update(record_of(102), now_ns() + 100'000 * kMillisecond);

  CHECK_THAT(terminal.shown(), Catch::Contains("| 1h 21m left"));
}

TEST_CASE("the live line is wiped before a message is logged and at the end") {
  const CapturedLog captured;
  Terminal terminal(120);
  {
    Progress progress({.last_step = 4}, terminal.descriptor());
    progress.update(record_of(1));
    terminal.shown();

    log::warn("message");
    CHECK(terminal.shown() == "\r\x1b[K");
    log::warn("message");
    CHECK(terminal.silent());
    progress.update(record_of(4));
    terminal.shown();
  }

  CHECK(terminal.shown() == "\r\x1b[K");
  CHECK(captured.text() == "message\nmessage\n");
  CHECK(spdlog::default_logger()->sinks().size() == 1);
}

TEST_CASE("a line never reaches the last column of its terminal") {
  const CapturedLog captured;
  Terminal terminal(20);
  Progress progress({.last_step = 4}, terminal.descriptor());

  progress.update(record_of(1));

  CHECK(terminal.shown() == "\rstep 1/4 | loss 2.3\x1b[K");
}

TEST_CASE("without a terminal, or when it is not wanted, plain lines are logged when due") {
  Terminal terminal(120);
  std::array<int, 2> pipe_ends{};
  REQUIRE(::pipe(pipe_ends.data()) == 0);
  for (const bool wanted : {true, false}) {
    const CapturedLog captured;
    Progress progress({.last_step = 7, .log_interval = 3, .live = wanted},
                      wanted ? pipe_ends[1] : terminal.descriptor());

    for (long step = 1; step <= 7; ++step) {
      progress.update(record_of(step));
    }

    std::istringstream lines(captured.text());
    std::string starts;
    for (std::string line; std::getline(lines, line);) {
      starts += line.substr(0, 8) + ";";
      CHECK_THAT(line, !Catch::Contains("\r"));
    }
    CHECK(starts == "step 1/7;step 3/7;step 6/7;step 7/7;");
  }
  CHECK(terminal.silent());
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
}

TEST_CASE("the summary is a table of what applies") {
  const RunSummary language{
      1000, 2.5, EvalRecord{1000, 2.6, 13.46}, 12'345, 192, 3L << 29, "runs/x"};
  RunSummary images{10, 0.25, EvalRecord{10, 0.3, 1.35, 0.9125}, 0, 5, 512, "runs/y"};

  CHECK(summary_table(language) ==
        "  steps           1000\n"
        "  final loss      2.5000\n"
        "  eval loss       2.6000\n"
        "  eval perplexity 13.46\n"
        "  tokens/s        12.3 k\n"
        "  wall time       3m 12s\n"
        "  peak memory     1.5 GiB a rank\n"
        "  output          runs/x\n");
  CHECK_THAT(summary_table(images),
             Catch::Contains("eval accuracy   91.25 %\n") && !Catch::Contains("tokens/s"));
  images.evaluation.reset();
  CHECK_THAT(summary_table(images), !Catch::Contains("eval") && !Catch::Contains("bytes sent"));
  images.work.groups[0].kinds[0] = {1, 3 << 20};
  images.work.groups[3].kinds[4] = {1, 96};
  CHECK_THAT(
      summary_table(images),
      Catch::Contains("bytes sent      3.0 MiB a step by rank 0 (data 3.0 MiB, world 96 B)\n"));
}

}  // namespace lockstep
