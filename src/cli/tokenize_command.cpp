#include <optional>

#include "base/clock.h"
#include "base/error.h"
#include "base/human.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/rank_resources.h"
#include "data/tokenize_files.h"
#include "data/tokenizer.h"
#include "formats/token_file.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMaxUint16Ids = 65536;

}  // namespace

int run_tokenize(const Request& request, MpiRuntime& runtime) {
  if (runtime.global_rank() != 0) {
    return 0;
  }
  const TokenizeConfig& config = request.config.tokenize;
  if (request.config.data.tokenizer.empty()) {
    throw_request_error(
        "data.tokenizer is not set: give a tokeniser's folder or file, or \"bytes\"");
  }
  const std::int64_t begin = now_ns();
  const auto tokenizer = make_tokenizer(request.config.data.tokenizer);
  const bool narrow = tokenizer->vocab_size() <= kMaxUint16Ids;
  TokenizeRequest job;
  job.input = config.input;
  job.output = config.output;
  job.max_ids = narrow ? kMaxUint16Ids : std::int64_t{1} << 31U;
  job.validation_fraction = config.validation;
  job.threads = request.config.run.threads > 0 ? static_cast<int>(request.config.run.threads)
                                               : num_allowed_cores();
  check_tokenize_request(*tokenizer, job);
  const DType dtype = narrow ? DType::kU16 : DType::kI32;
  TokenFileWriter train(config.output, dtype);
  std::optional<TokenFileWriter> validation;
  if (config.validation > 0) {
    validation.emplace(validation_path(config.output), dtype);
  }
  const TokenizeCounts counts = tokenize_files(
      *tokenizer,
      job,
      [&](std::span<const std::int32_t> ids) { train.write(ids); },
      [&](std::span<const std::int32_t> ids) { validation->write(ids); });
  train.close();
  if (validation) {
    validation->close();
  }
  const double seconds = seconds_since(begin);
  log::info("{} file{}, {} -> {} tokens ({} of them for validation) in {}, {} tokens/s",
            counts.files,
            counts.files == 1 ? "" : "s",
            human_bytes(counts.bytes),
            counts.tokens,
            counts.validation_tokens,
            human_duration(seconds),
            human_count(static_cast<double>(counts.tokens) / seconds));
  return 0;
}

}  // namespace lockstep
