// Text files to token ids: what the command `tokenize` does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizer.h"

namespace lockstep {

struct TokenizeRequest {
  std::string input;               // a glob of text files
  std::string output;              // the token file; named in messages, its folder holds the spool
  std::int64_t max_ids = 65536;    // ids 0 .. max_ids - 1 fit into the output's type
  double validation_fraction = 0;  // of the tokens, taken from the end; 0: none
  int threads = 0;                 // chunks in flight; 0: one for each processor
  std::size_t chunk_bytes = std::size_t{1} << 20U;
  SpecialTokens special = SpecialTokens::kRecognise;
};

struct TokenizeCounts {
  std::int64_t files = 0;
  std::int64_t bytes = 0;
  std::int64_t tokens = 0;  // of both outputs
  std::int64_t validation_tokens = 0;
};

/// Receives ids in order, some at a time, always from the calling thread.
using TokenSink = std::function<void(std::span<const std::int32_t>)>;

/// "X.bin" -> "X.validation.bin": the file beside `output` that takes the last fraction.
std::string validation_path(const std::string& output);

/// The regular files that match, in the order of their names' bytes. Errors: RequestError if
/// nothing matches, or if a match is no regular file.
std::vector<std::string> find_text_files(const std::string& glob);

/// Checks everything in the request that can be checked before reading: call it before the output
/// is opened. Errors: RequestError for an empty glob, folders among the matches, a vocabulary that
/// the output's type cannot hold, a fraction outside [0, 1), an output that is a folder, has no
/// folder to stand in, or is one of the inputs.
void check_tokenize_request(const Tokenizer& tokenizer, const TokenizeRequest& request);

/// Sends the ids of all files, in name order and with nothing between them, to `train`, and the
/// last floor(fraction * tokens) of them to `validation`. The ids are those of each file encoded
/// whole, whatever the chunks and threads. Checks the request first.
/// Memory: a few chunks a thread (see TextChunks for what has no place to be cut). With a fraction
/// all ids are spooled to an unnamed file in the output's folder, four bytes each, as only the end
/// of the text tells where the last fraction starts.
/// Errors: RequestError, also when there is not a token for each output; Error if reading or
/// spooling fails. Sinks may then have received a part.
TokenizeCounts tokenize_files(const Tokenizer& tokenizer,
                              const TokenizeRequest& request,
                              const TokenSink& train,
                              const TokenSink& validation);

}  // namespace lockstep
