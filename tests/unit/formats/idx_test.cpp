#include "formats/idx.h"

#include <string>
#include <vector>

#include <zlib.h>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/scratch_folder.h"

namespace lockstep {
namespace {

using test::request_error_of;
using test::ScratchFolder;

std::string idx_bytes(const std::vector<std::uint32_t>& dims, const std::string& values) {
  std::string bytes{'\0', '\0', '\x08', static_cast<char>(dims.size())};
  for (const std::uint32_t dim : dims) {
    for (const unsigned shift : {24U, 16U, 8U, 0U}) {
      bytes += static_cast<char>(dim >> shift & 0xffU);
    }
  }
  return bytes + values;
}

std::string gzip(const std::string& bytes) {
  const ScratchFolder folder;
  gzFile file = gzopen((folder / "packed").c_str(), "wb");
  REQUIRE(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())) ==
          static_cast<int>(bytes.size()));
  REQUIRE(gzclose(file) == Z_OK);
  return test::read_file(folder / "packed");
}

}  // namespace

TEST_CASE("an IDX file reads the same plain and compressed, whatever its name says") {
  const ScratchFolder folder;
  const std::string bytes = idx_bytes({2, 1, 3}, {1, 2, 3, 4, 5, '\xff'});
  test::write_file(folder / "plain.gz", bytes);
  test::write_file(folder / "packed", gzip(bytes));

  for (const char* name : {"plain.gz", "packed"}) {
    const IdxArray array = read_idx(folder / name, 3);
    CHECK(array.dims == std::vector<long>{2, 1, 3});
    CHECK(array.values == std::vector<std::uint8_t>{1, 2, 3, 4, 5, 255});
  }
}

TEST_CASE("malformed IDX files are refused by name and reason, plain and compressed") {
  struct Case {
    const char* reason;
    std::string bytes;
  };
  std::string wrong_type = idx_bytes({1, 1, 1}, "x");
  wrong_type[2] = '\x0d';
  const std::vector<Case> cases{
      {"not an IDX file", ""},
      {"not an IDX file", std::string(3, '\0')},
      {"not an IDX file", "IDX, surely"},
      {"elements of type 0x0d", wrong_type},
      {"has 1 dimensions, expected 3", idx_bytes({1}, "x")},
      {"ends inside the IDX header", idx_bytes({1, 1, 1}, "x").substr(0, 14)},
      {"is truncated", idx_bytes({2, 1, 1}, "x")},
      {"bytes after", idx_bytes({1, 1, 1}, "xy")},
      {"bytes after", idx_bytes({0, 1, 1}, "x")},
      {"is truncated", idx_bytes({0xffffffff, 0xffffffff, 0xffffffff}, "x")},
      {"is truncated", idx_bytes({0x80000000, 0x80000000, 4}, "x")},  // 2^64: wraps to 0
      {"is truncated", idx_bytes({0xffffffff, 1, 1}, "x")},
  };
  const ScratchFolder folder;
  for (const Case& test : cases) {
    for (const bool packed : {false, true}) {
      test::write_file(folder / "file", packed ? gzip(test.bytes) : test.bytes);
      const std::string message = request_error_of([&] { read_idx(folder / "file", 3); });
      INFO(message);
      CHECK_THAT(message,
                 Catch::StartsWith(folder / "file") && Catch::Contains(std::string(test.reason)));
    }
  }
}

TEST_CASE("damaged gzip streams are refused by name") {
  const std::string good = gzip(idx_bytes({4, 1, 1}, "abcd"));
  std::string wrong_checksum = good;
  wrong_checksum[good.size() - 8] = static_cast<char>(wrong_checksum[good.size() - 8] ^ 1);
  std::string wrong_block = good;
  wrong_block[10] = '\xff';
  const ScratchFolder folder;
  for (const std::string& bytes : {good.substr(0, 5),
                                   good.substr(0, good.size() - 9),
                                   good.substr(0, good.size() - 1),
                                   good + "x",
                                   good + good,
                                   wrong_checksum,
                                   wrong_block}) {
    test::write_file(folder / "file", bytes);
    const std::string message = request_error_of([&] { read_idx(folder / "file", 3); });
    CHECK_THAT(message, Catch::StartsWith(folder / "file") && Catch::Contains("gzip stream"));
  }
}

TEST_CASE("an image folder gives images with their labels") {
  const ScratchFolder folder;
  test::write_file(folder / "t10k-images-idx3-ubyte.gz", gzip(idx_bytes({2, 1, 2}, "abcd")));
  test::write_file(folder / "t10k-labels-idx1-ubyte", idx_bytes({2}, {7, 9}));

  const IdxImages images = read_idx_images(folder.path(), "t10k");

  CHECK(images.num_images == 2);
  CHECK(images.rows == 1);
  CHECK(images.columns == 2);
  CHECK(images.pixels == std::vector<std::uint8_t>{'a', 'b', 'c', 'd'});
  CHECK(images.labels == std::vector<std::uint8_t>{7, 9});
}

TEST_CASE("an image folder without a file, with other counts or empty images is refused") {
  const ScratchFolder folder;
  const auto message = [&] {
    return request_error_of([&] { read_idx_images(folder.path(), "train"); });
  };
  CHECK_THAT(message(), Catch::Contains("train-images-idx3-ubyte.gz is there"));

  test::write_file(folder / "train-images-idx3-ubyte", idx_bytes({2, 1, 2}, "abcd"));
  CHECK_THAT(message(), Catch::Contains("train-labels-idx1-ubyte.gz is there"));

  test::write_file(folder / "train-labels-idx1-ubyte", idx_bytes({3}, "abc"));
  CHECK_THAT(message(), Catch::Contains("2 images") && Catch::Contains("3 labels"));

  test::write_file(folder / "train-images-idx3-ubyte", idx_bytes({3, 0, 2}, ""));
  CHECK_THAT(message(), Catch::Contains("0 x 2 pixels"));
}

}  // namespace lockstep
