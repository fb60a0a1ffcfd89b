#include "parallel/mesh.h"

#include "base/error.h"

namespace lockstep {
namespace {

// One number for all ranks that differ along one axis only.
template <typename Coordinate>
std::vector<int> colors_along(const MeshShape& shape, Coordinate drop) {
  std::vector<int> colors;
  for (int rank = 0; rank < shape.num_ranks(); ++rank) {
    MeshPosition position = position_of(shape, rank);
    position.*drop = 0;
    colors.push_back(rank_at(shape, position));
  }
  return colors;
}

}  // namespace

MeshPosition position_of(const MeshShape& shape, int rank) {
  return {.data = rank / (shape.tensor * shape.pipeline),
          .pipeline = rank / shape.tensor % shape.pipeline,
          .tensor = rank % shape.tensor};
}

int rank_at(const MeshShape& shape, const MeshPosition& position) {
  return (position.data * shape.pipeline + position.pipeline) * shape.tensor + position.tensor;
}

Mesh::Mesh(const MeshShape& shape, Communicator& world)
    : shape_(shape),
      position_(position_of(shape, world.rank())),
      world_(&world),
      data_(group_along(colors_along(shape, &MeshPosition::data), shape.data)),
      tensor_(group_along(colors_along(shape, &MeshPosition::tensor), shape.tensor)),
      pipeline_(group_along(colors_along(shape, &MeshPosition::pipeline), shape.pipeline)) {
  LOCKSTEP_CHECK(world.size() == shape.num_ranks());
  world.set_name("world");  // before the axes: the world may be one of them
  data_->set_name("data");
  pipeline_->set_name("pipeline");
  tensor_->set_name("tensor");
  data_->connect(Communicator::Connections::kCollectives);
  tensor_->connect(Communicator::Connections::kCollectives);
  pipeline_->connect(Communicator::Connections::kNeighbours);
}

Communicator* Mesh::group_along(std::span<const int> color_of, int degree) {
  if (degree == world_->size()) {
    return world_;
  }
  owned_.push_back(world_->split(color_of));
  return owned_.back().get();
}

Communicator& Mesh::add_weights_group() {
  LOCKSTEP_CHECK(weights_ == nullptr);
  owned_.push_back(world_->split(colors_along(shape_, &MeshPosition::data)));
  weights_ = owned_.back().get();
  weights_->set_name("weights");
  weights_->connect(Communicator::Connections::kCollectives);
  return *weights_;
}

Communicator& Mesh::add_sharing_group(int ranks) {
  LOCKSTEP_CHECK(sharing_ == nullptr && ranks > 1 && shape_.tensor % ranks == 0);
  if (ranks == shape_.tensor) {
    sharing_ = tensor_;
    return *sharing_;
  }
  std::vector<int> colors;  // neighbours in tensor() are neighbours in the world
  colors.reserve(static_cast<std::size_t>(shape_.num_ranks()));
  for (int rank = 0; rank < shape_.num_ranks(); ++rank) {
    colors.push_back(rank / ranks);
  }
  owned_.push_back(world_->split(colors));
  sharing_ = owned_.back().get();
  sharing_->set_name("tensor");
  sharing_->connect(Communicator::Connections::kCollectives);
  return *sharing_;
}

std::size_t Mesh::allocated_bytes() const {
  std::size_t bytes = world_->allocated_bytes();
  for (const auto& group : owned_) {
    bytes += group->allocated_bytes();
  }
  return bytes;
}

std::vector<std::string> Mesh::lines() const {
  std::vector<std::string> lines;
  for (int rank = 0; rank < world_->size(); ++rank) {
    const MeshPosition at = position_of(shape_, rank);
    lines.push_back(fmt::format("  rank {}: host {}, data {}, pipeline {}, tensor {}",
                                rank,
                                world_->host_of()[static_cast<std::size_t>(rank)],
                                at.data,
                                at.pipeline,
                                at.tensor));
  }
  return lines;
}

}  // namespace lockstep
