#include "comm/nccl/nccl_communicator.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <thread>
#include <utility>

#include "base/error.h"
#include "comm/message.h"
#include "comm/nccl/nccl_check.h"
#include "kernels/cuda/backend.h"
#include "kernels/reduce.h"

namespace lockstep {
namespace {

std::vector<long> one_each(int ranks) {
  std::vector<long> hosts(static_cast<std::size_t>(ranks));
  std::iota(hosts.begin(), hosts.end(), 0L);
  return hosts;
}

// Calls of one communicator that NCCL is to see together.
void in_group(const NcclLink& link, DeviceCommunicator& group, FunctionRef<void()> calls) {
  check_nccl(ncclGroupStart(), "beginning a group of calls");
  calls();
  const ncclResult_t status = ncclGroupEnd();
  check_nccl(status, "a group of calls");
  if (status == ncclInProgress) {  // the first time, while connections are made
    group.wait_until([&] { return link.is_ready(); }, "connecting ranks by NCCL");
  }
}

// What all operations have in common: they run on the link's stream, after what is in the queue.
class NcclOperation : public Operation {
 public:
  NcclOperation(DeviceCommunicator& group, NcclLink& link, TrafficKind kind, double bytes_sent)
      : group_(group), link_(link), kind_(kind), bytes_sent_(bytes_sent) {}

  void start() final {
    reached_.record(group_.queue().stream());
    reached_.make_wait(link_.stream());
    enqueue();
    done_.record(link_.stream());
    if (bytes_sent_ >= 0) {
      group_.count(kind_, bytes_sent_);
    }
  }
  bool poll() final {
    group_.poll();
    return done_.is_done();
  }
  void wait() final { done_.make_wait(group_.queue().stream()); }

 protected:
  virtual void enqueue() = 0;
  [[nodiscard]] DeviceCommunicator& group() const { return group_; }
  [[nodiscard]] NcclLink& link() const { return link_; }

 private:
  DeviceCommunicator& group_;
  NcclLink& link_;
  TrafficKind kind_;
  double bytes_sent_;  // negative: of a receive, which is no call
  CudaEvent reached_;
  CudaEvent done_;
};

// A buffer cut into a slice of every rank; positions in bytes.
struct Slices {
  std::byte* data = nullptr;
  std::vector<IndexRange> of = {};
  int own = 0;

  [[nodiscard]] const IndexRange& mine() const { return of[static_cast<std::size_t>(own)]; }
  [[nodiscard]] bool are_equal() const {
    return std::all_of(of.begin(), of.end(), [&](const IndexRange& slice) {
      return slice.size() == of.front().size();
    });
  }
  /// Calls use(rank, slice) for those of the other ranks.
  void others(FunctionRef<void(int rank, const IndexRange& slice)> use) const {
    for (int rank = 0; rank < static_cast<int>(of.size()); ++rank) {
      if (rank != own) {
        use(rank, of[static_cast<std::size_t>(rank)]);
      }
    }
  }
};

void send(const NcclLink& link, const std::byte* data, long bytes, int to) {
  if (bytes > 0) {
    check_nccl(
        ncclSend(data, static_cast<std::size_t>(bytes), ncclUint8, to, link.comm(), link.stream()),
        "ncclSend");
  }
}

void receive(const NcclLink& link, std::byte* data, long bytes, int from) {
  if (bytes > 0) {
    check_nccl(
        ncclRecv(
            data, static_cast<std::size_t>(bytes), ncclUint8, from, link.comm(), link.stream()),
        "ncclRecv");
  }
}

class ExchangeOperation final : public NcclOperation {
 public:
  ExchangeOperation(DeviceCommunicator& group,
                    NcclLink& link,
                    TrafficKind kind,
                    double bytes_sent,
                    Exchange exchange,
                    Slices slices,
                    Memory arriving,
                    std::function<void()> contribute)
      : NcclOperation(group, link, kind, bytes_sent),
        sums_(!is_gather(exchange)),
        gathers_(exchange != Exchange::kReduceScatter),
        slices_(std::move(slices)),
        arriving_(std::move(arriving)),
        contribute_(std::move(contribute)) {
    // The leaves of the tree, by rank.
    std::byte* next = arriving_.data();
    inputs_.resize(slices_.of.size());
    inputs_[static_cast<std::size_t>(slices_.own)] = own_slice();
    slices_.others([&](int rank, const IndexRange&) {
      inputs_[static_cast<std::size_t>(rank)] = reinterpret_cast<float*>(next);
      next += slices_.mine().size();
    });
  }

 private:
  void enqueue() override {
    if (contribute_) {
      const CudaQueue::StreamScope scope(group().queue(), link().stream());
      contribute_();
    }
    if (sums_) {
      exchange_slices();
      sum();
    }
    if (gathers_) {
      gather();
    }
  }

  [[nodiscard]] float* own_slice() const {
    return reinterpret_cast<float*>(slices_.data + slices_.mine().begin);
  }

  void exchange_slices() {
    in_group(link(), group(), [this] {
      slices_.others([this](int rank, const IndexRange& slice) {
        send(link(), slices_.data + slice.begin, slice.size(), rank);
        const std::ptrdiff_t offset =
            slices_.mine().size() * (rank < slices_.own ? rank : rank - 1);
        receive(link(), arriving_.data() + offset, slices_.mine().size(), rank);
      });
    });
  }

  void sum() {
    if (slices_.mine().size() == 0) {
      return;
    }
    const CudaQueue::StreamScope scope(group().queue(), link().stream());
    float* const outputs[] = {own_slice()};
    run_on_cuda(group().queue(),
                SumTree{.inputs = inputs_.data(),
                        .num_inputs = static_cast<int>(inputs_.size()),
                        .outputs = outputs,
                        .num_outputs = 1,
                        .count = slices_.mine().size() / static_cast<long>(sizeof(float))});
  }

  void gather() {
    const std::byte* const own = slices_.data + slices_.mine().begin;
    in_group(link(), group(), [&] {
      if (slices_.are_equal()) {
        check_nccl(ncclAllGather(own,
                                 slices_.data,
                                 static_cast<std::size_t>(slices_.mine().size()),
                                 ncclUint8,
                                 link().comm(),
                                 link().stream()),
                   "ncclAllGather");
        return;
      }
      slices_.others([&](int rank, const IndexRange& slice) {
        send(link(), own, slices_.mine().size(), rank);
        receive(link(), slices_.data + slice.begin, slice.size(), rank);
      });
    });
  }

  bool sums_;
  bool gathers_;
  Slices slices_;
  Memory arriving_;
  std::function<void()> contribute_;
  std::vector<const float*> inputs_;
};

class NativeOperation final : public NcclOperation {
 public:
  NativeOperation(DeviceCommunicator& group, NcclLink& link, float* data, long count)
      : NcclOperation(
            group,
            link,
            TrafficKind::kNativeAllReduce,
            2.0 * static_cast<double>(count) * sizeof(float) * (group.size() - 1) / group.size()),
        data_(data),
        count_(count) {}

 private:
  void enqueue() override {
    in_group(link(), group(), [this] {
      check_nccl(ncclAllReduce(data_,
                               data_,
                               static_cast<std::size_t>(count_),
                               ncclFloat32,
                               ncclSum,
                               link().comm(),
                               link().stream()),
                 "ncclAllReduce");
    });
  }

  float* data_;
  long count_;
};

// Of two ranks: the sender is rank 0 of the link, the receiver rank 1.
class MessageOperation final : public NcclOperation {
 public:
  enum class End { kSends, kReceives };
  MessageOperation(
      DeviceCommunicator& group, NcclLink& link, End end, std::byte* data, std::size_t bytes)
      : NcclOperation(group,
                      link,
                      TrafficKind::kSend,
                      end == End::kSends ? static_cast<double>(bytes) : -1.0),
        end_(end),
        data_(data),
        bytes_(static_cast<long>(bytes)) {}

 private:
  void enqueue() override {
    in_group(link(), group(), [this] {
      if (end_ == End::kSends) {
        send(link(), data_, bytes_, 1);
      } else {
        receive(link(), data_, bytes_, 0);
      }
    });
  }

  End end_;
  std::byte* data_;
  long bytes_;
};

}  // namespace

NcclLink::~NcclLink() {
  if (comm_ == nullptr) {
    return;
  }
  if (std::uncaught_exceptions() > 0) {
    ncclCommAbort(comm_);
    return;
  }
  ncclCommFinalize(comm_);
  ncclResult_t state = ncclInProgress;
  while (ncclCommGetAsyncError(comm_, &state) == ncclSuccess && state == ncclInProgress) {
    std::this_thread::yield();
  }
  ncclCommDestroy(comm_);
}

void NcclLink::check() const {
  if (comm_ == nullptr) {
    return;
  }
  ncclResult_t state = ncclSuccess;
  check_nccl(ncclCommGetAsyncError(comm_, &state), "asking for errors");
  check_nccl(state, "communication");
}

bool NcclLink::is_ready() const {
  ncclResult_t state = ncclSuccess;
  check_nccl(ncclCommGetAsyncError(comm_, &state), "asking for errors");
  check_nccl(state, "setting up communication");
  return state == ncclSuccess;
}

NcclCommunicator::NcclCommunicator(std::unique_ptr<Communicator> host,
                                   CudaQueue& queue,
                                   std::shared_ptr<DeviceProgress> progress)
    : DeviceCommunicator(std::move(host), queue, std::move(progress)), hosts_(one_each(size())) {
  if (size() > 1) {
    task_ = this->progress().add([this] { check(); });
  }
}

NcclCommunicator::~NcclCommunicator() {
  if (task_ >= 0) {
    progress().remove(task_);
  }
}

void NcclCommunicator::check() {
  if (link_) {
    link_->check();
  }
  for (const Channel& channel : channels_) {
    channel.link->check();
  }
}

void NcclCommunicator::begin(const std::vector<Beginning>& links) {
  std::vector<ncclUniqueId> ids(links.size());
  for (std::size_t i = 0; i < links.size(); ++i) {
    if (rank() == links[i].root) {
      check_nccl(ncclGetUniqueId(&ids[i]), "making an identity");
    }
    host().broadcast(&ids[i], sizeof(ncclUniqueId), links[i].root);
  }
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  check_nccl(ncclGroupStart(), "beginning a group of calls");
  for (std::size_t i = 0; i < links.size(); ++i) {
    if (links[i].link != nullptr) {
      check_nccl(ncclCommInitRankConfig(
                     links[i].link->address(), links[i].size, ids[i], links[i].rank, &config),
                 "initialisation");
    }
  }
  check_nccl(ncclGroupEnd(), "initialisation");
  wait_until(
      [&] {
        return std::all_of(links.begin(), links.end(), [](const Beginning& beginning) {
          return beginning.link == nullptr || beginning.link->is_ready();
        });
      },
      "initialising NCCL");
}

void NcclCommunicator::connect(Connections connections) {
  if (size() == 1) {
    return;
  }
  std::vector<Beginning> links;
  if (connections == Connections::kNeighbours) {
    links = add_channels();
  } else if (!link_) {
    link_ = std::make_unique<NcclLink>(queue());
    links.push_back({link_.get(), 0, rank(), size()});
  }
  begin(links);
}

// On every rank all channels of the group in one order, those of others without a link.
std::vector<NcclCommunicator::Beginning> NcclCommunicator::add_channels() {
  std::vector<Beginning> links;
  const auto add = [&](int from, int to) {
    for (int parity = 0; parity < 2; ++parity) {
      Beginning beginning{nullptr, from, 0, 2};
      if (rank() == from || rank() == to) {
        channels_.push_back({from, to, parity, std::make_unique<NcclLink>(queue())});
        beginning.link = channels_.back().link.get();
        beginning.rank = rank() == from ? 0 : 1;
      }
      links.push_back(beginning);
    }
  };
  const int pairs = size() == 2 ? 1 : size();  // of two ranks each is the next of the other
  for (int first = 0; first < pairs; ++first) {
    const int second = (first + 1) % size();
    add(first, second);
    add(second, first);
  }
  return links;
}

NcclLink& NcclCommunicator::group_link() {
  LOCKSTEP_CHECK(link_ != nullptr);
  return *link_;
}

NcclLink& NcclCommunicator::channel(int from, int to, int tag) {
  for (const Channel& channel : channels_) {
    if (channel.from == from && channel.to == to && channel.parity == tag % 2) {
      return *channel.link;
    }
  }
  throw_error("NCCL: ranks {} and {} are no neighbours, or the group is not connected", from, to);
}

std::unique_ptr<Operation> NcclCommunicator::make_exchange(TrafficKind kind,
                                                           Exchange exchange,
                                                           std::byte* data,
                                                           long count,
                                                           long chunk,
                                                           std::size_t item_bytes,
                                                           std::function<void()> contribute) {
  if (size() == 1) {
    return std::make_unique<NothingToExchange>(std::move(contribute));
  }
  const auto item = static_cast<long>(item_bytes);
  Slices slices{.data = data, .own = rank()};
  slices.of.reserve(static_cast<std::size_t>(size()));
  for (int owner = 0; owner < size(); ++owner) {
    const IndexRange slice = slice_of(count, chunk, size(), owner);
    slices.of.push_back({slice.begin * item, slice.end * item});
  }
  const auto arriving =
      static_cast<std::size_t>(message_items(hosts_, exchange, rank(), count, chunk) * item);
  count_allocated(arriving);
  const double sent = items_sent_by(hosts_, exchange, rank(), count, chunk);
  return std::make_unique<ExchangeOperation>(*this,
                                             group_link(),
                                             kind,
                                             sent * static_cast<double>(item),
                                             exchange,
                                             std::move(slices),
                                             queue().take(arriving, arriving),
                                             std::move(contribute));
}

std::unique_ptr<Operation> NcclCommunicator::make_all_reduce(float* data,
                                                             long count,
                                                             Reduction reduction) {
  if (reduction == Reduction::kNative && size() > 1) {
    return std::make_unique<NativeOperation>(*this, group_link(), data, count);
  }
  return make_exchange(TrafficKind::kAllReduce,
                       Exchange::kAllReduce,
                       reinterpret_cast<std::byte*>(data),
                       count,
                       kAllReduceChunk,
                       sizeof(float));
}

std::unique_ptr<Operation> NcclCommunicator::make_reduce_scatter(float* data,
                                                                 long count,
                                                                 long chunk) {
  LOCKSTEP_CHECK(chunk > 0 && count % chunk == 0);
  return make_exchange(TrafficKind::kReduceScatter,
                       Exchange::kReduceScatter,
                       reinterpret_cast<std::byte*>(data),
                       count,
                       chunk,
                       sizeof(float));
}

std::unique_ptr<Operation> NcclCommunicator::make_all_gather(void* data,
                                                             std::size_t bytes,
                                                             std::size_t chunk_bytes,
                                                             std::function<void()> contribute) {
  LOCKSTEP_CHECK(chunk_bytes > 0 && bytes % chunk_bytes == 0);
  return make_exchange(TrafficKind::kAllGather,
                       Exchange::kAllGather,
                       static_cast<std::byte*>(data),
                       static_cast<long>(bytes),
                       static_cast<long>(chunk_bytes),
                       1,
                       std::move(contribute));
}

std::unique_ptr<Operation> NcclCommunicator::make_send(const void* data,
                                                       std::size_t bytes,
                                                       int to,
                                                       int tag) {
  check_message(*this, "send to", to, tag);
  return std::make_unique<MessageOperation>(
      *this,
      channel(rank(), to, tag),
      MessageOperation::End::kSends,
      static_cast<std::byte*>(const_cast<void*>(data)),  // read only
      bytes);
}

std::unique_ptr<Operation> NcclCommunicator::make_receive(void* data,
                                                          std::size_t bytes,
                                                          int from,
                                                          int tag) {
  check_message(*this, "receive from", from, tag);
  return std::make_unique<MessageOperation>(*this,
                                            channel(from, rank(), tag),
                                            MessageOperation::End::kReceives,
                                            static_cast<std::byte*>(data),
                                            bytes);
}

std::unique_ptr<Communicator> NcclCommunicator::split(std::span<const int> color_of) {
  auto part =
      std::make_unique<NcclCommunicator>(host().split(color_of), queue(), shared_progress());
  part->set_time_limit(time_limit());
  return part;
}

}  // namespace lockstep
