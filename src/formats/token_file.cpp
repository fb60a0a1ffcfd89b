#include "formats/token_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr std::int32_t kMagic = 20240520;
constexpr std::int32_t kVersionU16 = 1;
constexpr std::int32_t kVersionU32 = 7;
constexpr std::size_t kHeaderInts = 256;
constexpr std::size_t kHeaderBytes = kHeaderInts * sizeof(std::int32_t);
constexpr std::size_t kWriteBytes = std::size_t{1} << 20U;
constexpr long kScanTokens = 1L << 16U;

// The header's length keeps both widths aligned in the mapping.
template <typename Id>
const Id* ids_at(const std::byte* tokens, long position) {
  return reinterpret_cast<const Id*>(tokens) + position;
}

template <typename Id>
Id largest(const Id* ids, long count) {
  Id result = 0;
  for (long i = 0; i < count; ++i) {
    result = std::max(result, ids[i]);
  }
  return result;
}

template <typename Id>
long count_equal(const Id* ids, long count, std::int32_t id) {
  long result = 0;
  for (long i = 0; i < count; ++i) {
    result += static_cast<std::int64_t>(ids[i]) == id ? 1 : 0;
  }
  return result;
}

/// Position of the first id in [begin, end) that is not below `limit`; `end` if there is none.
template <typename Id>
long first_beyond(const Id* ids, long begin, long end, std::uint64_t limit) {
  for (; begin < end; begin += kScanTokens) {
    const long count = std::min(kScanTokens, end - begin);
    if (largest(ids + begin, count) >= limit) {
      return std::find_if(
                 ids + begin, ids + begin + count, [limit](Id id) { return id >= limit; }) -
             ids;
    }
  }
  return end;
}

}  // namespace

TokenFile::TokenFile(const std::string& path) : file_(path) {
  const auto bytes = file_.bytes();
  std::array<std::int32_t, 3> header{};
  if (bytes.size() >= sizeof(std::int32_t)) {
    std::memcpy(header.data(), bytes.data(), std::min(bytes.size(), sizeof(header)));
  }
  const auto [magic, version, count] = header;
  if (magic != kMagic) {
    if (bytes.empty()) {
      throw_request_error("{}: is empty, expected token ids", path);
    }
    if (bytes.size() % sizeof(std::uint16_t) != 0) {
      throw_request_error(
          "{}: {} bytes without a header are no whole number of uint16 ids", path, bytes.size());
    }
    tokens_ = bytes.data();
    num_tokens_ = static_cast<long>(bytes.size() / sizeof(std::uint16_t));
    return;
  }
  if (bytes.size() < kHeaderBytes) {
    throw_request_error(
        "{}: is truncated: {} bytes, its header alone takes {}", path, bytes.size(), kHeaderBytes);
  }
  if (version != kVersionU16 && version != kVersionU32) {
    throw_request_error("{}: version {} is unknown, expected {} (uint16) or {} (uint32)",
                        path,
                        version,
                        kVersionU16,
                        kVersionU32);
  }
  wide_ = version == kVersionU32;
  const std::size_t found = bytes.size() - kHeaderBytes;
  if (count <= 0) {
    throw_request_error("{}: its header declares {} tokens, expected at least 1", path, count);
  }
  const std::size_t expected = static_cast<std::size_t>(count) * (wide_ ? 4 : 2);
  if (found != expected) {
    throw_request_error("{}: {}: {} bytes of tokens, expected {} for the {} tokens of its header",
                        path,
                        found < expected ? "is truncated" : "has bytes after its end",
                        found,
                        expected,
                        count);
  }
  tokens_ = bytes.data() + kHeaderBytes;
  num_tokens_ = count;
}

void TokenFile::read(long position, long count, std::int32_t* out) const {
  LOCKSTEP_CHECK(position >= 0 && count >= 0 && position <= num_tokens_ - count);
  if (wide_) {
    std::memcpy(out,
                ids_at<std::uint32_t>(tokens_, position),
                static_cast<std::size_t>(count) * sizeof(std::int32_t));
  } else {
    std::copy_n(ids_at<std::uint16_t>(tokens_, position), count, out);
  }
}

long TokenFile::count_of(std::int32_t id, long position, long count) const {
  LOCKSTEP_CHECK(position >= 0 && count >= 0 && position <= num_tokens_ - count);
  return wide_ ? count_equal(ids_at<std::uint32_t>(tokens_, position), count, id)
               : count_equal(ids_at<std::uint16_t>(tokens_, position), count, id);
}

void TokenFile::check_ids(long vocab_size, long begin, long end) const {
  LOCKSTEP_CHECK(begin >= 0 && begin <= end && end <= num_tokens_);
  LOCKSTEP_CHECK(vocab_size > 0 && vocab_size <= 1L << 31U);
  const auto limit = static_cast<std::uint64_t>(vocab_size);
  const long bad = wide_ ? first_beyond(ids_at<std::uint32_t>(tokens_, 0), begin, end, limit)
                         : first_beyond(ids_at<std::uint16_t>(tokens_, 0), begin, end, limit);
  if (bad < end) {
    throw_request_error("{}: position {}: token id {} is not below the vocabulary size {}",
                        path(),
                        bad,
                        largest_id(bad, bad + 1),
                        vocab_size);
  }
}

long TokenFile::largest_id(long begin, long end) const {
  LOCKSTEP_CHECK(begin >= 0 && begin <= end && end <= num_tokens_);
  if (begin == end) {
    return -1;
  }
  return wide_ ? static_cast<long>(largest(ids_at<std::uint32_t>(tokens_, begin), end - begin))
               : static_cast<long>(largest(ids_at<std::uint16_t>(tokens_, begin), end - begin));
}

TokenFileWriter::TokenFileWriter(std::string path, DType dtype)
    : file_(std::move(path)), wide_(dtype == DType::kI32) {
  LOCKSTEP_CHECK(dtype == DType::kU16 || dtype == DType::kI32);
  buffer_.reserve(kWriteBytes);
  const std::array<std::int32_t, kHeaderInts> header{};
  file_.append(header.data(), kHeaderBytes);
}

void TokenFileWriter::write(std::span<const std::int32_t> ids) {
  LOCKSTEP_CHECK(!failed_);
  failed_ = true;  // stays so when an id is refused below
  constexpr std::int32_t kLargestU16 = std::numeric_limits<std::uint16_t>::max();
  for (const std::int32_t id : ids) {
    if (id < 0) {
      throw_request_error(
          "{}: position {}: token id {} is negative", file_.path(), num_tokens_, id);
    }
    if (!wide_ && id > kLargestU16) {
      throw_request_error(
          "{}: position {}: token id {} does not fit uint16 (at most {}): write the file as uint32",
          file_.path(),
          num_tokens_,
          id,
          kLargestU16);
    }
    if (num_tokens_ == std::numeric_limits<std::int32_t>::max()) {
      throw_request_error(
          "{}: more than {} tokens: split the text over several files", file_.path(), num_tokens_);
    }
    if (buffer_.size() + sizeof(id) > kWriteBytes) {
      flush();
    }
    // Little-endian: the low half of a small id is its uint16.
    const auto* bytes = reinterpret_cast<const std::byte*>(&id);
    buffer_.insert(buffer_.end(), bytes, bytes + (wide_ ? 4 : 2));
    ++num_tokens_;
  }
  failed_ = false;
}

void TokenFileWriter::flush() {
  file_.append(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void TokenFileWriter::close() {
  LOCKSTEP_CHECK(!failed_);
  if (num_tokens_ == 0) {
    throw_request_error("{}: there are no tokens to write", file_.path());
  }
  flush();
  const std::array<std::int32_t, 3> header{
      kMagic, wide_ ? kVersionU32 : kVersionU16, static_cast<std::int32_t>(num_tokens_)};
  file_.overwrite(0, header.data(), sizeof(header));
  file_.commit();
}

}  // namespace lockstep
