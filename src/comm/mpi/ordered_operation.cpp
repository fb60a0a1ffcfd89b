#include "comm/mpi/ordered_operation.h"

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "comm/mpi/mpi_call.h"

namespace lockstep {
namespace {

/// True when all are complete (also when there are none).
bool test_all(std::vector<MPI_Request>& requests) {
  if (requests.empty()) {
    return true;
  }
  int complete = 0;
  mpi_call(MPI_Testall(
               static_cast<int>(requests.size()), requests.data(), &complete, MPI_STATUSES_IGNORE),
           "MPI_Testall");
  return complete != 0;
}

void cancel(MPI_Request& request) {
  if (request != MPI_REQUEST_NULL) {
    MPI_Cancel(&request);
    MPI_Request_free(&request);
  }
}

int message_count(long items) {
  if (items > INT_MAX) {
    throw_error(
        "a message of {} items is longer than MPI allows: use more ranks or smaller buckets",
        items);
  }
  return static_cast<int>(items);
}

/// Items as MPI counts them.
struct Units {
  int count = 0;
  MPI_Datatype type = MPI_BYTE;
};

Units units_of(long items, const OrderedOperation::Buffer& buffer) {
  if (buffer.item_bytes == sizeof(float)) {
    return {message_count(items), MPI_FLOAT};
  }
  return {message_count(items * static_cast<long>(buffer.item_bytes)), MPI_BYTE};
}

TrafficKind kind_of(Exchange exchange) {
  switch (exchange) {
    case Exchange::kAllReduce:
      return TrafficKind::kAllReduce;
    case Exchange::kReduceScatter:
      return TrafficKind::kReduceScatter;
    case Exchange::kAllGather:
    case Exchange::kSharedGather:
      break;
  }
  return TrafficKind::kAllGather;
}

}  // namespace

OrderedOperation::OrderedOperation(
    MpiGroup& group, int number, Exchange exchange, Buffer buffer, std::function<void()> contribute)
    : MpiOperation(
          group,
          number,
          kind_of(exchange),
          items_sent_by(group.hosts(), exchange, group.rank(), buffer.count, buffer.chunk) *
              static_cast<double>(buffer.item_bytes)),
      exchange_(exchange),
      buffer_(buffer),
      contribute_(std::move(contribute)),
      own_(slice_of(buffer.count, buffer.chunk, group.size(), group.rank())) {
  plan_own();
  for (int owner = 0; owner < group.size(); ++owner) {
    if (group.hosts().host_of(owner) != group.host() &&
        group.hosts().handler(group.host(), owner) == group.rank()) {
      plan_foreign(owner);
    }
  }
  std::size_t items = 0;
  for (const Arrival& arrival : arrivals_) {
    items += arrival.values.size();
  }
  for (const Foreign& foreign : foreigns_) {
    for (const NodeSum& node : foreign.sums) {
      items += node.sum.size();
    }
  }
  group.count_allocated(items * sizeof(float));
}

OrderedOperation::~OrderedOperation() {
  for (auto* requests : {&node_receives_, &result_sends_}) {
    std::for_each(requests->begin(), requests->end(), cancel);
  }
  for (auto& foreign : foreigns_) {
    std::for_each(foreign.node_sends.begin(), foreign.node_sends.end(), cancel);
    cancel(foreign.result_receive);
  }
}

std::byte* OrderedOperation::at(int local, long item) const {
  return group().window(buffer_.window).piece(local) + buffer_.offset +
         static_cast<std::size_t>(item) * buffer_.item_bytes;
}

void OrderedOperation::plan_own() {
  const HostMap& hosts = group().hosts();
  const int num_local = static_cast<int>(group().local_ranks().size());
  if (own_.size() == 0) {
    return;
  }
  std::vector<TreeNode> nodes;
  for (int local = 0; local < num_local && reduces(); ++local) {
    nodes.push_back({0, group().local_ranks()[static_cast<std::size_t>(local)]});
    own_inputs_.push_back(reinterpret_cast<const float*>(at(local, own_.begin)));
  }
  for (int host = 0; host < hosts.num_hosts(); ++host) {
    if (host == group().host()) {
      continue;
    }
    if (gathers()) {
      result_to_.push_back(hosts.handler(host, group().rank()));
    }
    for (std::size_t node = 0; reduces() && node < hosts.nodes_on(host).size(); ++node) {
      nodes.push_back(hosts.nodes_on(host)[node]);
      arrivals_.push_back({hosts.handler(host, group().rank()),
                           std::vector<float>(static_cast<std::size_t>(own_.size()))});
      own_inputs_.push_back(arrivals_.back().values.data());
    }
  }
  result_sends_.assign(result_to_.size(), MPI_REQUEST_NULL);
  node_receives_.assign(arrivals_.size(), MPI_REQUEST_NULL);
  if (reduces()) {
    own_sum_.emplace_back(nodes, tree_root(hosts.num_ranks()), hosts.num_ranks());
    for (int local = 0; local < num_local; ++local) {
      if (gathers() || local == group().local_index()) {
        own_outputs_.push_back(reinterpret_cast<float*>(at(local, own_.begin)));
      }
    }
  }
}

void OrderedOperation::plan_foreign(int owner) {
  const HostMap& hosts = group().hosts();
  Foreign foreign;
  foreign.owner = owner;
  foreign.slice = slice_of(buffer_.count, buffer_.chunk, group().size(), owner);
  if (foreign.slice.size() == 0) {
    return;
  }
  const std::vector<int>& locals = group().local_ranks();
  for (const TreeNode node : hosts.nodes_on(group().host())) {
    if (!reduces()) {
      break;
    }
    // The rows that a node adds up are those of its ranks, all of which are on this host.
    const long first = node.first_leaf();
    const long end = node.end_leaf(hosts.num_ranks());
    const auto local =
        static_cast<int>(std::lower_bound(locals.begin(), locals.end(), first) - locals.begin());
    if (end - first == 1) {
      foreign.nodes.push_back(reinterpret_cast<float*>(at(local, foreign.slice.begin)));
      continue;
    }
    std::vector<TreeNode> leaves;
    std::vector<const float*> inputs;
    for (long leaf = first; leaf < end; ++leaf) {
      leaves.push_back({0, leaf});
      const int piece = local + static_cast<int>(leaf - first);
      inputs.push_back(reinterpret_cast<const float*>(at(piece, foreign.slice.begin)));
    }
    foreign.sums.push_back({TreeAdd(leaves, node, hosts.num_ranks()),
                            std::move(inputs),
                            std::vector<float>(static_cast<std::size_t>(foreign.slice.size()))});
    foreign.nodes.push_back(foreign.sums.back().sum.data());
  }
  foreign.node_sends.assign(foreign.nodes.size(), MPI_REQUEST_NULL);
  foreigns_.push_back(std::move(foreign));
}

void OrderedOperation::begin(std::uint32_t call_number, std::uint32_t generation) {
  ready_ = false;
  own_sent_ = false;
  published_ = false;
  for (auto& foreign : foreigns_) {
    foreign.stage = Foreign::Stage::kWaiting;
  }
  for (std::size_t i = 0; i < arrivals_.size(); ++i) {
    mpi_call(MPI_Irecv(arrivals_[i].values.data(),
                       message_count(own_.size()),
                       MPI_FLOAT,
                       arrivals_[i].from,
                       node_tag(),
                       group().comm(),
                       &node_receives_[i]),
             "MPI_Irecv");
  }
  group()
      .control(number(), group().local_index())
      .ready.store(pack(call_number, generation), std::memory_order_release);
}

bool OrderedOperation::is_missing(int local) const {
  const OperationControl& peer = group().control(number(), local);
  const std::uint32_t ready = lower_half(peer.ready.load(std::memory_order_acquire));
  return !reached(published_ ? peer.done.load(std::memory_order_acquire) : ready, generation());
}

bool OrderedOperation::all_ready() {
  const int num_local = static_cast<int>(group().local_ranks().size());
  for (int local = 0; local < num_local; ++local) {
    const std::uint64_t word =
        group().control(number(), local).ready.load(std::memory_order_acquire);
    if (!reached(lower_half(word), generation())) {
      return false;
    }
    if (lower_half(word) == generation() && upper_half(word) != call_number()) {
      group().check_order();
      throw_error(
          "ranks start operations in different orders: {} was call {} of {}, and call {} of {}",
          group().call_name(number()),
          call_number(),
          group().describe(group().rank()),
          upper_half(word),
          group().describe(group().local_ranks()[static_cast<std::size_t>(local)]));
    }
  }
  return true;
}

bool OrderedOperation::all_done() const {
  const int num_local = static_cast<int>(group().local_ranks().size());
  for (int local = 0; local < num_local; ++local) {
    if (!reached(group().control(number(), local).done.load(std::memory_order_acquire),
                 generation())) {
      return false;
    }
  }
  return true;
}

bool OrderedOperation::advance() {
  if (!ready_) {
    ready_ = all_ready();
    if (!ready_) {
      return false;
    }
    contributed();
    if (contribute_) {
      contribute_();
    }
  }
  if (!published_) {
    bool finished = true;
    for (auto& foreign : foreigns_) {
      finished = advance_foreign(foreign) && finished;
    }
    finished = advance_own() && finished;
    if (!finished) {
      return false;
    }
    published_ = true;
    group()
        .control(number(), group().local_index())
        .done.store(generation(), std::memory_order_release);
  }
  if (!all_done()) {
    return false;
  }
  finish();
  return true;
}

bool OrderedOperation::advance_own() {
  if (own_.size() == 0) {
    return true;
  }
  if (!own_sent_) {
    if (!test_all(node_receives_)) {
      return false;
    }
    if (reduces()) {
      own_sum_.front().run(own_inputs_, own_outputs_, own_.size(), group().options().threads);
    } else {
      copy_to_host(own_);
    }
    for (std::size_t i = 0; i < result_to_.size(); ++i) {
      send_result(i);
    }
    own_sent_ = true;
  }
  return test_all(result_sends_);
}

void OrderedOperation::send_result(std::size_t index) {
  const Units units = units_of(own_.size(), buffer_);
  mpi_call(MPI_Isend(at(group().local_index(), own_.begin),
                     units.count,
                     units.type,
                     result_to_[index],
                     result_tag(),
                     group().comm(),
                     &result_sends_[index]),
           "MPI_Isend");
}

void OrderedOperation::send_nodes(Foreign& foreign) {
  const long count = foreign.slice.size();
  for (auto& node : foreign.sums) {
    const std::array<float*, 1> outputs{node.sum.data()};
    node.add.run(node.inputs, outputs, count, group().options().threads);
  }
  for (std::size_t i = 0; i < foreign.nodes.size(); ++i) {
    mpi_call(MPI_Isend(foreign.nodes[i],
                       message_count(count),
                       MPI_FLOAT,
                       foreign.owner,
                       node_tag(),
                       group().comm(),
                       &foreign.node_sends[i]),
             "MPI_Isend");
  }
}

bool OrderedOperation::advance_foreign(Foreign& foreign) {
  using Stage = Foreign::Stage;
  if (foreign.stage == Stage::kWaiting) {
    send_nodes(foreign);
    foreign.stage = Stage::kSending;
  }
  // What arrives overwrites what is sent, so it is received only afterwards.
  if (foreign.stage == Stage::kSending && test_all(foreign.node_sends)) {
    if (gathers()) {
      const Units units = units_of(foreign.slice.size(), buffer_);
      mpi_call(MPI_Irecv(at(group().local_index(), foreign.slice.begin),
                         units.count,
                         units.type,
                         foreign.owner,
                         result_tag(),
                         group().comm(),
                         &foreign.result_receive),
               "MPI_Irecv");
    }
    foreign.stage = gathers() ? Stage::kReceiving : Stage::kDone;
  }
  if (foreign.stage == Stage::kReceiving) {
    int arrived = 0;
    mpi_call(MPI_Test(&foreign.result_receive, &arrived, MPI_STATUS_IGNORE), "MPI_Test");
    if (arrived != 0) {
      copy_to_host(foreign.slice);
      foreign.stage = Stage::kDone;
    }
  }
  return foreign.stage == Stage::kDone;
}

void OrderedOperation::copy_to_host(IndexRange slice) {
  if (exchange_ == Exchange::kSharedGather) {
    return;
  }
  const int own = group().local_index();
  const int num_local = static_cast<int>(group().local_ranks().size());
  const std::size_t bytes = static_cast<std::size_t>(slice.size()) * buffer_.item_bytes;
  for (int local = 0; local < num_local; ++local) {
    if (local != own) {
      std::memcpy(at(local, slice.begin), at(own, slice.begin), bytes);
    }
  }
}

}  // namespace lockstep
