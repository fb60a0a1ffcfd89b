#include "emulated_device/nccl_transfer.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "emulated_device/access_checks.h"
#include "emulated_device/fault.h"
#include "emulated_device/streams.h"

namespace lockstep::emulated {
namespace {

const char* name_of(Collective kind) {
  static constexpr const char* kNames[] = {"ncclSend",
                                           "ncclRecv",
                                           "ncclAllReduce",
                                           "ncclReduce",
                                           "ncclReduceScatter",
                                           "ncclAllGather",
                                           "ncclBroadcast"};
  return kNames[static_cast<std::size_t>(kind)];
}

// What ranks have to agree about.
struct Terms {
  Collective kind = Collective::kSend;
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t reduction = ncclSum;
  int root = 0;
  std::uint64_t count = 0;

  bool operator==(const Terms&) const = default;
};

std::string describe(const Terms& terms) {
  return fmt::format("{} of {} values of type {}, reduction {}, root {}",
                     name_of(terms.kind),
                     terms.count,
                     static_cast<int>(terms.type),
                     static_cast<int>(terms.reduction),
                     terms.root);
}

Terms terms_of(const NcclCall& call) {
  const bool is_collective = call.kind != Collective::kSend && call.kind != Collective::kReceive;
  const bool reduces = call.kind == Collective::kAllReduce || call.kind == Collective::kReduce ||
                       call.kind == Collective::kReduceScatter;
  const bool has_root = call.kind == Collective::kReduce || call.kind == Collective::kBroadcast;
  Terms terms;
  terms.kind = is_collective ? call.kind : Collective::kSend;
  terms.type = call.type;
  terms.reduction = reduces ? call.reduction : ncclSum;
  terms.root = has_root ? call.peer : 0;
  terms.count = call.count;
  return terms;
}

Bytes read_bytes(const void* from, std::size_t bytes) {
  check_operation_access(from, bytes, Access::kRead);
  Bytes read(bytes);
  if (bytes > 0) {
    std::memcpy(read.data(), from, bytes);
  }
  return read;
}

void write_bytes(void* to, const std::byte* from, std::size_t bytes) {
  check_operation_access(to, bytes, Access::kWrite);
  if (bytes > 0) {
    std::memcpy(to, from, bytes);
  }
}

bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(a);
  const auto second = reinterpret_cast<std::uintptr_t>(b);
  return first < second + b_bytes && second < first + a_bytes;
}

template <typename T>
T combine(ncclRedOp_t reduction, T a, T b) {
  switch (reduction) {
    case ncclProd:
      return static_cast<T>(a * b);
    case ncclMax:
      return std::max(a, b);
    case ncclMin:
      return std::min(a, b);
    default:
      return static_cast<T>(a + b);
  }
}

template <typename T>
void reduce_values(ncclRedOp_t reduction, const Bytes& part, Bytes& sums) {
  for (std::size_t at = 0; at < sums.size(); at += sizeof(T)) {
    T a;
    T b;
    std::memcpy(&a, sums.data() + at, sizeof a);
    std::memcpy(&b, part.data() + at, sizeof b);
    a = combine(reduction, a, b);
    std::memcpy(sums.data() + at, &a, sizeof a);
  }
}

// Rounded after every addition, as on the way around a ring.
void reduce_bfloat16(ncclRedOp_t reduction, const Bytes& part, Bytes& sums) {
  const auto widen = [](const std::byte* address) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, address, sizeof bits);
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
  };
  for (std::size_t at = 0; at < sums.size(); at += 2) {
    const float sum = combine(reduction, widen(sums.data() + at), widen(part.data() + at));
    const auto bits = std::bit_cast<std::uint32_t>(sum);
    const auto rounded = static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U);
    std::memcpy(sums.data() + at, &rounded, sizeof rounded);
  }
}

void reduce_bytes(ncclDataType_t type, ncclRedOp_t reduction, const Bytes& part, Bytes& sums) {
  switch (type) {
    case ncclFloat32:
      return reduce_values<float>(reduction, part, sums);
    case ncclFloat64:
      return reduce_values<double>(reduction, part, sums);
    case ncclBfloat16:
      return reduce_bfloat16(reduction, part, sums);
    case ncclInt32:
      return reduce_values<std::int32_t>(reduction, part, sums);
    case ncclUint32:
      return reduce_values<std::uint32_t>(reduction, part, sums);
    case ncclInt64:
      return reduce_values<std::int64_t>(reduction, part, sums);
    case ncclUint64:
      return reduce_values<std::uint64_t>(reduction, part, sums);
    case ncclInt8:
      return reduce_values<std::int8_t>(reduction, part, sums);
    case ncclUint8:
      return reduce_values<std::uint8_t>(reduction, part, sums);
    default:
      fault("NCCL: reductions of type {} are not emulated", static_cast<int>(type));
  }
}

/// A call under way.
class Transfer {
 public:
  explicit Transfer(const NcclCall& call) : call_(call), group_(*call.group) {
    const auto peer = static_cast<std::size_t>(call.peer);
    if (call.kind == Collective::kSend) {
      number_ = group_.num_sent[peer]++;
    } else if (call.kind == Collective::kReceive) {
      number_ = group_.num_received[peer]++;
    } else {
      number_ = group_.num_collectives++;
      parts_.resize(static_cast<std::size_t>(group_.size));
    }
    ++group_.num_under_way;
  }
  ~Transfer() { --group_.num_under_way; }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  void start() {
    if (group_.is_aborted) {
      return;
    }
    if (call_.kind == Collective::kSend) {
      send(call_.peer, read_bytes(call_.from, bytes()), MessageKind::kSend);
    } else if (call_.kind != Collective::kReceive) {
      start_collective();
    }
    spoil_result();
  }

  /// True once it is done.
  bool advance() {
    if (group_.is_aborted || call_.kind == Collective::kSend) {
      return true;
    }
    if (call_.kind == Collective::kReceive) {
      Bytes message;
      if (!receive(call_.peer, MessageKind::kSend, message)) {
        return false;
      }
      write_bytes(call_.to, message.data() + sizeof(Terms), bytes());
      return true;
    }
    for (; num_parts_ < group_.size; ++num_parts_) {
      if (!receive(
              num_parts_, MessageKind::kCollective, parts_[static_cast<std::size_t>(num_parts_)])) {
        return false;
      }
    }
    finish_collective();
    return true;
  }

 private:
  [[nodiscard]] std::size_t bytes() const { return call_.count * bytes_of(call_.type); }
  [[nodiscard]] bool is_root() const { return group_.rank == call_.peer; }

  void send(int member, const Bytes& payload, MessageKind kind) {
    const Terms terms = terms_of(call_);
    Bytes message(sizeof terms + payload.size());
    std::memcpy(message.data(), &terms, sizeof terms);
    if (!payload.empty()) {
      std::memcpy(message.data() + sizeof terms, payload.data(), payload.size());
    }
    // Sends are numbered for each pair, so both sides name the pair: the receiver by the source.
    send_message(group_.world_ranks[static_cast<std::size_t>(member)],
                 group_.id,
                 kind,
                 number_,
                 std::move(message));
  }

  bool receive(int member, MessageKind kind, Bytes& message) {
    const int source = group_.world_ranks[static_cast<std::size_t>(member)];
    if (!take_message({group_.id, kind, number_, source}, message)) {
      return false;
    }
    Terms theirs;
    std::memcpy(static_cast<void*>(&theirs), message.data(), sizeof theirs);
    const Terms ours = terms_of(call_);
    if (!(theirs == ours)) {
      fault("NCCL: ranks do not agree about a call: rank {} has {}, rank {} has {}",
            group_.rank,
            call_.kind == Collective::kReceive ? "ncclRecv for " + describe(ours) : describe(ours),
            member,
            describe(theirs));
    }
    return true;
  }

  // Everyone hears from everyone, at least the terms: NCCL may synchronise all of them, so no one may rely on less.
  void start_collective() {
    const auto size = static_cast<std::size_t>(group_.size);
    const bool sends = call_.kind != Collective::kBroadcast || is_root();
    const std::size_t parts = call_.kind == Collective::kReduceScatter ? size : 1;
    const Bytes all = sends ? read_bytes(call_.from, parts * bytes()) : Bytes();
    for (int member = 0; member < group_.size; ++member) {
      const auto index = static_cast<std::ptrdiff_t>(parts == 1 ? 0 : member);
      const bool hears = call_.kind != Collective::kReduce || member == call_.peer;
      Bytes payload;
      if (sends && hears) {
        const auto length = static_cast<std::ptrdiff_t>(bytes());
        payload.assign(all.begin() + index * length, all.begin() + (index + 1) * length);
      }
      send(member, payload, MessageKind::kCollective);
    }
  }

  [[nodiscard]] bool has_result() const {
    return call_.kind != Collective::kSend && (call_.kind != Collective::kReduce || is_root());
  }

  [[nodiscard]] std::size_t result_bytes() const {
    return call_.kind == Collective::kAllGather ? static_cast<std::size_t>(group_.size) * bytes()
                                                : bytes();
  }

  // Until it is done, nobody can rely on what was in the result's memory.
  void spoil_result() {
    const bool reads_all = call_.kind == Collective::kReduceScatter;
    const std::size_t from_bytes =
        reads_all ? static_cast<std::size_t>(group_.size) * bytes() : bytes();
    const bool in_place =
        call_.from != nullptr && overlap(call_.from, from_bytes, call_.to, result_bytes());
    if (has_result() && !in_place) {
      check_operation_access(call_.to, result_bytes(), Access::kWrite);
      std::memset(call_.to, 0xff, result_bytes());
    }
  }

  [[nodiscard]] Bytes part_of(int member) const {
    const Bytes& message = parts_[static_cast<std::size_t>(member)];
    return {message.begin() + sizeof(Terms), message.end()};
  }

  void finish_collective() {
    if (!has_result()) {
      return;
    }
    if (call_.kind == Collective::kBroadcast) {
      write_bytes(call_.to, part_of(call_.peer).data(), bytes());
      return;
    }
    if (call_.kind == Collective::kAllGather) {
      for (int member = 0; member < group_.size; ++member) {
        auto* const to =
            static_cast<std::byte*>(call_.to) + static_cast<std::size_t>(member) * bytes();
        write_bytes(to, part_of(member).data(), bytes());
      }
      return;
    }
    Bytes sums = part_of(0);
    for (int member = 1; member < group_.size; ++member) {
      reduce_bytes(call_.type, call_.reduction, part_of(member), sums);
    }
    write_bytes(call_.to, sums.data(), bytes());
  }

  NcclCall call_;
  NcclGroup& group_;
  std::uint32_t number_ = 0;
  std::vector<Bytes> parts_;  // of a collective: the messages of all members
  int num_parts_ = 0;
};

/// The calls of one group in one stream.
class TransferOperation final : public Operation {
 public:
  explicit TransferOperation(const std::vector<NcclCall>& calls)
      : Operation(name_of(calls.front().kind)) {
    transfers_.reserve(calls.size());
    for (const NcclCall& call : calls) {
      transfers_.push_back(std::make_unique<Transfer>(call));
    }
  }

  bool advance() override {
    if (!is_started_) {
      is_started_ = true;
      for (const auto& transfer : transfers_) {
        transfer->start();
      }
    }
    poll_messages();
    transfers_.erase(std::remove_if(transfers_.begin(),
                                    transfers_.end(),
                                    [](const auto& transfer) { return transfer->advance(); }),
                     transfers_.end());
    return transfers_.empty();
  }

 private:
  std::vector<std::unique_ptr<Transfer>> transfers_;
  bool is_started_ = false;
};

}  // namespace

std::size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 4;
  }
}

ncclResult_t submit_calls(const std::vector<NcclCall>& calls) {
  std::vector<NcclCall> rest = calls;
  while (!rest.empty()) {
    const cudaStream_t stream = rest.front().stream;
    std::vector<NcclCall> same;
    std::vector<NcclCall> others;
    for (const NcclCall& call : rest) {
      (call.stream == stream ? same : others).push_back(call);
    }
    const cudaError_t status =
        submit(stream, [same] { return std::make_unique<TransferOperation>(same); });
    if (status != cudaSuccess) {
      return ncclUnhandledCudaError;
    }
    rest = others;
  }
  return ncclSuccess;
}

}  // namespace lockstep::emulated
