#include "formats/safetensors.h"

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/scratch_folder.h"

namespace lockstep {
namespace {

using test::request_error_of;
using test::ScratchFolder;

std::string with_length(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + header + data;
}

/// A header with one F32 entry of two elements named `name`, whose bytes are [begin, begin + 8).
std::string entry(const std::string& name, int begin) {
  return "\"" + name + R"(":{"dtype":"F32","shape":[2],"data_offsets":[)" + std::to_string(begin) +
         "," + std::to_string(begin + 8) + "]}";
}

std::string object(const std::string& members) {
  return fmt::format("{{{}}}", members);
}

std::string text_of(const StoredTensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()};
}

void write_file_of(const std::string& path, const std::vector<std::string>& names) {
  std::vector<TensorDeclaration> tensors;
  for (const std::string& name : names) {
    tensors.push_back({name, DType::kU8, {static_cast<long>(name.size())}});
  }
  SafetensorsWriter writer(path, tensors);
  for (const std::string& name : names) {
    writer.write(std::as_bytes(std::span(name)));
  }
  writer.close();
}

}  // namespace

TEST_CASE("tensors and metadata survive a round trip, however the bytes are cut") {
  const ScratchFolder folder;
  const std::vector<TensorDeclaration> tensors{
      {"layer.weight", DType::kF32, {2, 3}},
      {"empty", DType::kF64, {0, 1L << 62U, 5}},
      {"scalar \"quoted\" \xc3\xa9", DType::kI64, {}},
      {"half", DType::kBF16, {1, 1, 3}},
      {"bytes", DType::kU8, {1}},
  };
  std::string data;
  for (int i = 0; i < 24 + 8 + 6 + 1; ++i) {
    data += static_cast<char>(3 * i);
  }

  SafetensorsWriter writer(folder / "file", tensors, {{"format", "pt"}, {"step", "7"}});
  CHECK(writer.remaining_bytes() == data.size());
  const auto bytes = std::as_bytes(std::span(data));
  writer.write(bytes.first(25));
  writer.write(bytes.subspan(25, 0));
  writer.write(bytes.subspan(25));
  CHECK_FALSE(std::filesystem::exists(folder / "file"));
  const std::uint64_t hash = writer.close();

  const SafetensorsFile file(folder / "file");
  CHECK(file.tensors().size() == tensors.size());
  CHECK(file.metadata() == std::map<std::string, std::string>{{"format", "pt"}, {"step", "7"}});
  std::size_t offset = 0;
  for (const TensorDeclaration& tensor : tensors) {
    const StoredTensor& stored = file.tensors().at(tensor.name);
    CHECK(stored.dtype == tensor.dtype);
    CHECK(stored.shape == tensor.shape);
    const std::size_t size = tensor.name == "empty" ? 0 : stored_bytes(tensor.dtype, tensor.shape);
    CHECK(text_of(stored) == data.substr(offset, size));
    file.advise_will_need(stored);
    offset += size;
  }
  CHECK(offset == data.size());
  CHECK(hash == hash_of(file.file_bytes().data(), file.file_bytes().size()));
}

TEST_CASE("the header of a written file is padded with spaces to 8 bytes") {
  const ScratchFolder folder;
  write_file_of(folder / "file", {"a"});
  const std::string expected = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";

  const std::string content = test::read_file(folder / "file");

  std::uint64_t length = 0;
  std::memcpy(&length, content.data(), sizeof(length));
  CHECK(length % 8 == 0);
  CHECK(content.substr(8) == expected + std::string(length - expected.size(), ' ') + "a");
}

TEST_CASE("a file without tensors, gaps between tensors and unaligned tensors are accepted") {
  const ScratchFolder folder;
  test::write_file(folder / "file", with_length("{}", ""));
  CHECK(SafetensorsFile(folder / "file").tensors().empty());

  test::write_file(
      folder / "file",
      with_length(object(entry("b", 9) + "," + entry("a", 0)) + "   ", "12345678.abcdefgh."));
  const SafetensorsFile file(folder / "file");
  CHECK(text_of(file.tensors().at("a")) == "12345678");
  CHECK(text_of(file.tensors().at("b")) == "abcdefgh");
}

TEST_CASE("malformed safetensors files are refused by name and reason") {
  struct Case {
    const char* reason;
    std::string bytes;
  };
  const auto tensor = [](const std::string& fields, const std::string& data = "12345678") {
    return with_length(R"({"t":{)" + fields + "}}", data);
  };
  const std::string nested = std::string(100'000, '[') + std::string(100'000, ']');
  const std::vector<Case> cases{
      {"no safetensors file", ""},
      {"no safetensors file", "1234567"},
      {"only 1 follow", with_length("{}", "").substr(0, 9)},
      {"declares a header", std::string(8, '\xff') + "{}"},
      {"not valid JSON", with_length("", "")},
      {"not valid JSON", with_length("{", "")},
      {"not valid JSON", with_length("{}x", "")},
      {"not valid JSON", with_length("{\"\xff\":1}", "")},
      {"not a JSON object", with_length("[]", "")},
      {"nested deeper", with_length(object("\"t\":" + nested), "")},
      {"key 't' stands twice",
       with_length(object(entry("t", 0) + "," + entry("t", 8)), "0123456789abcdef")},
      {"key 'dtype' stands twice", tensor(R"("dtype":"F32","dtype":"F64")")},
      {"entry is not an object", with_length(R"({"t":3})", "")},
      {"'dtype' is missing", tensor(R"("shape":[2],"data_offsets":[0,8])")},
      {"'shape' is missing", tensor(R"("dtype":"F32","data_offsets":[0,8])")},
      {"'data_offsets' is missing", tensor(R"("dtype":"F32","shape":[2])")},
      {"dtype \"F33\" is unknown", tensor(R"("dtype":"F33","shape":[2],"data_offsets":[0,8])")},
      {"dtype 32 is unknown", tensor(R"("dtype":32,"shape":[2],"data_offsets":[0,8])")},
      {"shape is not a list", tensor(R"("dtype":"F32","shape":2,"data_offsets":[0,8])")},
      {"shape has -2", tensor(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])")},
      {"shape has 2.0", tensor(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])")},
      {"shape has 9223372036854775808",
       tensor(R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8])")},
      {"not two sizes", tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4,8])")},
      {"not two sizes", tensor(R"("dtype":"F32","shape":[2],"data_offsets":[-8,0])")},
      {"do not lie in", tensor(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])")},
      {"do not lie in", tensor(R"("dtype":"F32","shape":[2],"data_offsets":[1,9])")},
      {"do not lie in", tensor(R"("dtype":"F32","shape":[0],"data_offsets":[9,9])")},
      {"do not make", tensor(R"("dtype":"F64","shape":[2],"data_offsets":[0,8])")},
      {"do not make", tensor(R"("dtype":"F32","shape":[],"data_offsets":[0,8])")},
      {"do not make", tensor(R"("dtype":"F32","shape":[0,2],"data_offsets":[0,8])")},
      // 2^62 * 4 bytes and 2^32 * 2^32 wrap to 0 in 64 bits.
      {"do not make",
       tensor(R"("dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0])")},
      {"do not make",
       tensor(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0])")},
      {"'a' and 'b' overlap",
       with_length(object(entry("b", 4) + "," + entry("a", 0)), "0123456789abcdef")},
      {"__metadata__ is not an object", with_length(R"({"__metadata__":[]})", "")},
      {"'step', which is not text", with_length(R"({"__metadata__":{"step":7}})", "")},
  };
  const ScratchFolder folder;
  for (const Case& test : cases) {
    test::write_file(folder / "file", test.bytes);
    const std::string message = request_error_of([&] { SafetensorsFile file(folder / "file"); });
    INFO(test.reason << " | " << message.substr(0, 300));
    CHECK_THAT(message,
               Catch::StartsWith(folder / "file") && Catch::Contains(std::string(test.reason)));
  }
}

TEST_CASE("a dtype of the format that we lack is set apart and refused when asked for") {
  const ScratchFolder folder;
  test::write_file(
      folder / "file",
      with_length(R"({"mask":{"dtype":"BOOL","shape":[8],"data_offsets":[0,8]}})", "12345678"));
  const SafetensorsSet set(folder / "file");

  CHECK(set.names().empty());
  CHECK(set.find("mask") == nullptr);
  CHECK_THAT(request_error_of([&] { return set.at("mask"); }),
             Catch::Contains("'mask': dtype BOOL is not supported"));
}

TEST_CASE("a writer that is destroyed before close leaves nothing, and one short of bytes fails") {
  const ScratchFolder folder;
  {
    SafetensorsWriter writer(folder / "file", {{"a", DType::kU8, {2}}});
    writer.write(std::as_bytes(std::span("x", 1)));
    CHECK_THROWS_AS(writer.close(), std::logic_error);
    CHECK_THROWS_AS(writer.write(std::as_bytes(std::span("yz", 2))), std::logic_error);
  }
  CHECK(std::filesystem::is_empty(folder.path()));
  CHECK_THROWS_AS(
      SafetensorsWriter(folder / "file", {{"a", DType::kU8, {1}}, {"a", DType::kU8, {1}}}),
      std::logic_error);
}

TEST_CASE("a folder is read through its index or its single file, and files by their names") {
  const ScratchFolder folder;
  write_file_of(folder / "one.safetensors", {"a", "bb"});
  write_file_of(folder / "two.safetensors", {"ccc"});
  test::write_file(folder / "model.safetensors.index.json",
                   R"({"metadata":{"total_size":6},"weight_map":
                      {"a":"one.safetensors","bb":"one.safetensors","ccc":"two.safetensors"}})");

  const SafetensorsSet by_index(folder.path());
  CHECK(by_index.names() == std::vector<std::string>{"a", "bb", "ccc"});
  CHECK(by_index.files().size() == 2);
  CHECK(text_of(by_index.at("ccc")) == "ccc");

  const SafetensorsSet by_names(std::vector<std::string>{folder / "two.safetensors"});
  CHECK(by_names.names() == std::vector<std::string>{"ccc"});
  CHECK_THAT(request_error_of([&] { return by_names.at("a"); }), Catch::Contains("no tensor 'a'"));

  write_file_of(folder / "model.safetensors", {"single"});
  CHECK(SafetensorsSet(folder.path()).names() == std::vector<std::string>{"single"});
}

TEST_CASE("a folder whose index and files disagree is refused by name") {
  const ScratchFolder folder;
  const std::string index = folder / "model.safetensors.index.json";
  const auto message = [&](const std::string& content) {
    test::write_file(index, content);
    return request_error_of([&] { SafetensorsSet set(folder.path()); });
  };
  CHECK_THAT(request_error_of([&] { SafetensorsSet set(folder.path()); }),
             Catch::Contains("neither model.safetensors nor"));

  write_file_of(folder / "one", {"a", "b"});
  write_file_of(folder / "two", {"b"});
  CHECK_THAT(message(R"({"weight_map":{"a":"one","c":"one"}})"),
             Catch::Contains("tensor 'c' is not in one"));
  CHECK_THAT(message(R"({"weight_map":{"a":"one","b":"two"}})"),
             Catch::Contains("tensor 'b' is also in"));
  CHECK_THAT(message(R"({"weight_map":{"a":"three"}})"), Catch::Contains("three"));
  CHECK_THAT(message(R"({"weight_map":{"a":"one","a":"two"}})"), Catch::Contains("stands twice"));
  CHECK_THAT(message("{}"), Catch::Contains("no object 'weight_map'"));
  CHECK_THAT(message("not JSON"), Catch::Contains("not valid JSON"));
  for (const char* name : {R"("../one")", R"("/one")", R"("..")", R"("")", "3", R"("one\u0000")"}) {
    CHECK_THAT(message(std::string(R"({"weight_map":{"a":)") + name + "}}"),
               Catch::Contains("not the name of a file in the same folder"));
  }
}

}  // namespace lockstep
