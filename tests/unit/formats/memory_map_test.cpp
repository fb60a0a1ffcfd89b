#include "formats/memory_map.h"

#include <cstring>
#include <string>
#include <utility>

#include <sys/stat.h>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/scratch_folder.h"

namespace lockstep {

using test::request_error_of;
using test::ScratchFolder;

TEST_CASE("a mapped file shows its bytes, also after a move") {
  const ScratchFolder folder;
  test::write_file(folder / "file", "seven b");

  MemoryMap first(folder / "file");
  first.advise_will_need(3, 1000);
  first.advise_will_need(1000, 1);
  const MemoryMap second = std::move(first);

  REQUIRE(second.bytes().size() == 7);
  CHECK(std::memcmp(second.bytes().data(), "seven b", 7) == 0);
  CHECK(second.path() == folder / "file");
}

TEST_CASE("an empty file maps to an empty span") {
  const ScratchFolder folder;
  test::write_file(folder / "empty", "");

  CHECK(MemoryMap(folder / "empty").bytes().empty());
}

TEST_CASE("a missing file, a folder, a pipe and a device are refused by name without waiting") {
  const ScratchFolder folder;
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);

  for (const std::string& path :
       {folder / "missing", folder.path(), folder / "pipe", std::string("/dev/null")}) {
    const std::string message = request_error_of([&] { MemoryMap map(path); });
    CHECK_THAT(message, Catch::StartsWith(path + ": "));
  }
}

}  // namespace lockstep
