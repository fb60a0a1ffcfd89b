// The ranks of a run as a mesh, data x pipeline x tensor, and the groups along its axes.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace lockstep {

/// Degrees of the three axes.
struct MeshShape {
  int data = 1;
  int pipeline = 1;
  int tensor = 1;

  [[nodiscard]] int num_ranks() const { return data * pipeline * tensor; }
};

/// Coordinates of a rank.
struct MeshPosition {
  int data = 0;
  int pipeline = 0;
  int tensor = 0;
};

/// Rank (data * pipelines + pipeline) * tensors + tensor: neighbouring ranks, which launchers place on
/// one host, share a tensor group, which talks most.
MeshPosition position_of(const MeshShape& shape, int rank);
int rank_at(const MeshShape& shape, const MeshPosition& position);

/// The groups of a rank: those that differ from it along one axis only.
class Mesh {
 public:
  /// Splits `world`, whose size is that of the shape and which outlives this. Collective.
  Mesh(const MeshShape& shape, Communicator& world);

  [[nodiscard]] const MeshShape& shape() const { return shape_; }
  [[nodiscard]] const MeshPosition& position() const { return position_; }
  [[nodiscard]] Communicator& world() const { return *world_; }
  /// Ranks with the same share of the model and other samples, by data coordinate.
  [[nodiscard]] Communicator& data() const { return *data_; }
  /// Ranks with other blocks of the same layers and the same samples, by tensor coordinate.
  [[nodiscard]] Communicator& tensor() const { return *tensor_; }
  /// Ranks with other layers and the same samples, by stage.
  [[nodiscard]] Communicator& pipeline() const { return *pipeline_; }

  /// Another group of the ranks of data(), whose operations are ordered among themselves only: gathers
  /// weights. Collective over the world; once.
  Communicator& add_weights_group();
  /// Null without one.
  [[nodiscard]] const Communicator* weights() const { return weights_; }

  /// Groups of `ranks` neighbours in tensor(), a divisor of its size: they share kv heads. Collective over
  /// the world; once.
  Communicator& add_sharing_group(int ranks);
  /// Null without one. It may be tensor() itself.
  [[nodiscard]] const Communicator* sharing() const { return sharing_; }

  /// Bytes taken through the groups, the world's included.
  [[nodiscard]] std::size_t allocated_bytes() const;

  /// "  rank 3: host 1, data 1, pipeline 0, tensor 1", a line each.
  [[nodiscard]] std::vector<std::string> lines() const;

 private:
  Communicator* group_along(std::span<const int> color_of, int degree);

  MeshShape shape_;
  MeshPosition position_;
  Communicator* world_;
  std::vector<std::unique_ptr<Communicator>> owned_;
  Communicator* data_;
  Communicator* tensor_;
  Communicator* pipeline_;
  Communicator* weights_ = nullptr;
  Communicator* sharing_ = nullptr;
};

}  // namespace lockstep
