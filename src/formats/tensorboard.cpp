#include "formats/tensorboard.h"

#include <array>
#include <bit>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <system_error>

#include <unistd.h>

#include "base/error.h"
#include "formats/crc32c.h"

namespace lockstep {
namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

template <typename T>
void put_fixed(std::string& out, T value) {
  for (std::size_t byte = 0; byte < sizeof(T); ++byte) {
    out.push_back(static_cast<char>((value >> (8U * byte)) & 0xffU));
  }
}

void put_varint(std::string& out, std::uint64_t value) {
  while (value >= 0x80U) {
    out.push_back(static_cast<char>((value & 0x7fU) | 0x80U));
    value >>= 7U;
  }
  out.push_back(static_cast<char>(value));
}

/// The wire types of protocol buffers that are used here.
enum class Wire : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_key(std::string& out, unsigned field, Wire wire) {
  put_varint(out, (field << 3U) | static_cast<unsigned>(wire));
}

void put_bytes(std::string& out, unsigned field, std::string_view bytes) {
  put_key(out, field, Wire::kBytes);
  put_varint(out, bytes.size());
  out.append(bytes);
}

/// Fields of tensorflow/core/util/event.proto and tensorflow/core/framework/summary.proto.
namespace field {
constexpr unsigned kWallTime = 1;
constexpr unsigned kStep = 2;
constexpr unsigned kFileVersion = 3;
constexpr unsigned kSummary = 5;
constexpr unsigned kSessionLog = 7;
constexpr unsigned kSessionStatus = 1;
constexpr unsigned kSummaryValue = 1;
constexpr unsigned kTag = 1;
constexpr unsigned kSimpleValue = 2;
}  // namespace field

void start_event(std::string& event, long step) {
  event.clear();
  put_key(event, field::kWallTime, Wire::kFixed64);
  put_fixed(event, std::bit_cast<std::uint64_t>(wall_seconds()));
  put_key(event, field::kStep, Wire::kVarint);
  put_varint(event, static_cast<std::uint64_t>(step));
}

/// Seconds for the name of a new file: now, or just after the latest file of the folder.
long time_for_name(const std::string& directory) {
  long time = static_cast<long>(wall_seconds());
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator(directory, code)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kPrefix)) {
      long other = 0;
      std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), other);
      constexpr long kTenDigits = 9'999'999'999;  // beyond, names no longer sort by time
      if (other >= time && other < kTenDigits) {
        time = other + 1;
      }
    }
  }
  if (code) {
    throw_error("cannot list {}: {}", directory, code.message());
  }
  return time;
}

std::string new_path(const std::string& directory) {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0 || host[0] == '\0') {
    host = {'h', 'o', 's', 't'};
  }
  return fmt::format(
      "{}/{}{:010d}.{}.{}", directory, kPrefix, time_for_name(directory), host.data(), ::getpid());
}

}  // namespace

TensorBoardWriter::TensorBoardWriter(const std::string& directory, long first_step)
    : file_(new_path(directory)) {
  start_event(event_, 0);
  put_bytes(event_, field::kFileVersion, "brain.Event:2");
  append_event(event_);

  constexpr std::uint64_t kStart = 1;  // SessionLog.SessionStatus
  std::string session;
  put_key(session, field::kSessionStatus, Wire::kVarint);
  put_varint(session, kStart);
  start_event(event_, first_step);
  put_bytes(event_, field::kSessionLog, session);
  append_event(event_);
}

void TensorBoardWriter::write(long step, std::span<const TensorBoardScalar> scalars) {
  summary_.clear();
  for (const TensorBoardScalar& scalar : scalars) {
    frame_.clear();
    put_bytes(frame_, field::kTag, scalar.tag);
    put_key(frame_, field::kSimpleValue, Wire::kFixed32);
    put_fixed(frame_, std::bit_cast<std::uint32_t>(static_cast<float>(scalar.value)));
    put_bytes(summary_, field::kSummaryValue, frame_);
  }
  start_event(event_, step);
  put_bytes(event_, field::kSummary, summary_);
  append_event(event_);
}

void TensorBoardWriter::append_event(std::string_view event) {
  frame_.clear();
  put_fixed(frame_, static_cast<std::uint64_t>(event.size()));
  put_fixed(frame_, masked_crc(crc32c(frame_)));
  frame_.append(event);
  put_fixed(frame_, masked_crc(crc32c(event)));
  file_.append(frame_);
}

}  // namespace lockstep
