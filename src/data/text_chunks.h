// Reads a text file in chunks that can be tokenised on their own.
#pragma once

#include <cstddef>
#include <fstream>
#include <optional>
#include <string>

#include "data/tokenizer.h"

namespace lockstep {

/// The chunks of one file, in order. Their ids one after the other are the ids of the whole file.
/// Memory: about `chunk_bytes`, or more where the text or the tokeniser has no safe cut in as many
/// bytes: then a chunk grows until one is found, at worst to the whole file.
class TextChunks {
 public:
  /// Errors: Error if the file cannot be opened.
  TextChunks(std::string path, const Tokenizer& tokenizer, std::size_t chunk_bytes);

  /// The next chunk, none at the end of the file. Errors: Error if reading fails.
  std::optional<std::string> next();

 private:
  std::string path_;
  const Tokenizer& tokenizer_;
  std::size_t chunk_bytes_ = 0;
  std::ifstream file_;
  std::string rest_;  // read, but behind the last cut
};

}  // namespace lockstep
