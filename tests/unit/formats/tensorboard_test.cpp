#include "formats/tensorboard.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <vector>

#include "formats/crc32c.h"
#include "support/catch.h"
#include "support/scratch_folder.h"

namespace lockstep {
namespace {

template <typename T>
T fixed(std::string_view bytes, std::size_t at) {
  T value{};
  std::memcpy(&value, bytes.substr(at, sizeof(T)).data(), sizeof(T));
  return value;
}

/// The data of every frame, both checksums checked.
std::vector<std::string> frames_of(const std::string& file) {
  std::vector<std::string> frames;
  std::string_view rest = file;
  while (!rest.empty()) {
    const auto length = fixed<std::uint64_t>(rest, 0);
    REQUIRE(rest.size() >= 16 + length);
    CHECK(fixed<std::uint32_t>(rest, 8) == masked_crc(crc32c(rest.substr(0, 8))));
    const std::string_view data = rest.substr(12, length);
    CHECK(fixed<std::uint32_t>(rest, 12 + length) == masked_crc(crc32c(data)));
    frames.emplace_back(data);
    rest.remove_prefix(16 + length);
  }
  return frames;
}

/// Takes a varint off the front.
std::uint64_t take_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7fU) << shift;
    if (byte < 0x80U) {
      break;
    }
  }
  return value;
}

/// Takes `size` bytes off the front.
std::string take_bytes(std::string_view& bytes, std::size_t size) {
  REQUIRE(bytes.size() >= size);
  std::string taken(bytes.substr(0, size));
  bytes.remove_prefix(size);
  return taken;
}

/// Takes the value of a field off the front: its raw bytes, those of a varint as 8.
std::string take_value(std::string_view& message, unsigned wire) {
  if (wire == 0) {
    const std::uint64_t number = take_varint(message);
    std::string value(sizeof(number), '\0');
    std::memcpy(value.data(), &number, sizeof(number));
    return value;
  }
  const std::size_t size = wire == 1 ? 8 : wire == 5 ? 4 : take_varint(message);
  return take_bytes(message, size);
}

/// A message's fields by number.
std::multimap<unsigned, std::string> fields_of(std::string_view message) {
  std::multimap<unsigned, std::string> fields;
  while (!message.empty()) {
    const std::uint64_t key = take_varint(message);
    fields.emplace(static_cast<unsigned>(key >> 3U),
                   take_value(message, static_cast<unsigned>(key & 7U)));
  }
  return fields;
}

std::string only(const std::multimap<unsigned, std::string>& fields, unsigned number) {
  REQUIRE(fields.count(number) == 1);
  return fields.find(number)->second;
}

}  // namespace

TEST_CASE("an event file starts with its version and the session's first step") {
  const test::ScratchFolder folder;
  const TensorBoardWriter writer(folder.path(), 501);

  const auto frames = frames_of(test::read_file(writer.path()));

  REQUIRE(frames.size() == 2);
  CHECK(only(fields_of(frames[0]), 3) == "brain.Event:2");
  const auto session = fields_of(frames[1]);
  CHECK(fixed<std::uint64_t>(only(session, 2), 0) == 501);
  CHECK(fixed<std::uint64_t>(only(fields_of(only(session, 7)), 1), 0) == 1);
}

TEST_CASE("scalars are kept by tag and step") {
  const test::ScratchFolder folder;
  TensorBoardWriter writer(folder.path(), 1);
  const std::array<TensorBoardScalar, 2> scalars{
      {{"train/loss", 2.5}, {"train/lr", std::numeric_limits<double>::quiet_NaN()}}};

  writer.write(300, scalars);

  const auto event = fields_of(frames_of(test::read_file(writer.path())).back());
  CHECK(fixed<double>(only(event, 1), 0) > 1.6e9);  // seconds since 1970: after September 2020
  CHECK(fixed<std::uint64_t>(only(event, 2), 0) == 300);
  const auto values = fields_of(only(event, 5));
  REQUIRE(values.count(1) == 2);
  const auto loss = fields_of(values.begin()->second);
  const auto lr = fields_of(std::next(values.begin())->second);
  CHECK(only(loss, 1) == "train/loss");
  CHECK(fixed<float>(only(loss, 2), 0) == 2.5F);
  CHECK(only(lr, 1) == "train/lr");
  CHECK(std::isnan(fixed<float>(only(lr, 2), 0)));
}

TEST_CASE("every start writes a file that sorts after the earlier ones") {
  const test::ScratchFolder folder;
  test::write_file(folder / "events.out.tfevents.4000000000.elsewhere.7", "");

  const std::string first = TensorBoardWriter(folder.path(), 1).path();
  const std::string second = TensorBoardWriter(folder.path(), 1).path();

  CHECK(first.starts_with(folder / "events.out.tfevents.4000000001."));
  CHECK(second.starts_with(folder / "events.out.tfevents.4000000002."));
}

TEST_CASE("a folder for events that is missing is named") {
  const test::ScratchFolder folder;
  CHECK_THROWS_WITH(TensorBoardWriter(folder / "missing", 1), Catch::Contains("missing"));
}

}  // namespace lockstep
