// What communicators count: closed forms, and the same numbers dry and real.
#include <array>
#include <string>

#include "comm/dry/dry_communicator.h"
#include "comm/exchange.h"
#include "comm_support.h"
#include "support/catch.h"

namespace lockstep {
namespace {

std::vector<long> hosts_of(const Communicator& group) {
  return {group.host_of().begin(), group.host_of().end()};
}

constexpr long kCount = 9 * kChunkElements;
constexpr long kSmallChunk = 64;  // 9 * 64 of them: divisible by 1 to 4 ranks
constexpr std::size_t kMessageBytes = 1000;

/// Every kind of call, a different number of times each. Message data never matters.
void call_everything(Communicator& group) {
  const Memory memory = group.allocate(kCount * sizeof(float));
  auto* data = memory.as<float>();
  const Memory shared = group.allocate_shared(kCount * sizeof(float));
  std::array<std::unique_ptr<Operation>, 6> operations{
      group.make_all_reduce(data, kCount, Reduction::kOrdered),
      group.make_all_reduce(data, kCount, Reduction::kNative),
      group.make_reduce_scatter(data, kCount),
      group.make_reduce_scatter(data, kCount, kSmallChunk),
      group.make_all_gather(data, kCount * sizeof(float), kSmallChunk * sizeof(float)),
      group.make_all_gather(shared.data(), kCount * sizeof(float), kSmallChunk * sizeof(float))};
  for (std::size_t i = 0; i < operations.size(); ++i) {
    for (std::size_t start = 0; start <= i; ++start) {
      operations.at(i)->start();
      operations.at(i)->wait();
    }
  }
  const std::array<double, 3> mine{};
  std::vector<double> all(3 * static_cast<std::size_t>(group.size()));
  for (int i = 0; i < 6; ++i) {
    group.all_gather(mine, all);
  }
  std::array<char, 100> text{};
  for (int i = 0; i < 7; ++i) {
    group.broadcast(text.data(), text.size(), 0);
  }
  if (group.size() > 1) {
    std::array<char, kMessageBytes> sent{};
    std::array<char, kMessageBytes> received{};
    const int next = (group.rank() + 1) % group.size();
    const int previous = (group.rank() + group.size() - 1) % group.size();
    const auto send = group.make_send(sent.data(), sent.size(), next, 1);
    const auto receive = group.make_receive(received.data(), received.size(), previous, 1);
    for (int i = 0; i < 8; ++i) {
      send->start();
      receive->start();
      send->wait();
      receive->wait();
    }
  }
  group.barrier();
  group.all_gather_text("text");
}

struct Expected {
  std::string kind;
  long calls;
  double bytes;
};

/// On one host, and on hosts of one rank each; slices of the scatter by whole chunks are not equal.
std::vector<Expected> closed_forms(int rank, int size, bool one_host) {
  const double others = size - 1;
  const double bytes = kCount * sizeof(float);
  const double once = bytes * others / size;  // 2 of them: reduce, then gather
  const double shared = one_host ? (size > 1 ? bytes / size : 0) : once;
  const auto own_chunks = static_cast<double>(part_of(9, size, rank).size());
  const double own = own_chunks * kChunkElements * sizeof(float);
  return {{"all_reduce", 1, 2 * once},
          {"native_all_reduce", 2, 2 * 2 * once},
          {"reduce_scatter", 3 + 4, 3 * (bytes - own) + 4 * once},
          {"all_gather", 5 + 6, 5 * once + 6 * shared},
          {"values", 6, 6 * 24 * others},
          {"broadcast", 7, rank == 0 ? 7 * 100 * others : 0},
          {"send", size > 1 ? 8 : 0, size > 1 ? 8.0 * kMessageBytes : 0}};
}

}  // namespace

TEST_CASE("calls and bytes are counted by kind, by the closed forms") {
  for (const auto& placement : test::placements()) {
    if (placement.name != "one host" && placement.name != "a host each") {
      continue;
    }
    CAPTURE(placement.name);
    const auto group = test::world(placement);

    call_everything(*group);

    const auto expected = closed_forms(group->rank(), group->size(), placement.name == "one host");
    const auto traffic = group->traffic();
    REQUIRE(traffic.size() == expected.size());
    double sum = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      CAPTURE(expected[i].kind);
      CHECK(traffic[i].kind == expected[i].kind);
      CHECK(traffic[i].calls == expected[i].calls);
      CHECK(traffic[i].bytes == Approx(expected[i].bytes).epsilon(1e-12));
      sum += traffic[i].bytes;
    }
    CHECK(group->bytes_sent() == sum);
  }
}

TEST_CASE("the dry communicator counts exactly what the real one counts") {
  for (const auto& placement : test::placements()) {
    CAPTURE(placement.name);
    const auto group = test::world(placement);
    DryCommunicator dry(group->rank(), hosts_of(*group));

    call_everything(*group);
    call_everything(dry);

    const auto real_counts = group->traffic();
    const auto dry_counts = dry.traffic();
    REQUIRE(real_counts.size() == dry_counts.size());
    for (std::size_t i = 0; i < real_counts.size(); ++i) {
      CAPTURE(real_counts[i].kind);
      CHECK(std::string(dry_counts[i].kind) == real_counts[i].kind);
      CHECK(dry_counts[i].calls == real_counts[i].calls);
      CHECK(dry_counts[i].bytes == real_counts[i].bytes);
    }
    CHECK(dry.bytes_sent() == group->bytes_sent());
  }
}

}  // namespace lockstep
