// JSON lines: one JSON object a line, appended while a run goes on and read back after it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "formats/append_file.h"

namespace lockstep {

/// Appends objects key by key: `lines.begin().text("kind", "train").integer("step", 1).end();`
/// Numbers are written without regard to the locale. Not for several threads.
class JsonLinesWriter {
 public:
  /// Opens `path` for appending, creates it where it is missing, and cuts off a last line without
  /// its newline (a crash while writing). Allocates the line's buffer, the only one: a line longer
  /// than `max_line_bytes` is a bug of the caller. Throws Error when the file cannot be opened.
  explicit JsonLinesWriter(const std::string& path, std::size_t max_line_bytes = 4096);

  /// Starts an object. Keys must need no escapes.
  JsonLinesWriter& begin();
  JsonLinesWriter& text(std::string_view key, std::string_view value);
  JsonLinesWriter& integer(std::string_view key, long value);

  /// 17 significant digits, as printf's %.17g: equal text means equal bits. Not finite: null.
  JsonLinesWriter& exact(std::string_view key, double value);

  /// The fewest digits that read back as the same value. Not finite: null.
  JsonLinesWriter& number(std::string_view key, double value);

  /// An object as a value: what follows until `close` is in it.
  JsonLinesWriter& open(std::string_view key);
  JsonLinesWriter& close();

  /// Writes the line: all of it or, throwing Error, nothing. One system call, no allocation.
  void end();

  /// The file below, to shorten, replace or sync it. Between lines only.
  AppendFile& file() { return file_; }

 private:
  void put(std::string_view bytes);
  void put_key(std::string_view key);

  AppendFile file_;
  std::string line_;
  std::size_t max_line_bytes_;
};

/// A file's complete lines, without their newlines, and the bytes that they take with them.
struct JsonLines {
  std::vector<std::string> lines;
  std::size_t valid_bytes = 0;
};

/// Reads a file of lines. A last line without its newline is left out: the writer was interrupted.
/// The lines are not parsed. Throws Error when the file cannot be read.
JsonLines read_json_lines(const std::string& path);

}  // namespace lockstep
