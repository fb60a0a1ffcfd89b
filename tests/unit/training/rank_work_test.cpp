#include "training/rank_work.h"

#include <array>

#include "comm/dry/dry_communicator.h"
#include "comm/local/local_communicator.h"
#include "device/dry/dry_queue.h"
#include "kernels/matmul.h"
#include "support/catch.h"

namespace lockstep {
namespace {

constexpr long kSize = 8;
constexpr double kProduct = 2 * kSize * kSize * kSize;

void multiply(Queue& queue) {
  const Memory memory = queue.allocate(3 * kSize * kSize * sizeof(float));
  const Matrix matrix(memory.data(), DType::kF32, kSize, kSize);
  launch(queue, MatMul{.a = matrix, .b = matrix, .c = matrix});
}

/// One number of every rank, and a reduction over the world.
void communicate(Communicator& group, Operation& reduction) {
  std::vector<double> all(static_cast<std::size_t>(group.size()));
  group.all_gather(std::array<double, 1>{}, all);
  reduction.start();
  reduction.wait();
}

std::string text_of(const MeshShape& shape) {
  DryCommunicator world(0, std::vector<long>(static_cast<std::size_t>(shape.num_ranks())));
  const DryQueue queue;
  const Mesh mesh(shape, world);
  const Memory memory = world.allocate(8192);
  const auto reduction = world.make_all_reduce(memory.as<float>(), 2048, Reduction::kOrdered);
  WorkMeter meter(mesh, queue);
  meter.resume();

  communicate(world, *reduction);

  return meter.total().text();
}

}  // namespace

TEST_CASE("a meter leaves out what happens in a pause and before it starts") {
  LocalCommunicator world;
  DryQueue queue;
  const Mesh mesh({}, world);
  WorkMeter meter(mesh, queue);
  multiply(queue);
  CHECK(meter.total().operations == 0);

  meter.resume();
  multiply(queue);
  {
    const WorkPause pause(meter);
    multiply(queue);
    CHECK(meter.total().operations == kProduct);
  }
  multiply(queue);

  CHECK(meter.total().operations == 2 * kProduct);
  CHECK(queue.operations() == 4 * kProduct);
}

TEST_CASE("an axis that is the world has its operations, the world the numbers of the step") {
  CHECK(text_of({.data = 4}) ==
        "data: all_reduce 1 calls, 12288 bytes; world: values 1 calls, 24 bytes");
  CHECK(text_of({.pipeline = 4}) ==
        "pipeline: all_reduce 1 calls, 12288 bytes; world: values 1 calls, 24 bytes");
  CHECK(text_of({.data = 2, .tensor = 2}) ==
        "world: all_reduce 1 calls, 12288 bytes, values 1 calls, 24 bytes");
}

TEST_CASE("a rank alone has no groups") {
  CHECK(text_of({}).empty());
}

}  // namespace lockstep
