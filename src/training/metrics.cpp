#include "training/metrics.h"

#include <array>
#include <cmath>
#include <span>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace lockstep {
namespace {

long step_of(const std::string& line, const std::string& path, std::size_t number) {
  const auto object = nlohmann::json::parse(line, nullptr, false);
  if (object.is_object()) {
    const auto step = object.find("step");
    if (step != object.end() && step->is_number_integer()) {
      return step->get<long>();
    }
  }
  throw_request_error(
      "{}:{}: not a line of metrics (a JSON object with an integer \"step\"); move the file away "
      "to go on without it",
      path,
      number);
}

void write_group(JsonLinesWriter& lines, const GroupWork& group) {
  lines.open(group.name);
  for (std::size_t kind = 0; kind < kNumTrafficKinds; ++kind) {
    const WorkCount& count = group.kinds[kind];
    if (count.calls > 0) {
      lines.open(name_of(static_cast<TrafficKind>(kind)))
          .number("calls", count.calls)
          .integer("bytes", std::lround(count.bytes))
          .close();
    }
  }
  lines.close();
}

}  // namespace

void MetricsWriter::write(const TrainRecord& record) {
  lines_.begin()
      .text("kind", "train")
      .integer("step", record.step)
      .number("epoch", record.epoch)
      .integer("samples", record.samples)
      .integer("tokens", record.tokens)
      .exact("loss", record.loss)
      .exact("grad_norm", record.grad_norm)
      .exact("lr", record.lr)
      .number("seconds", record.seconds)
      .number("tokens_per_second", record.tokens_per_second)
      .number("mfu", record.mfu)
      .integer("memory_bytes", record.memory_bytes)
      .integer("bytes_sent", std::lround(record.work.bytes_sent()))
      .open("communication");
  for (const GroupWork& group : record.work.groups) {
    if (group.any()) {
      write_group(lines_, group);
    }
  }
  lines_.close().integer("operations", std::lround(record.work.operations)).end();
}

void MetricsWriter::write(const EvalRecord& record) {
  lines_.begin()
      .text("kind", "eval")
      .integer("step", record.step)
      .exact("loss", record.loss)
      .exact("perplexity", record.perplexity);
  if (!std::isnan(record.accuracy)) {
    lines_.exact("accuracy", record.accuracy);
  }
  lines_.end();
}

void MetricsWriter::truncate_after(long step) {
  AppendFile& file = lines_.file();
  const JsonLines old = read_json_lines(file.path());
  std::string kept;
  std::size_t kept_before_first_removed = 0;
  bool removed = false;
  for (std::size_t i = 0; i < old.lines.size(); ++i) {
    if (step_of(old.lines[i], file.path(), i + 1) > step) {
      kept_before_first_removed = removed ? kept_before_first_removed : kept.size();
      removed = true;
    } else {
      kept += old.lines[i];
      kept += '\n';
    }
  }
  if (!removed) {
    return;
  }
  if (kept.size() == kept_before_first_removed) {
    file.truncate(kept.size());  // works on a full disk too
  } else {
    file.replace(kept);
  }
}

void write_scalars(TensorBoardWriter& writer, const TrainRecord& record) {
  const std::array<TensorBoardScalar, 7> scalars{{
      {"train/loss", record.loss},
      {"train/grad_norm", record.grad_norm},
      {"train/lr", record.lr},
      {"train/tokens_per_second", record.tokens_per_second},
      {"train/memory_bytes", static_cast<double>(record.memory_bytes)},
      {"train/bytes_sent", record.work.bytes_sent()},
      {"train/mfu", record.mfu},
  }};
  const bool mfu_known = !std::isnan(record.mfu);
  writer.write(record.step, std::span(scalars).first(mfu_known ? 7 : 6));
}

void write_scalars(TensorBoardWriter& writer, const EvalRecord& record) {
  const std::array<TensorBoardScalar, 3> scalars{{
      {"eval/loss", record.loss},
      {"eval/perplexity", record.perplexity},
      {"eval/accuracy", record.accuracy},
  }};
  writer.write(record.step, std::span(scalars).first(std::isnan(record.accuracy) ? 2 : 3));
}

}  // namespace lockstep
