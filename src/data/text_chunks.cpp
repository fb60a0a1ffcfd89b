#include "data/text_chunks.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace lockstep {

TextChunks::TextChunks(std::string path, const Tokenizer& tokenizer, std::size_t chunk_bytes)
    : path_(std::move(path)),
      tokenizer_(tokenizer),
      chunk_bytes_(std::max<std::size_t>(chunk_bytes, 1)),
      file_(path_, std::ios::binary) {
  if (!file_) {
    throw_error("{}: cannot be opened for reading", path_);
  }
}

std::optional<std::string> TextChunks::next() {
  std::string chunk = std::exchange(rest_, {});
  // Each round doubles the chunk, so that looking for a cut again costs no more than reading.
  for (std::size_t target = chunk_bytes_; !file_.eof(); target = 2 * chunk.size()) {
    const std::size_t had = chunk.size();
    chunk.resize(std::max(target, had + 1));
    file_.read(chunk.data() + had, static_cast<std::streamsize>(chunk.size() - had));
    if (file_.bad() || (file_.fail() && !file_.eof())) {
      throw_error("{}: reading failed", path_);
    }
    chunk.resize(had + static_cast<std::size_t>(file_.gcount()));
    const std::size_t cut = file_.eof() ? 0 : tokenizer_.last_safe_cut(chunk);
    if (cut > 0) {
      rest_.assign(chunk, cut);
      chunk.resize(cut);
      return chunk;
    }
  }
  return chunk.empty() ? std::nullopt : std::optional(std::move(chunk));
}

}  // namespace lockstep
