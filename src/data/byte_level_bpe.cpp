#include "data/byte_level_bpe.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "data/utf8.h"

namespace lockstep {

namespace {

bool spells_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

std::unordered_map<std::string, std::uint8_t> make_byte_alphabet() {
  std::unordered_map<std::string, std::uint8_t> bytes;
  for (unsigned byte = 0; byte < 256; ++byte) {
    bytes.emplace(spelling_of_byte(static_cast<std::uint8_t>(byte)),
                  static_cast<std::uint8_t>(byte));
  }
  return bytes;
}

std::vector<AddedToken> added_with(const TokenizerTables& tables, bool normalized) {
  std::vector<AddedToken> tokens;
  std::copy_if(tables.added.begin(),
               tables.added.end(),
               std::back_inserter(tokens),
               [&](const AddedToken& token) { return token.normalized == normalized; });
  return tokens;
}

bool holds_white_space(std::string_view text) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (starts_with_white_space(text.substr(at))) {
      return true;
    }
  }
  return false;
}

// The ids of pieces seen before. A fixed number of places, one for each hash: a new piece drives
// out the old one, so that memory stays bounded and nothing is searched.
class PieceCache {
 public:
  static constexpr std::size_t kMaxBytes = 30;
  static constexpr std::size_t kMaxIds = 8;

  struct Place {
    std::uint8_t num_bytes = 0;
    std::uint8_t num_ids = 0;
    std::array<char, kMaxBytes> bytes{};
    std::array<std::int32_t, kMaxIds> ids{};

    [[nodiscard]] bool holds(std::string_view piece) const {
      return piece.size() == num_bytes && std::memcmp(bytes.data(), piece.data(), num_bytes) == 0;
    }
  };

  // `piece` has 1 to kMaxBytes bytes.
  Place& place_of(std::string_view piece) {
    return places_[hash_of(piece.data(), piece.size()) % places_.size()];
  }

  static void fill(Place& place, std::string_view piece, std::span<const std::int32_t> ids) {
    if (ids.size() <= kMaxIds) {
      place.num_bytes = static_cast<std::uint8_t>(piece.size());
      place.num_ids = static_cast<std::uint8_t>(ids.size());
      std::copy(piece.begin(), piece.end(), place.bytes.begin());
      std::copy(ids.begin(), ids.end(), place.ids.begin());
    }
  }

 private:
  static constexpr std::size_t kPlaces = std::size_t{1} << 15U;

  std::vector<Place> places_ = std::vector<Place>(kPlaces);
};

}  // namespace

struct ByteLevelBpe::Scratch {
  PieceSplitter::ScratchPointer splitter;
  PieceCache cache;
  std::string substituted;
  std::vector<std::size_t> ends;
  std::vector<std::int32_t> tokens;
};

// A Scratch of one's own, given back at the end.
class ByteLevelBpe::Lease {
 public:
  explicit Lease(const ByteLevelBpe& owner) : owner_(owner) {
    {
      const std::lock_guard lock(owner_.mutex_);
      if (!owner_.idle_.empty()) {
        scratch_ = std::move(owner_.idle_.back());
        owner_.idle_.pop_back();
      }
    }
    if (scratch_ == nullptr) {
      scratch_ = std::make_unique<Scratch>();
      scratch_->splitter = owner_.splitter_.make_scratch();
    }
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() {
    const std::lock_guard lock(owner_.mutex_);
    owner_.idle_.push_back(std::move(scratch_));
  }

  [[nodiscard]] Scratch& scratch() const { return *scratch_; }

 private:
  const ByteLevelBpe& owner_;
  std::unique_ptr<Scratch> scratch_;
};

std::string spelling_of_byte(std::uint8_t byte) {
  unsigned character = byte;
  if (!spells_itself(byte)) {
    character = 0x100;
    for (unsigned other = 0; other < byte; ++other) {
      character += spells_itself(other) ? 0 : 1;
    }
  }
  if (character < 0x80) {
    return {static_cast<char>(character)};
  }
  return {static_cast<char>(0xc0U | character >> 6U),
          static_cast<char>(0x80U | (character & 0x3fU))};
}

std::string bytes_of_token(const std::string& token) {
  static const auto alphabet = make_byte_alphabet();
  std::string bytes;
  for (std::size_t at = 0; at < token.size();) {
    const std::size_t length = std::max<std::size_t>(utf8_length(token, at), 1);
    const auto found = alphabet.find(token.substr(at, length));
    if (found == alphabet.end()) {
      return token;
    }
    bytes.push_back(static_cast<char>(found->second));
    at += length;
  }
  return bytes;
}

ByteLevelBpe::ByteLevelBpe(TokenizerTables tables)
    : source_(tables.source),
      merges_(tables.merges),
      splitter_(tables.steps, tables.source),
      first_added_(added_with(tables, false)),
      second_added_(added_with(tables, true)),
      end_of_text_(tables.end_of_text) {
  id_of_byte_.fill(-1);
  bytes_.reserve(tables.tokens.size());
  for (const std::string& token : tables.tokens) {
    bytes_.push_back(bytes_of_token(token));
  }
  std::vector<bool> is_added(bytes_.size(), false);
  for (const AddedToken& token : tables.added) {
    const auto id = static_cast<std::size_t>(token.id);
    bytes_[id] = token.content;
    is_added[id] = true;
    may_cut_ = may_cut_ && !holds_white_space(token.content);
  }
  for (std::size_t id = 0; id < bytes_.size(); ++id) {
    const std::string& bytes = bytes_[id];
    if (bytes.size() == 1 &&
        spelling_of_byte(static_cast<std::uint8_t>(bytes[0])) == tables.tokens[id]) {
      id_of_byte_[static_cast<std::uint8_t>(bytes[0])] = static_cast<std::int32_t>(id);
    }
    if (tables.ignore_merges && !is_added[id]) {
      whole_pieces_.emplace(bytes, static_cast<std::int32_t>(id));
    }
  }
}

ByteLevelBpe::~ByteLevelBpe() = default;

std::int32_t ByteLevelBpe::vocab_size() const {
  return static_cast<std::int32_t>(bytes_.size());
}

std::string ByteLevelBpe::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size()) {
      throw_request_error("decode: id {} at position {} is outside the vocabulary of {} ({})",
                          ids[i],
                          i,
                          vocab_size(),
                          source_);
    }
    text += bytes_[static_cast<std::size_t>(ids[i])];
  }
  return text;
}

// Added tokens hold no white space here, and each cut has white space beside it: so no match
// spans a cut, and both sides of it are in one stretch between matches or it lies at a match's end.
std::size_t ByteLevelBpe::last_safe_cut(std::string_view text) const {
  return may_cut_ ? splitter_.last_safe_cut(text) : 0;
}

void ByteLevelBpe::encode_text(std::string_view text,
                               SpecialTokens special,
                               std::vector<std::int32_t>& out) const {
  const Lease lease(*this);
  const auto encode_rest = [&](std::string_view part) {
    std::size_t at = 0;
    while (at < part.size()) {
      const auto match = second_added_.find(part, at, special);
      encode_plain(part.substr(at, match.begin - at), lease.scratch(), out);
      if (match.end > match.begin) {
        out.push_back(match.id);
      }
      at = match.end;
    }
  };
  std::size_t at = 0;
  while (at < text.size()) {
    const auto match = first_added_.find(text, at, special);
    encode_rest(text.substr(at, match.begin - at));
    if (match.end > match.begin) {
      out.push_back(match.id);
    }
    at = match.end;
  }
}

void ByteLevelBpe::encode_plain(std::string_view text,
                                Scratch& scratch,
                                std::vector<std::int32_t>& out) const {
  std::string_view valid = text;
  std::size_t invalid = find_invalid_utf8(text, 0);
  if (invalid < text.size()) {
    scratch.substituted.assign(text);
    for (; invalid < text.size(); invalid = find_invalid_utf8(text, invalid + 1)) {
      scratch.substituted[invalid] = '\x1a';
    }
    valid = scratch.substituted;
  }
  splitter_.split(valid, *scratch.splitter, scratch.ends);
  std::size_t begin = 0;
  for (const std::size_t end : scratch.ends) {
    encode_piece(text.substr(begin, end - begin), scratch, out);
    begin = end;
  }
}

void ByteLevelBpe::encode_piece(std::string_view piece,
                                Scratch& scratch,
                                std::vector<std::int32_t>& out) const {
  PieceCache::Place* place = nullptr;
  if (piece.size() <= PieceCache::kMaxBytes) {
    place = &scratch.cache.place_of(piece);
    if (place->holds(piece)) {
      out.insert(out.end(), place->ids.begin(), place->ids.begin() + place->num_ids);
      return;
    }
  }
  std::vector<std::int32_t>& tokens = scratch.tokens;
  tokens.clear();
  const auto whole = whole_pieces_.find(piece);
  if (whole != whole_pieces_.end()) {
    tokens.push_back(whole->second);
  } else {
    for (const char character : piece) {
      const auto byte = static_cast<std::uint8_t>(character);
      if (id_of_byte_[byte] < 0) {
        throw_request_error(
            "{}: the vocabulary has no token for the byte 0x{:02x}, which the text "
            "holds",
            source_,
            byte);
      }
      tokens.push_back(id_of_byte_[byte]);
    }
    merge_tokens(merges_, tokens);
  }
  if (place != nullptr) {
    PieceCache::fill(*place, piece, tokens);
  }
  out.insert(out.end(), tokens.begin(), tokens.end());
}

}  // namespace lockstep
