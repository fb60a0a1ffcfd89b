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
  // Two kv heads, three layers.
  CHECK_THAT(test::request_error_of([&] { choose_mesh(degrees(1, 4), model, 4); }),
             Catch::Contains("parallel.tensor = 4") && Catch::Contains("2 x 1 x 2") &&
                 !Catch::Contains("1 x 1 x 4"));
  CHECK_THAT(test::request_error_of([&] { choose_mesh(degrees(4, 1), model, 4); }),
             Catch::Contains("parallel.pipeline = 4") && !Catch::Contains("1 x 4 x 1"));
  ParallelConfig sequence = degrees(1, 2);
  sequence.sequence = true;
  ModelConfig shortest = model;
  shortest.seq_length = 1;
  CHECK_THAT(test::request_error_of([&] { choose_mesh(sequence, shortest, 2); }),
             Catch::Contains("split sequence"));
}

}  // namespace lockstep
