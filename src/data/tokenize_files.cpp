#include "data/tokenize_files.h"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <future>
#include <memory>
#include <thread>

#include <glob.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "data/text_chunks.h"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

// Ids on disk until their number is known. The file has no name: it is gone with the process.
class Spool {
 public:
  explicit Spool(const fs::path& folder) {
    std::string name = (folder / ".tokens-XXXXXX").string();
    const int descriptor = mkstemp(name.data());
    if (descriptor < 0) {
      throw_error("{}: no temporary file can be made here", folder.string());
    }
    unlink(name.c_str());
    file_.reset(fdopen(descriptor, "w+b"));
    if (file_ == nullptr) {
      close(descriptor);
      throw_error("{}: no temporary file can be opened here", folder.string());
    }
  }

  void append(std::span<const std::int32_t> ids) {
    if (std::fwrite(ids.data(), sizeof(std::int32_t), ids.size(), file_.get()) != ids.size()) {
      throw_error("writing {} ids to the temporary file failed: is the disk full?", ids.size());
    }
    count_ += static_cast<std::int64_t>(ids.size());
  }

  [[nodiscard]] std::int64_t count() const { return count_; }

  void rewind() {
    if (std::fflush(file_.get()) != 0 || std::fseek(file_.get(), 0, SEEK_SET) != 0) {
      throw_error("writing the temporary file failed: is the disk full?");
    }
  }

  void send(std::int64_t count, const TokenSink& sink) {
    constexpr std::int64_t kBlock = 1 << 18;
    std::vector<std::int32_t> ids;
    for (std::int64_t sent = 0; sent < count; sent += static_cast<std::int64_t>(ids.size())) {
      ids.resize(static_cast<std::size_t>(std::min(kBlock, count - sent)));
      if (std::fread(ids.data(), sizeof(std::int32_t), ids.size(), file_.get()) != ids.size()) {
        throw_error("reading {} ids back from the temporary file failed", ids.size());
      }
      sink(ids);
    }
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::unique_ptr<std::FILE, Close> file_;
  std::int64_t count_ = 0;
};

// Chunks being encoded, oldest first; at most `limit` at a time.
class Pipeline {
 public:
  Pipeline(const Tokenizer& tokenizer, const TokenizeRequest& request, const TokenSink& sink)
      : tokenizer_(tokenizer), special_(request.special), sink_(sink) {
    const int processors = static_cast<int>(std::thread::hardware_concurrency());
    limit_ =
        static_cast<std::size_t>(std::max(request.threads > 0 ? request.threads : processors, 1));
  }

  void add(std::string chunk) {
    if (running_.size() == limit_) {
      finish_oldest();
    }
    running_.push_back(std::async(std::launch::async, [this, text = std::move(chunk)] {
      std::vector<std::int32_t> ids;
      ids.reserve(text.size() / 3);
      tokenizer_.encode(text, ids, special_);
      return ids;
    }));
  }

  void finish() {
    while (!running_.empty()) {
      finish_oldest();
    }
  }

 private:
  void finish_oldest() {
    const std::vector<std::int32_t> ids = running_.front().get();
    running_.pop_front();
    sink_(ids);
  }

  const Tokenizer& tokenizer_;
  SpecialTokens special_;
  const TokenSink& sink_;
  std::size_t limit_ = 1;
  std::deque<std::future<std::vector<std::int32_t>>> running_;
};

void encode_files(const Tokenizer& tokenizer,
                  const TokenizeRequest& request,
                  const TokenSink& sink,
                  TokenizeCounts& counts) {
  const TokenSink counting = [&](std::span<const std::int32_t> ids) {
    counts.tokens += static_cast<std::int64_t>(ids.size());
    sink(ids);
  };
  Pipeline pipeline(tokenizer, request, counting);
  for (const std::string& path : find_text_files(request.input)) {
    ++counts.files;
    TextChunks chunks(path, tokenizer, request.chunk_bytes);
    while (auto chunk = chunks.next()) {
      counts.bytes += static_cast<std::int64_t>(chunk->size());
      pipeline.add(std::move(*chunk));
    }
  }
  pipeline.finish();
}

fs::path folder_of(const std::string& output) {
  const fs::path folder = fs::path(output).parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

void check_output(const std::string& output, const std::vector<std::string>& inputs) {
  if (fs::is_directory(output)) {
    throw_request_error("{}: a folder, expected the name of a file to write", output);
  }
  if (!fs::is_directory(folder_of(output))) {
    throw_request_error("{}: the folder {} does not exist", output, folder_of(output).string());
  }
  for (const std::string& input : inputs) {
    std::error_code error;
    if (fs::equivalent(input, output, error)) {
      throw_request_error("{}: the output is one of the inputs", output);
    }
  }
}

}  // namespace

std::string validation_path(const std::string& output) {
  fs::path path(output);
  const std::string extension = path.extension().string();
  return path.replace_extension().string() + ".validation" + extension;
}

std::vector<std::string> find_text_files(const std::string& glob) {
  glob_t matches{};
  const int status = ::glob(glob.c_str(), GLOB_NOSORT | GLOB_ERR, nullptr, &matches);
  const std::unique_ptr<glob_t, decltype(&globfree)> owner(&matches, &globfree);
  if (status == GLOB_NOMATCH) {
    throw_request_error("tokenize.input: no file matches '{}'", glob);
  }
  if (status != 0) {
    throw_request_error("tokenize.input: the folders of '{}' cannot be read", glob);
  }
  std::vector<std::string> paths(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_regular_file(path, error)) {
      throw_request_error("{}: matches '{}' but is not a regular file", path, glob);
    }
  }
  return paths;
}

void check_tokenize_request(const Tokenizer& tokenizer, const TokenizeRequest& request) {
  if (tokenizer.vocab_size() > request.max_ids) {
    throw_request_error("{}: holds ids below {}, but the vocabulary has {}",
                        request.output,
                        request.max_ids,
                        tokenizer.vocab_size());
  }
  const double fraction = request.validation_fraction;
  if (!(fraction >= 0 && fraction < 1)) {
    throw_request_error("tokenize.validation: {}, expected a fraction from 0 to below 1", fraction);
  }
  const std::vector<std::string> inputs = find_text_files(request.input);
  check_output(request.output, inputs);
  if (fraction > 0) {
    check_output(validation_path(request.output), inputs);
  }
}

TokenizeCounts tokenize_files(const Tokenizer& tokenizer,
                              const TokenizeRequest& request,
                              const TokenSink& train,
                              const TokenSink& validation) {
  check_tokenize_request(tokenizer, request);
  TokenizeCounts counts;
  if (request.validation_fraction == 0) {
    encode_files(tokenizer, request, train, counts);
    if (counts.tokens == 0) {
      throw_request_error("tokenize.input: the files of '{}' are empty", request.input);
    }
    return counts;
  }
  Spool spool(folder_of(request.output));
  encode_files(
      tokenizer, request, [&](std::span<const std::int32_t> ids) { spool.append(ids); }, counts);
  counts.validation_tokens =
      static_cast<std::int64_t>(request.validation_fraction * static_cast<double>(spool.count()));
  if (counts.validation_tokens == 0 || counts.validation_tokens == spool.count()) {
    throw_request_error(
        "tokenize.validation: a fraction of {} of {} tokens leaves one output "
        "empty",
        request.validation_fraction,
        spool.count());
  }
  spool.rewind();
  spool.send(spool.count() - counts.validation_tokens, train);
  spool.send(counts.validation_tokens, validation);
  return counts;
}

}  // namespace lockstep
