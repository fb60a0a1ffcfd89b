#include "formats/token_file.h"

#include <array>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/scratch_folder.h"

namespace lockstep {
namespace {

using test::request_error_of;
using test::ScratchFolder;

std::vector<std::int32_t> read_all(const TokenFile& file) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(file.num_tokens()));
  file.read(0, file.num_tokens(), ids.data());
  return ids;
}

std::string header(std::int32_t magic, std::int32_t version, std::int32_t count) {
  std::array<std::int32_t, 256> ints{magic, version, count};
  return {reinterpret_cast<const char*>(ints.data()), sizeof(ints)};
}

void write_tokens(const std::string& path, DType dtype, const std::vector<std::int32_t>& ids) {
  TokenFileWriter writer(path, dtype);
  writer.write(ids);
  writer.close();
}

}  // namespace

TEST_CASE("written token files read back, in both widths and across the writer's buffer") {
  const ScratchFolder folder;
  std::vector<std::int32_t> ids(700'001);
  std::iota(ids.begin(), ids.end(), 0);
  for (std::int32_t& id : ids) {
    id %= 65'536;
  }
  for (const DType dtype : {DType::kU16, DType::kI32}) {
    TokenFileWriter writer(folder / "tokens", dtype);
    writer.write(std::span(ids).first(5));
    writer.write(std::span(ids).subspan(5));
    CHECK(writer.num_tokens() == 700'001);
    writer.close();

    const TokenFile file(folder / "tokens");
    CHECK(file.bytes_per_token() == (dtype == DType::kU16 ? 2 : 4));
    CHECK(read_all(file) == ids);
    CHECK(file.largest_id(0, file.num_tokens()) == 65'535);
    CHECK(file.largest_id(3, 3) == -1);
    CHECK(file.count_of(7, 0, file.num_tokens()) == 11);  // 700,001 ids wrap ten times past 7
  }
}

TEST_CASE("the header is that of llm.c") {
  const ScratchFolder folder;
  write_tokens(folder / "narrow", DType::kU16, {1, 65'535});
  write_tokens(folder / "wide", DType::kI32, {1, 70'000});

  CHECK(test::read_file(folder / "narrow") ==
        header(20240520, 1, 2) + std::string{1, 0, '\xff', '\xff'});
  CHECK(test::read_file(folder / "wide") ==
        header(20240520, 7, 2) + std::string{1, 0, 0, 0, '\x70', '\x11', '\x01', 0});
}

TEST_CASE("a file without a header is uint16 ids from its first byte") {
  const ScratchFolder folder;
  test::write_file(folder / "bare", std::string{5, 0, 0, 1});

  CHECK(read_all(TokenFile(folder / "bare")) == std::vector<std::int32_t>{5, 256});
}

TEST_CASE("malformed token files are refused by name and reason") {
  struct Case {
    const char* reason;
    std::string bytes;
  };
  const std::vector<Case> cases{
      {"is empty", ""},
      {"no whole number of uint16 ids", "abc"},
      {"no whole number of uint16 ids", "a"},
      {"is truncated: 1000 bytes", header(20240520, 1, 2).substr(0, 1000)},
      {"is truncated: 4 bytes", header(20240520, 1, 2).substr(0, 4)},
      {"version 2 is unknown", header(20240520, 2, 2) + "abcd"},
      {"declares 0 tokens", header(20240520, 1, 0)},
      {"declares -1 tokens", header(20240520, 1, -1) + "abcd"},
      {"is truncated: 0 bytes", header(20240520, 1, 2)},
      {"is truncated: 3 bytes", header(20240520, 1, 2) + "abc"},
      {"bytes after its end: 5 bytes", header(20240520, 1, 2) + "abcde"},
      {"is truncated: 4 bytes", header(20240520, 7, 2) + "abcd"},
      {"is truncated", header(20240520, 7, 0x7fffffff) + "abcd"},
  };
  const ScratchFolder folder;
  for (const Case& test : cases) {
    test::write_file(folder / "tokens", test.bytes);
    const std::string message = request_error_of([&] { TokenFile file(folder / "tokens"); });
    INFO(message);
    CHECK_THAT(message,
               Catch::StartsWith(folder / "tokens") && Catch::Contains(std::string(test.reason)));
  }
}

TEST_CASE("the first id beyond the vocabulary is named with its file and position") {
  const ScratchFolder folder;
  // Longer than one block of the scan, with the bad ids in the second block.
  std::vector<std::int32_t> ids(70'000, 99);
  ids[69'000] = 100;
  ids[69'500] = 65'000;
  for (const DType dtype : {DType::kU16, DType::kI32}) {
    write_tokens(folder / "tokens", dtype, ids);
    const TokenFile file(folder / "tokens");

    CHECK_NOTHROW(file.check_ids(65'001));
    CHECK_NOTHROW(file.check_ids(100, 0, 69'000));
    CHECK_NOTHROW(file.check_ids(100, 69'001, 69'500));
    const std::string message = request_error_of([&] { file.check_ids(100); });
    CHECK_THAT(message,
               Catch::StartsWith(folder / "tokens") && Catch::Contains("position 69000") &&
                   Catch::Contains("id 100 ") && Catch::Contains("vocabulary size 100"));
    CHECK_THAT(request_error_of([&] { file.check_ids(100, 69'001, 70'000); }),
               Catch::Contains("position 69500"));
  }
}

TEST_CASE("an id that int32 cannot hold is refused as beyond any vocabulary") {
  const ScratchFolder folder;
  test::write_file(folder / "tokens",
                   header(20240520, 7, 2) + std::string{1, 0, 0, 0, 0, 0, 0, '\x80'});
  const TokenFile file(folder / "tokens");

  CHECK_THAT(request_error_of([&] { file.check_ids(1L << 31U); }),
             Catch::Contains("position 1") && Catch::Contains("2147483648"));
}

TEST_CASE("an id that does not fit uint16 is refused with its position and what to do") {
  const ScratchFolder folder;
  {
    TokenFileWriter writer(folder / "tokens", DType::kU16);
    const std::vector<std::int32_t> ids{1, 65'535, 65'536};
    const std::string message = request_error_of([&] { writer.write(ids); });
    CHECK_THAT(message,
               Catch::Contains("position 2") && Catch::Contains("65536") &&
                   Catch::Contains("write the file as uint32"));
    CHECK_THROWS_AS(writer.close(), std::logic_error);
  }
  CHECK(std::filesystem::is_empty(folder.path()));

  TokenFileWriter wide(folder / "tokens", DType::kI32);
  const std::vector<std::int32_t> negative{3, -1};
  CHECK_THAT(request_error_of([&] { wide.write(negative); }),
             Catch::Contains("position 1") && Catch::Contains("-1 is negative"));
}

TEST_CASE("a writer that is not closed, or got nothing, leaves no file") {
  const ScratchFolder folder;
  {
    TokenFileWriter writer(folder / "tokens", DType::kU16);
    const std::vector<std::int32_t> ids{1, 2};
    writer.write(ids);
  }
  CHECK(std::filesystem::is_empty(folder.path()));
  {
    TokenFileWriter writer(folder / "tokens", DType::kU16);
    CHECK_THAT(request_error_of([&] { writer.close(); }), Catch::Contains("no tokens to write"));
  }
  CHECK(std::filesystem::is_empty(folder.path()));
}

}  // namespace lockstep
