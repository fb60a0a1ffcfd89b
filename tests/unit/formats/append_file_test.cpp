#include "formats/append_file.h"

#include "base/error.h"
#include "support/catch.h"
#include "support/file_size_limit.h"
#include "support/scratch_folder.h"

namespace lockstep {
TEST_CASE("appending goes on where the file ended") {
  const test::ScratchFolder folder;
  { AppendFile(folder / "file").append("one "); }

  AppendFile file(folder / "file");
  file.append("two");

  CHECK(test::read_file(folder / "file") == "one two");
  CHECK(file.size() == 7);
}

TEST_CASE("a record that does not fit on the disk is not left there in part") {
  const test::ScratchFolder folder;
  AppendFile file(folder / "file");
  file.append("whole\n");

  {
    const test::FileSizeLimit limit(9);
    CHECK_THROWS_WITH(file.append("too long\n"), Catch::Contains("cannot write to"));
  }
  file.append("next\n");

  CHECK(test::read_file(folder / "file") == "whole\nnext\n");
}

TEST_CASE("replacing leaves the old file when the new one does not fit") {
  const test::ScratchFolder folder;
  test::write_file(folder / "file", "old");

  {
    const test::FileSizeLimit limit(9);
    CHECK_THROWS_AS(replace_file(folder / "file", "longer than that"), Error);
  }

  CHECK(test::read_file(folder / "file") == "old");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("after replacing, records go to the new file") {
  const test::ScratchFolder folder;
  AppendFile file(folder / "file");
  file.append("old");

  file.replace("new");
  file.append(" end");
  file.sync();

  CHECK(test::read_file(folder / "file") == "new end");
}

TEST_CASE("a file that cannot be opened is named") {
  const test::ScratchFolder folder;
  CHECK_THROWS_WITH(AppendFile(folder / "missing/file"), Catch::Contains("missing/file"));
  CHECK_THROWS_WITH(AppendFile("/dev/null"), Catch::Contains("not a regular file"));
}

}  // namespace lockstep
