#include "formats/atomic_file.h"

#include <csignal>
#include <filesystem>
#include <string>

#include <sys/resource.h>

#include "base/error.h"
#include "support/catch.h"
#include "support/scratch_folder.h"

namespace lockstep {
namespace {

long num_files(const test::ScratchFolder& folder) {
  const std::filesystem::directory_iterator files(folder.path());
  return std::distance(begin(files), end(files));
}

}  // namespace

TEST_CASE("a file replaces the old one at commit and not before") {
  const test::ScratchFolder folder;
  test::write_file(folder / "file", "old");

  AtomicFile file(folder / "file");
  file.append("....new", 7);
  file.overwrite(0, "head", 4);
  CHECK(test::read_file(folder / "file") == "old");
  file.commit();

  CHECK(test::read_file(folder / "file") == "headnew");
  CHECK(num_files(folder) == 1);
}

TEST_CASE("a file that is not committed leaves nothing behind") {
  const test::ScratchFolder folder;
  {
    AtomicFile file(folder / "file");
    file.append("half", 4);
    CHECK(num_files(folder) == 1);
  }
  CHECK(num_files(folder) == 0);
}

TEST_CASE("two writers of one path do not mix their bytes") {
  const test::ScratchFolder folder;
  AtomicFile first(folder / "file");
  AtomicFile second(folder / "file");
  first.append("first", 5);
  second.append("2nd", 3);

  first.commit();
  second.commit();

  CHECK(test::read_file(folder / "file") == "2nd");
}

TEST_CASE("a file in a missing folder and a rename onto a folder fail by name") {
  const test::ScratchFolder folder;
  CHECK_THROWS_WITH(AtomicFile(folder / "missing/file"),
                    Catch::StartsWith(folder / "missing/file"));
  CHECK_THROWS_AS(fsync_directory(folder / "missing"), Error);

  std::filesystem::create_directory(folder / "taken");
  {
    AtomicFile file(folder / "taken");
    CHECK_THROWS_WITH(file.commit(), Catch::StartsWith(folder / "taken"));
  }
  CHECK(num_files(folder) == 1);
}

TEST_CASE("a write beyond the file-size limit is an error that names the file") {
  const test::ScratchFolder folder;
  test::write_file(folder / "file", "old");
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1000, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);

  std::string message;
  {
    AtomicFile file(folder / "file");
    try {
      file.append(std::string(1001, 'x').data(), 1001);
    } catch (const Error& error) {
      message = error.what();
    }
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);

  CHECK_THAT(message, Catch::StartsWith(folder / "file") && Catch::Contains("offset 1000"));
  CHECK(test::read_file(folder / "file") == "old");
  CHECK(num_files(folder) == 1);
}

}  // namespace lockstep
