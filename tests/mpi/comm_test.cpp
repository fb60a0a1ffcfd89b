#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "base/integers.h"
#include "comm/communicator.h"
#include "comm/dry/dry_communicator.h"
#include "comm/exchange.h"
#include "comm_support.h"
#include "kernels/reduce.h"
#include "support/catch.h"

namespace lockstep {
namespace {

using test::element;
using test::sum_of_elements;

void fill(const Communicator& group, float* data, long count, int round = 0) {
  for (long i = 0; i < count; ++i) {
    data[i] = element(group.rank(), i, round);
  }
}

/// Elements in [range) that differ from the sum's bits.
long wrong_elements(const Communicator& group, const float* data, IndexRange range, int round = 0) {
  long wrong = 0;
  for (long i = range.begin; i < range.end; ++i) {
    wrong += data[i] == sum_of_elements(group.size(), i, round) ? 0 : 1;
  }
  return wrong;
}

std::vector<long> hosts_of(const Communicator& group) {
  return {group.host_of().begin(), group.host_of().end()};
}

}  // namespace

TEST_CASE("an ordered all-reduce gives the bits of the aligned tree on any placement") {
  for (const auto& placement : test::placements()) {
    const auto group = test::world(placement);
    const Memory memory = group->allocate(120'000 * sizeof(float));
    for (const long count : {0L, 1L, 5L, 4096L, 4096L * group->size(), 100'003L}) {
      CAPTURE(placement.name, count);
      auto* data = memory.as<float>() + 16;
      const auto operation = group->make_all_reduce(data, count, Reduction::kOrdered);
      fill(*group, data, count);
      data[count] = -1.0F;

      operation->start();
      operation->wait();

      CHECK(wrong_elements(*group, data, {0, count}) == 0);
      CHECK(data[count] == -1.0F);
    }
  }
}

TEST_CASE("a million elements are summed by threads to the same bits") {
  ThreadPool threads(2);
  const auto group = test::world({"one host", {}}, 30, &threads);
  const long count = 1'000'000;
  const Memory memory = group->allocate(count * sizeof(float));
  fill(*group, memory.as<float>(), count);

  const auto operation = group->make_all_reduce(memory.as<float>(), count, Reduction::kOrdered);
  operation->start();
  operation->wait();

  CHECK(wrong_elements(*group, memory.as<float>(), {0, count}) == 0);
}

TEST_CASE("memory of a group is zero and aligned on every rank") {
  for (const auto& placement : test::placements()) {
    const auto group = test::world(placement);
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{5000}, std::size_t{1} << 20U}) {
      CAPTURE(placement.name, bytes);
      const Memory memory = group->allocate(bytes);

      CHECK(reinterpret_cast<std::uintptr_t>(memory.data()) % kMemoryAlignment == 0);
      CHECK(std::all_of(memory.data(), memory.data() + bytes, [](std::byte value) {
        return value == std::byte{0};
      }));
      std::fill_n(memory.data(), bytes, std::byte{1});  // the next one is not this one
    }
  }
}

TEST_CASE("a reduce-scatter leaves the sum in the rank's own part") {
  for (const auto& placement : test::placements()) {
    const auto group = test::world(placement);
    for (const long chunks : {1L, 2L, 7L}) {
      CAPTURE(placement.name, chunks);
      const long count = chunks * kChunkElements;
      const Memory memory = group->allocate(static_cast<std::size_t>(count) * sizeof(float));
      const auto operation = group->make_reduce_scatter(memory.as<float>(), count);
      fill(*group, memory.as<float>(), count);

      operation->start();
      operation->wait();

      const IndexRange part = part_of(chunks, group->size(), group->rank());
      const IndexRange own{part.begin * kChunkElements, part.end * kChunkElements};
      CHECK(wrong_elements(*group, memory.as<float>(), own) == 0);
    }
  }
}

TEST_CASE("a reduce-scatter leaves the sum in slices of the chunks asked for") {
  for (const auto& placement : test::placements()) {
    const auto group = test::world(placement);
    const long count = 12'000;
    for (const long chunk : {1L, 100L, 6000L}) {
      CAPTURE(placement.name, chunk);
      const Memory memory = group->allocate(count * sizeof(float));
      const auto operation = group->make_reduce_scatter(memory.as<float>(), count, chunk);
      fill(*group, memory.as<float>(), count);

      operation->start();
      operation->wait();

      const IndexRange own = slice_of(count, chunk, group->size(), group->rank());
      CHECK(wrong_elements(*group, memory.as<float>(), own) == 0);
    }
  }
}

TEST_CASE("an all-gather brings every rank's part to every rank") {
  for (const auto& placement : test::placements()) {
    const auto group = test::world(placement);
    for (const std::size_t chunk_bytes : {3UL, 8UL, 16384UL}) {
      for (const long chunks : {1L, 2L, 11L}) {
        CAPTURE(placement.name, chunk_bytes, chunks);
        const std::size_t bytes = static_cast<std::size_t>(chunks) * chunk_bytes;
        const Memory memory = group->allocate(bytes);
        const auto expected = [&](std::size_t i) { return std::byte(i * 7 + i / 251); };
        const auto operation = group->make_all_gather(memory.data(), bytes, chunk_bytes);
        const IndexRange part = part_of(chunks, group->size(), group->rank());
        for (auto i = static_cast<std::size_t>(part.begin) * chunk_bytes;
             i < static_cast<std::size_t>(part.end) * chunk_bytes;
             ++i) {
          memory.data()[i] = expected(i);
        }

        operation->start();
        operation->wait();

        std::size_t wrong = 0;
        for (std::size_t i = 0; i < bytes; ++i) {
          wrong += memory.data()[i] == expected(i) ? 0 : 1;
        }
        CHECK(wrong == 0);
      }
    }
  }
}

TEST_CASE("a gather into one copy a host waits until all ranks have left what stood there") {
  for (const auto& placement : test::placements()) {
    const auto group = test::world(placement);
    const long count = 11;
    const Memory memory = group->allocate_shared(count * sizeof(float));
    auto* const data = memory.as<float>();
    const IndexRange own = part_of(count, group->size(), group->rank());
    int round = 0;
    const auto operation =
        group->make_all_gather(data, count * sizeof(float), sizeof(float), [&round, data, own] {
          for (long i = own.begin; i < own.end; ++i) {
            data[i] = static_cast<float>(100 * round + i);
          }
        });
    long wrong = 0;
    for (round = 0; round < 50; ++round) {
      operation->start();
      if (round % 3 == group->rank()) {
        group->barrier();  // some poll long before they wait
      } else {
        operation->wait();
        group->barrier();
      }
      operation->wait();
      for (long i = 0; i < count; ++i) {
        wrong += data[i] == static_cast<float>(100 * round + i) ? 0 : 1;
      }
    }
    CAPTURE(placement.name);
    CHECK(wrong == 0);
    // One rank of a host counts it, and all of them see it.
    const auto& hosts = group->host_of();
    const int host = hosts[static_cast<std::size_t>(group->rank())];
    const auto first = std::find(hosts.begin(), hosts.end(), host) - hosts.begin();
    CHECK(group->takes_shared() == (first == group->rank()));
  }
}

TEST_CASE("operations in flight together keep their results over many starts") {
  constexpr int kOperations = 5;
  constexpr int kRounds = 200;
  for (const auto& placement : test::placements()) {
    CAPTURE(placement.name);
    const auto group = test::world(placement);
    const long count = 1500;
    const Memory memory = group->allocate(std::size_t{kOperations} * 2048 * sizeof(float));
    std::vector<std::unique_ptr<Operation>> operations;
    for (long i = 0; i < kOperations; ++i) {
      operations.push_back(
          group->make_all_reduce(memory.as<float>() + i * 2048, count, Reduction::kOrdered));
    }
    long wrong = 0;

    for (int round = 0; round < kRounds; ++round) {
      for (int i = 0; i < kOperations; ++i) {
        fill(*group, memory.as<float>() + i * 2048L, count, round + i);
        operations[static_cast<std::size_t>(i)]->start();
        group->poll();
      }
      for (int i = kOperations; i-- > 0;) {
        operations[static_cast<std::size_t>(i)]->wait();
        const long probe = (round * 37L + i) % count;
        wrong += wrong_elements(
            *group, memory.as<float>() + i * 2048L, {probe, std::min(count, probe + 3)}, round + i);
      }
    }

    CHECK(wrong == 0);
  }
}

TEST_CASE("a native all-reduce sums to the accuracy of its additions") {
  const auto group = test::world({"one host", {}});
  const long count = 600'000;  // more than one piece
  const Memory memory = group->allocate(count * sizeof(float));
  fill(*group, memory.as<float>(), count);
  const auto operation = group->make_all_reduce(memory.as<float>(), count, Reduction::kNative);

  operation->start();
  operation->wait();

  double worst = 0;
  for (long i = 0; i < count; ++i) {
    const double expected = sum_of_elements(group->size(), i);
    worst =
        std::max(worst, std::abs(static_cast<double>(memory.as<float>()[i]) - expected) / expected);
  }
  // Both orders round size - 1 positive additions, each to half a unit in the last place.
  CHECK(worst <= (group->size() - 1) * std::numeric_limits<float>::epsilon());
}

TEST_CASE("one large term does not swallow many small ones") {
  // In bf16 a sum of 256 stays 256 when ones are added; in f32 every term counts.
  const auto group = test::world({"one host", {}});
  const Memory memory = group->allocate(sizeof(float));
  *memory.as<float>() = group->rank() == 0 ? 256.0F : 1.0F;
  const auto operation = group->make_all_reduce(memory.as<float>(), 1, Reduction::kOrdered);

  operation->start();
  operation->wait();

  CHECK(*memory.as<float>() == 256.0F + static_cast<float>(group->size() - 1));
}

TEST_CASE("values are gathered by rank, again and again") {
  for (const auto& placement : test::placements()) {
    CAPTURE(placement.name);
    const auto group = test::world(placement);
    const auto size = static_cast<std::size_t>(group->size());
    for (const std::size_t width : {std::size_t{1}, std::size_t{3}, std::size_t{256}}) {
      std::vector<double> mine(width);
      std::vector<double> all(width * size);
      long wrong = 0;
      for (int round = 0; round < 50; ++round) {
        std::iota(mine.begin(), mine.end(), group->rank() * 1000.0 + round);
        group->all_gather(mine, all);
        for (std::size_t i = 0; i < all.size(); ++i) {
          const std::size_t rank = i / width;
          const double expected =
              static_cast<double>(rank) * 1000.0 + round + static_cast<double>(i % width);
          wrong += all[i] == expected ? 0 : 1;
        }
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("broadcasts, barriers and texts reach all ranks") {
  for (const auto& placement : test::placements()) {
    CAPTURE(placement.name);
    const auto group = test::world(placement);
    const int root = group->size() - 1;
    std::vector<int> numbers(1000, group->rank());

    group->broadcast(numbers.data(), numbers.size() * sizeof(int), root);
    group->barrier();
    const auto texts =
        group->all_gather_text(std::string(static_cast<std::size_t>(group->rank()), 'x'));

    CHECK(numbers == std::vector<int>(1000, root));
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
      CHECK(texts[rank] == std::string(rank, 'x'));
    }
  }
}

TEST_CASE("a group is split into groups that keep the order of ranks") {
  for (const auto& placement : test::placements()) {
    CAPTURE(placement.name);
    const auto group = test::world(placement);
    std::vector<int> color_of;
    for (int rank = 0; rank < group->size(); ++rank) {
      color_of.push_back(rank % 2);
    }

    const auto part = group->split(color_of);

    CHECK(part->rank() == group->rank() / 2);
    CHECK(part->size() == (group->size() + 1 - group->rank() % 2) / 2);
    const Memory memory = part->allocate(64);
    *memory.as<float>() = static_cast<float>(group->rank());
    const auto operation = part->make_all_reduce(memory.as<float>(), 1, Reduction::kOrdered);
    operation->start();
    operation->wait();
    float expected = 0;
    for (int rank = group->rank() % 2; rank < group->size(); rank += 2) {
      expected += static_cast<float>(rank);
    }
    CHECK(*memory.as<float>() == expected);
  }
}

TEST_CASE("bytes are counted by the closed forms when an operation starts") {
  for (const auto& placement : test::placements()) {
    CAPTURE(placement.name);
    const auto group = test::world(placement);
    const HostMap hosts(hosts_of(*group));
    const long count = 10 * kChunkElements;
    const Memory memory = group->allocate(count * sizeof(float));
    const auto sum = group->make_all_reduce(memory.as<float>(), count, Reduction::kOrdered);
    const double before = group->bytes_sent();

    for (int round = 0; round < 3; ++round) {
      sum->start();
      sum->wait();
    }

    const double items =
        items_sent_by(hosts, Exchange::kAllReduce, group->rank(), count, kAllReduceChunk);
    CHECK(group->bytes_sent() - before == 3 * items * sizeof(float));
  }
}

TEST_CASE("the dry communicator takes the memory that the real one takes") {
  for (const auto& placement : test::placements()) {
    CAPTURE(placement.name);
    const auto group = test::world(placement);
    DryCommunicator dry(group->rank(), hosts_of(*group));
    const auto allocated = [](Communicator& communicator) {
      const std::size_t before = communicator.allocated_bytes();
      const long count = 10 * kChunkElements;
      const Memory memory = communicator.allocate(count * sizeof(float));
      auto* data = memory.as<float>();
      const auto sum = communicator.make_all_reduce(data, count, Reduction::kOrdered);
      const auto native = communicator.make_all_reduce(data, count, Reduction::kNative);
      const auto scatter = communicator.make_reduce_scatter(data, count);
      const auto gather = communicator.make_all_gather(data, count * sizeof(float), sizeof(float));
      return communicator.allocated_bytes() - before;
    };

    CHECK(allocated(*group) == allocated(dry));
  }
}

}  // namespace lockstep
