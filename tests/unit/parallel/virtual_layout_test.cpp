#include "parallel/virtual_layout.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "support/catch.h"

namespace lockstep {

TEST_CASE("micro-batches go to virtual ranks in order, each to one, also when there are too few") {
  for (const int degree : {1, 2, 3, 4, 7}) {
    const VirtualLayout layout{.virtual_data = degree};
    for (const long count : {0L, 1L, 2L, 3L, 5L, 8L, 100L}) {
      long next = 0;
      for (int v = 0; v < degree; ++v) {
        const IndexRange range = layout.micro_batches(count, v);
        CHECK(range.begin == next);
        CHECK(range.begin == v * count / degree);
        next = range.end;
      }
      CHECK(next == count);
    }
  }
}

TEST_CASE("real ranks own neighbouring virtual ranks") {
  for (const int ranks : {1, 2, 4}) {
    int next = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const VirtualLayout layout{.virtual_data = 8, .data_ranks = ranks, .data_rank = rank};
      CHECK(layout.first_owned() == next);
      CHECK(layout.owned() == 8 / ranks);
      next += layout.owned();
    }
    CHECK(next == 8);
  }
}

TEST_CASE("the virtual degree is the real one unless another is wanted") {
  for (const int real : {1, 2, 3, 6}) {
    bool changed = true;
    CHECK(choose_virtual_degree(0, real, changed) == real);
    CHECK_FALSE(changed);
  }
}

TEST_CASE("a wanted virtual degree stays where the real ranks fit it") {
  for (const auto& [wanted, real] :
       {std::pair{8L, 1}, {8L, 2}, {8L, 8}, {6L, 3}, {5L, 5}, {1L, 1}}) {
    bool changed = true;
    CHECK(choose_virtual_degree(wanted, real, changed) == wanted);
    CHECK_FALSE(changed);
  }
}

TEST_CASE("a virtual degree that does not fit becomes the next that does, and says so") {
  struct Case {
    long wanted;
    int real;
    int expected;
  };
  for (const Case& c : {Case{4, 3, 6}, {2, 4, 4}, {6, 4, 8}, {5, 1, 8}, {1, 3, 3}}) {
    bool changed = false;
    CHECK(choose_virtual_degree(c.wanted, c.real, changed) == c.expected);
    CHECK(changed);
  }
}

TEST_CASE("degrees of equal bits divide the virtual one by powers of two") {
  CHECK(equivalent_degrees(1) == std::vector<int>{1});
  CHECK(equivalent_degrees(8) == std::vector<int>{1, 2, 4, 8});
  CHECK(equivalent_degrees(6) == std::vector<int>{3, 6});
  CHECK(equivalent_degrees(7) == std::vector<int>{7});
}

TEST_CASE("a degree of equal bits keeps the virtual one and any other changes it") {
  for (const int degree : {1, 2, 3, 4, 6, 8, 12}) {
    const std::vector<int> equal = equivalent_degrees(degree);
    for (int real = 1; real <= degree; ++real) {
      bool changed = false;
      choose_virtual_degree(degree, real, changed);
      CHECK(changed == (std::find(equal.begin(), equal.end(), real) == equal.end()));
    }
  }
}

}  // namespace lockstep
