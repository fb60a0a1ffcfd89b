#include "parallel/mesh.h"

#include "comm/dry/dry_communicator.h"
#include "parallel/model_parts.h"
#include "support/catch.h"
#include "support/error_text.h"

namespace lockstep {
namespace {

ModelConfig model_with(long heads, long kv_heads, long layers) {
  ModelConfig model;
  model.architecture = "llama";
  model.hidden_size = 16 * heads;
  model.num_heads = heads;
  model.num_kv_heads = kv_heads;
  model.num_layers = layers;
  model.vocab_size = 101;
  return model;
}

ParallelConfig degrees(long pipeline, long tensor, long data = 0) {
  ParallelConfig parallel;
  parallel.pipeline = pipeline;
  parallel.tensor = tensor;
  parallel.data = data;
  return parallel;
}

}  // namespace

TEST_CASE("tensor ranks are neighbours, then stages, then data ranks") {
  const MeshShape shape{2, 3, 4};
  for (int rank = 0; rank < shape.num_ranks(); ++rank) {
    CHECK(rank_at(shape, position_of(shape, rank)) == rank);
  }
  CHECK(position_of(shape, 1).tensor == 1);
  CHECK(position_of(shape, 4).pipeline == 1);
  CHECK(position_of(shape, 12).data == 1);
}

TEST_CASE("the groups of a rank have the ranks along one axis, in order") {
  const MeshShape shape{2, 3, 4};
  for (int rank = 0; rank < shape.num_ranks(); ++rank) {
    DryCommunicator world(rank, std::vector<long>(24, 0));
    const Mesh mesh(shape, world);
    CHECK(mesh.data().size() == 2);
    CHECK(mesh.data().rank() == mesh.position().data);
    CHECK(mesh.pipeline().size() == 3);
    CHECK(mesh.pipeline().rank() == mesh.position().pipeline);
    CHECK(mesh.tensor().size() == 4);
    CHECK(mesh.tensor().rank() == mesh.position().tensor);
  }
}

TEST_CASE("data is what is left") {
  const MeshShape mesh = choose_mesh(degrees(2, 2), model_with(4, 2, 4), 8);
  CHECK(mesh.data == 2);
  CHECK(mesh.num_ranks() == 8);
}

TEST_CASE("meshes that are impossible are refused with those that are possible") {
  const ModelConfig model = model_with(6, 2, 3);
  const std::string count =
      test::request_error_of([&] { choose_mesh(degrees(1, 2, 3), model, 8); });
  CHECK_THAT(count,
             Catch::Contains("parallel.data = 3") && Catch::Contains("8 ranks") &&
                 Catch::Contains("4 x 1 x 2") && Catch::Contains("2 x 2 x 2"));
  // Two kv heads for six query heads, three layers.
  CHECK_THAT(test::request_error_of([&] { choose_mesh(degrees(1, 3), model, 3); }),
             Catch::Contains("parallel.tensor = 3") && Catch::Contains("3 x 1 x 1") &&
                 !Catch::Contains("1 x 1 x 3"));
  CHECK_THAT(test::request_error_of([&] { choose_mesh(degrees(1, 8), model, 8); }),
             Catch::Contains("parallel.tensor = 8") && Catch::Contains("2 x 1 x 4") &&
                 !Catch::Contains("1 x 1 x 8"));
  CHECK_THAT(test::request_error_of([&] { choose_mesh(degrees(4, 1), model, 4); }),
             Catch::Contains("parallel.pipeline = 4") && !Catch::Contains("1 x 4 x 1"));
  ParallelConfig sequence = degrees(1, 2);
  sequence.sequence = true;
  ModelConfig shortest = model;
  shortest.seq_length = 1;
  CHECK_THAT(test::request_error_of([&] { choose_mesh(sequence, shortest, 2); }),
             Catch::Contains("split sequence"));
}

TEST_CASE("tensor ranks may be a multiple of the kv heads while all have query heads") {
  struct Case {
    long heads;
    long kv_heads;
    int tensor;
    int blocks;
    bool possible;
  };
  for (const auto& [heads, kv_heads, tensor, blocks, possible] :
       {Case{6, 2, 4, 4, true},       // 2 + 1 query heads a kv head
        Case{6, 2, 6, 6, true},       // 1 + 1 + 1
        Case{6, 2, 8, 8, false},      // 1 + 1 + 1 + 0
        Case{6, 2, 3, 3, false},      // 1 + 1 + 0 kv heads
        Case{4, 1, 4, 8, true},       // all share one
        Case{6, 6, 12, 12, false},    // no query head to spare
        Case{8, 8, 3, 3, true},       // 3 + 3 + 2 kv heads, padded
        Case{8, 8, 3, 24, false}}) {  // 3 blocks a kv head, 8 a rank: parts of heads
    CAPTURE(heads, kv_heads, tensor, blocks);
    CHECK(can_split(model_with(heads, kv_heads, 1), tensor, blocks) == possible);
  }
}

TEST_CASE("ranks that share a kv head are neighbours in the tensor group") {
  const MeshShape shape{2, 1, 4};
  for (int rank = 0; rank < shape.num_ranks(); ++rank) {
    DryCommunicator world(rank, std::vector<long>(8, 0));
    Mesh mesh(shape, world);
    CHECK(mesh.sharing() == nullptr);
    const Communicator& group = mesh.add_sharing_group(2);
    CHECK(group.size() == 2);
    CHECK(group.rank() == rank % 2);
    Mesh wide(shape, world);
    CHECK(&wide.add_sharing_group(4) == &wide.tensor());
  }
}

}  // namespace lockstep
