// Sends and receives between two ranks: persistent MPI requests, one a piece of the message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/mpi/group.h"

namespace lockstep {

/// What the two ends have in common. Not one of the group's calls: other ranks know nothing of it.
class MessageOperation : public Operation, public Advancing {
 public:
  /// Started requests that are not complete are cancelled; a rank that leaves one behind is about
  /// to end the job.
  ~MessageOperation() override;
  MessageOperation(const MessageOperation&) = delete;
  MessageOperation& operator=(const MessageOperation&) = delete;

  void start() final;
  bool poll() final;
  void wait() final;
  bool advance() final;

 protected:
  /// `name` is for errors, `wait_name` (a literal) for traces. Derived constructors initialise `request(i)` for every piece.
  MessageOperation(
      MpiGroup& group, std::string name, const char* wait_name, std::size_t bytes, int peer);

  /// Called by start; when piece `piece` is complete; and when all are.
  virtual void started() {}
  virtual void finished() {}
  virtual void completed(std::size_t piece, const MPI_Status& status);

  [[nodiscard]] MpiGroup& group() const { return group_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] std::size_t num_pieces() const { return requests_.size(); }
  [[nodiscard]] MPI_Request& request(std::size_t piece) { return requests_[piece]; }
  /// Where a piece begins in the message, and its length.
  [[nodiscard]] std::size_t begin_of(std::size_t piece) const;
  [[nodiscard]] int bytes_of(std::size_t piece) const;

 private:
  MpiGroup& group_;
  std::string name_;
  const char* wait_name_;
  std::size_t bytes_;
  int peer_;
  std::size_t piece_bytes_;
  std::vector<MPI_Request> requests_;
  std::size_t num_complete_ = 0;  ///< pieces of the current start, in order
  bool running_ = false;
};

class SendOperation final : public MessageOperation {
 public:
  SendOperation(MpiGroup& group, const void* data, std::size_t bytes, int to, int tag);

 private:
  void started() override;
  void finished() override;

  std::int64_t started_ns_ = 0;  ///< 0: not traced
};

class ReceiveOperation final : public MessageOperation {
 public:
  ReceiveOperation(MpiGroup& group, void* data, std::size_t bytes, int from, int tag);

 private:
  /// Throws Error when less came than was expected; more is an error of MPI_Test.
  void completed(std::size_t piece, const MPI_Status& status) override;
};

}  // namespace lockstep
