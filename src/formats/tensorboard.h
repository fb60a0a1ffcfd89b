// TensorBoard event files: scalars by tag and step, in TFRecord frames of protocol buffers.
//
// A frame is the length (u64), its masked CRC-32C, the data and the data's masked CRC-32C, all
// little-endian. The data is a TensorFlow `Event` message, encoded by hand: five fields are used.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "formats/append_file.h"

namespace lockstep {

/// One value of a curve. TensorBoard keeps it as a float.
struct TensorBoardScalar {
  std::string_view tag;
  double value = 0.0;
};

/// Writes one event file; every start of a run writes a new one in the same folder.
class TensorBoardWriter {
 public:
  /// Creates `<directory>/events.out.tfevents.<time>.<host>.<pid>`; the folder must exist. The time
  /// is later than that of every file there, since readers take files in the order of their names.
  ///
  /// `first_step` is the first step that this start will write (1, or the checkpoint's step + 1).
  /// The file says that a session starts at it, which makes readers drop this and later steps of
  /// earlier files: a step that is trained again after a crash is shown once. Throws Error.
  TensorBoardWriter(const std::string& directory, long first_step);

  /// Appends the values of one step: all or none. They are visible to a reader on return. Any
  /// value, also one that is not finite, can be shown. Throws Error when the disk is full.
  void write(long step, std::span<const TensorBoardScalar> scalars);

  /// Returns once everything is on the disk.
  void sync() { file_.sync(); }

  [[nodiscard]] const std::string& path() const { return file_.path(); }

 private:
  void append_event(std::string_view event);

  AppendFile file_;
  std::string event_;
  std::string summary_;
  std::string frame_;
};

}  // namespace lockstep
