// Sends and receives between two ranks.
#include <array>
#include <chrono>
#include <numeric>
#include <thread>

#include "comm_support.h"
#include "support/catch.h"

namespace lockstep {
namespace {

using test::error_of;
using test::has;

/// The world, with messages cut into pieces of `piece_bytes`.
std::unique_ptr<Communicator> world_in_pieces(const test::Placement& placement,
                                              std::size_t piece_bytes) {
  int argc = 0;
  char** argv = nullptr;
  const MpiRuntime runtime(argc, argv);
  return make_world(runtime, {nullptr, 30, placement.host_of, piece_bytes});
}

/// Number i of message `number` from `rank`.
int number_of(int rank, int message, int i) {
  return rank * 1'000'000 + message * 10'000 + i;
}

void fill(std::vector<int>& data, int rank, int message) {
  for (std::size_t i = 0; i < data.size(); ++i) {
    data[i] = number_of(rank, message, static_cast<int>(i));
  }
}

long wrong_numbers(const std::vector<int>& data, int rank, int message) {
  long wrong = 0;
  for (std::size_t i = 0; i < data.size(); ++i) {
    wrong += data[i] == number_of(rank, message, static_cast<int>(i)) ? 0 : 1;
  }
  return wrong;
}

}  // namespace

TEST_CASE("messages go round a ring in both directions at once, again and again") {
  for (const auto& placement : test::placements()) {
    // The last length is no eager message of any transport.
    for (const std::size_t length : {0UL, 1UL, 1000UL, 100'000UL}) {
      const auto group = test::world(placement);
      if (group->size() == 1) {
        continue;
      }
      CAPTURE(placement.name, length);
      const int next = (group->rank() + 1) % group->size();
      const int previous = (group->rank() + group->size() - 1) % group->size();
      std::vector<int> up(length);
      std::vector<int> down(length);
      std::vector<int> from_previous(length);
      std::vector<int> from_next(length);
      const std::size_t bytes = length * sizeof(int);
      // With two ranks `next` and `previous` are one: the tags keep the directions apart.
      const auto send_up = group->make_send(up.data(), bytes, next, 0);
      const auto send_down = group->make_send(down.data(), bytes, previous, Communicator::kMaxTag);
      const auto receive_up = group->make_receive(from_previous.data(), bytes, previous, 0);
      const auto receive_down =
          group->make_receive(from_next.data(), bytes, next, Communicator::kMaxTag);
      long wrong = 0;

      for (int round = 0; round < 5; ++round) {
        fill(up, group->rank(), round);
        fill(down, group->rank(), round + 50);
        for (Operation* operation :
             {send_up.get(), send_down.get(), receive_down.get(), receive_up.get()}) {
          operation->start();
        }
        for (Operation* operation :
             {send_up.get(), receive_up.get(), send_down.get(), receive_down.get()}) {
          operation->wait();
        }
        wrong += wrong_numbers(from_previous, previous, round);
        wrong += wrong_numbers(from_next, next, round + 50);
      }

      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("messages of one tag arrive in the order of their starts, in pieces or not") {
  for (const auto& placement : test::placements()) {
    for (const std::size_t piece_bytes : {4096UL, 5000UL, 1UL << 20U}) {  // 3 pieces, 2, 1
      const auto group = world_in_pieces(placement, piece_bytes);
      if (group->size() == 1) {
        continue;
      }
      CAPTURE(placement.name, piece_bytes);
      const std::size_t length = 2500;
      const std::size_t bytes = length * sizeof(int);
      std::vector<int> first(length);
      std::vector<int> second(length);
      const int rank = group->rank();
      const int last = group->size() - 1;

      if (rank == 0) {
        fill(first, 0, 1);
        fill(second, 0, 2);
        const auto send_first = group->make_send(first.data(), bytes, last, 7);
        const auto send_second = group->make_send(second.data(), bytes, last, 7);
        send_first->start();
        send_second->start();
        send_second->wait();
        send_first->wait();
      } else if (rank == last) {
        const auto receive_second = group->make_receive(second.data(), bytes, 0, 7);
        const auto receive_first = group->make_receive(first.data(), bytes, 0, 7);
        receive_first->start();
        receive_second->start();
        receive_second->wait();
        receive_first->wait();
        CHECK(wrong_numbers(first, 0, 1) == 0);
        CHECK(wrong_numbers(second, 0, 2) == 0);
      }
      group->barrier();
    }
  }
}

TEST_CASE("messages pass while a reduction is in flight and do not count as its calls") {
  for (const auto& placement : test::placements()) {
    const auto group = test::world(placement);
    if (group->size() == 1) {
      continue;
    }
    CAPTURE(placement.name);
    const int rank = group->rank();
    const int last = group->size() - 1;
    const long count = 100'000;
    const Memory memory = group->allocate(count * sizeof(float));
    const auto sum = group->make_all_reduce(memory.as<float>(), count, Reduction::kOrdered);
    std::vector<int> there(50'000);
    std::vector<int> back(50'000);
    const std::size_t bytes = there.size() * sizeof(int);

    for (int round = 0; round < 20; ++round) {
      for (long i = 0; i < count; ++i) {
        memory.as<float>()[i] = test::element(rank, i, round);
      }
      sum->start();
      // Only two of the ranks talk, one sends first, the other receives first, and both need the
      // sum to make progress meanwhile.
      if (rank == 0) {
        fill(there, 0, round);
        const auto send = group->make_send(there.data(), bytes, last, round);
        const auto receive = group->make_receive(back.data(), bytes, last, round);
        send->start();
        send->wait();
        receive->start();
        receive->wait();
        CHECK(wrong_numbers(back, last, round) == 0);
      } else if (rank == last) {
        const auto receive = group->make_receive(there.data(), bytes, 0, round);
        const auto send = group->make_send(back.data(), bytes, 0, round);
        receive->start();
        receive->wait();
        CHECK(wrong_numbers(there, 0, round) == 0);
        fill(back, last, round);
        sum->wait();
        send->start();
        send->wait();
      }
      sum->wait();
      long wrong = 0;
      for (long i = round; i < count; i += 997) {
        wrong += memory.as<float>()[i] == test::sum_of_elements(group->size(), i, round) ? 0 : 1;
      }
      CHECK(wrong == 0);
      group->barrier();
    }
  }
}

TEST_CASE("the time limit names the message and the rank that does not send it") {
  for (const auto& placement : test::placements()) {
    const double limit = 0.5;
    const auto group = test::world(placement);
    if (group->size() == 1) {
      continue;
    }
    CAPTURE(placement.name);
    const int silent = group->size() - 1;
    std::array<int, 100> data{};
    group->barrier();
    group->set_time_limit(limit);

    if (group->rank() == silent) {
      std::this_thread::sleep_for(std::chrono::duration<double>(2 * limit));
    } else {
      const auto receive = group->make_receive(data.data(), sizeof data, silent, 5);
      receive->start();
      const std::string error = error_of([&] { receive->wait(); });
      CAPTURE(error);
      CHECK(has(error,
                fmt::format("receive of 400 bytes from rank {} with tag 5: waited 0.", silent)));
      CHECK(has(error, fmt::format("missing: rank {} (host ", silent)));
      CHECK((has(error, "last seen in barrier") || placement.name != "one host"));
    }
  }
}

TEST_CASE("the time limit names the message and the rank that does not receive it") {
  const auto group = test::world({"one host", {}});
  if (group->size() == 1) {
    return;
  }
  const double limit = 0.5;
  const int deaf = group->size() - 1;
  // Longer than anything a transport buffers.
  const std::vector<std::byte> data(std::size_t{8} << 20U);
  group->set_time_limit(limit);

  if (group->rank() == deaf) {
    std::this_thread::sleep_for(std::chrono::duration<double>(2 * limit));
  } else {
    const auto send = group->make_send(data.data(), data.size(), deaf, 0);
    send->start();
    const std::string error = error_of([&] { send->wait(); });
    CAPTURE(error);
    CHECK(has(error, fmt::format("send of 8388608 bytes to rank {} with tag 0: waited", deaf)));
    CHECK(has(error, fmt::format("missing: rank {} (host ", deaf)));
  }
}

TEST_CASE("a message of another size than expected is an error at the receiver") {
  const std::array<int, 30> sent{};
  std::array<int, 30> received{};
  struct Sizes {
    std::size_t sent;
    std::size_t expected;
    std::string error;
  };
  int tag = 0;
  for (const Sizes& sizes :
       {Sizes{40, 80, "receive of 80 bytes from rank 0 with tag 0: only 40"},
        Sizes{80, 40, "receive of 40 bytes from rank 0 with tag 1: a longer"}}) {
    const auto group = test::world({"one host", {}});
    if (group->size() == 1) {
      return;
    }
    if (group->rank() == 0) {
      const auto send = group->make_send(sent.data(), sizes.sent, 1, tag);
      send->start();
      send->wait();
    } else if (group->rank() == 1) {
      const auto receive = group->make_receive(received.data(), sizes.expected, 0, tag);
      receive->start();
      const std::string error = error_of([&] { receive->wait(); });
      CAPTURE(error);
      CHECK(has(error, sizes.error));
    }
    ++tag;
  }
}

TEST_CASE("a message needs another rank of the group and a tag that MPI knows") {
  const auto group = test::world({"one host", {}});
  int data = 0;
  const int rank = group->rank();
  const int other = rank == 0 ? 1 : 0;
  const auto error_of_send = [&](int to, int tag) {
    return error_of([&] { group->make_send(&data, sizeof data, to, tag); });
  };
  const auto error_of_receive = [&](int from, int tag) {
    return error_of([&] { group->make_receive(&data, sizeof data, from, tag); });
  };

  if (group->size() == 1) {
    CHECK(has(error_of_send(1, 0), "a group of one rank"));
    CHECK(has(error_of_receive(0, 0), "a group of one rank"));
    return;
  }
  CHECK(has(error_of_send(rank, 0), "expected another rank"));
  CHECK(has(error_of_receive(group->size(), 0), "expected another rank"));
  CHECK(has(error_of_send(-1, 0), "expected another rank"));
  CHECK(has(error_of_receive(other, -1), "tag -1 is outside"));
  CHECK(has(error_of_send(other, Communicator::kMaxTag + 1), "tag 32768 is outside"));
  CHECK(error_of_send(other, 0).empty());
}

}  // namespace lockstep
