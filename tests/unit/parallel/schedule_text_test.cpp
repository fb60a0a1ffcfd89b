#include "parallel/schedule_text.h"

#include <algorithm>
#include <sstream>

#include "support/catch.h"
#include "unit/parallel/schedules.h"

using Catch::Matchers::Contains;

namespace lockstep {
namespace {

constexpr auto k1F1B = ScheduleKind::kOneForwardOneBackward;

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

// The first line that starts with `begin`: of a rank its drawing.
std::string line_with(const std::string& text, const std::string& begin) {
  for (const std::string& line : lines_of(text)) {
    if (line.starts_with(begin)) {
      return line;
    }
  }
  return {};
}

}  // namespace

// By hand: the last rank runs f0 [1,2) b0 [2,4) f1 [4,5) b1 [5,7) f2 [7,8) b2 [8,10). Rank 0 runs
// f0 [0,1) f1 [1,2), waits for b0 until 4, b0 [4,6) f2 [6,7), has b1 at 7: [7,9), waits for b2 until
// 10: [10,12). Work is 9 of 12; 25 % = 1 / (3 + 1).
TEST_CASE("a small 1f1b is drawn as it runs") {
  CHECK(draw_schedule(make_schedule(k1F1B, 2, 1, 3), {}) ==
        "1f1b: 2 ranks, 1 chunk a rank, 3 micro-batches\n"
        "forward 0 to 9: micro-batch; backward a to j alike (a: 0); .: idle\n"
        "costs: forward 1, backward 2, message 0\n"
        "a column is 1 of time\n"
        "\n"
        "rank 0    01..aa2bb.cc\n"
        "rank 1    .0aa1bb2cc..\n"
        "\n"
        "total time 12\n"
        "            bubble  peak activations (of each chunk)\n"
        "rank 0     25.00 %  2\n"
        "rank 1     25.00 %  1\n"
        "formula    25.00 %  (P - 1) / (M + P - 1)\n");
}

// By hand, with f, b and w of one unit. Rank 2: f0 at 2, b0 3, f1 4 (there since 3), b1 5; f2 comes
// from rank 1 at 6: 6, b2 7, w0 8; f3 from rank 1 at 9: 9, b3 10, w1, w2, w3. Rank 1: f0 1, f1 2,
// b0 when rank 2 has it: 4, f2 5, b1 6, w0 7, f3 8 (rank 0 has it until 8), b2 9, w1 10, b3 11, w2,
// w3. Rank 0: f0 f1 f2, b0 5, w0 6, f3 7, b1 8, w1 9, b2 10, w2 11, b3 12, w3 13. Work is 12 of 14.
TEST_CASE("a small zero-bubble is drawn as it runs") {
  const std::string text = draw_schedule(make_schedule(ScheduleKind::kZeroBubble, 3, 1, 4), {});

  CHECK(line_with(text, "rank 0") == "rank 0    012..aA3bBcCdD");
  CHECK(line_with(text, "rank 1") == "rank 1    .01.a2bA3cBdCD");
  CHECK(line_with(text, "rank 2") == "rank 2    ..0a1b2cA3dBCD");
  CHECK_THAT(text,
             Contains("backward_weight A to J") && Contains("total time 14\n") &&
                 Contains("rank 2     14.29 %  3\n") && Contains("formula    14.29 %"));
}

// By hand: rank 1 gets f0.0 at 1, rank 0 f0.1 at 2, and so on; chunk 1 goes back first.
TEST_CASE("chunks stand below the micro-batches of interleaved") {
  const std::string text = draw_schedule(make_schedule(ScheduleKind::kInterleaved, 2, 2, 1), {});

  CHECK_THAT(text,
             Contains("rank 0    0.0...aa..aa\n  chunk   0.1...11..00\n"
                      "rank 1    .0.0aa..aa..\n  chunk   .0.111..00..\n") &&
                 Contains("below: the chunk") && Contains("formula   none") &&
                 Contains("rank 0     50.00 %  2 (1 1)\n"));
}

TEST_CASE("what is too wide loses columns in the middle and says which") {
  // 3 * (100 + 1) = 303 columns; 60 - 10 - 3 = 47 are shown: 24 on the left and 23 on the right.
  const std::string text = draw_schedule(make_schedule(k1F1B, 2, 1, 100), {}, 60);

  const std::string rank = line_with(text, "rank 0");
  CHECK(rank.size() == 60);
  // The last rank ends b98 at 298 and b99 at 301.
  CHECK(rank == "rank 0    01..aa2bb3cc4dd5ee6ff7gg ~ " + rank.substr(37));
  CHECK(rank.ends_with("8hh9ii.jj"));
  CHECK_THAT(text,
             Contains("columns 24 to 279 of 303 are left out at  ~ ") &&
                 Contains("micro-batch modulo 10"));
  for (const std::string& line : lines_of(text)) {
    CHECK((!line.starts_with("rank") || line.size() <= 60));
  }
}

TEST_CASE("columns are the shortest pass, and empty passes are not drawn") {
  ScheduleCosts costs;
  costs.stages = {{0.25, 0.5, 0, 0}, {0, 0.75, 0, 0}};

  // Rank 0: [0, 0.25) and [1, 1.5); rank 1: nothing at 0.25, then [0.25, 1).
  const std::string text = draw_schedule(make_schedule(ScheduleKind::kGpipe, 2, 1, 1), costs);

  CHECK(line_with(text, "rank 0") == "rank 0    0...aa");
  CHECK(line_with(text, "rank 1") == "rank 1    .aaa..");
  CHECK_THAT(text,
             Contains("a column is 0.25 of time") && Contains("costs differ by stage") &&
                 Contains("formula   none"));
}

}  // namespace lockstep
