#include "emulated_device/nccl_communicator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <numeric>
#include <thread>
#include <tuple>

#include <cuda_runtime_api.h>
#include <mpi.h>

#include "emulated_device/fault.h"
#include "emulated_device/operations.h"
#include "emulated_device/streams.h"

namespace lockstep::emulated {
namespace {

struct Member {
  int world_rank = 0;
  int size = 0;
  char device[48] = {};  // its UUID
};

struct Colored {
  int color = 0;
  int key = 0;
};

template <typename T>
Bytes to_bytes(const T* values, std::size_t count) {
  Bytes bytes(count * sizeof(T));
  std::memcpy(bytes.data(), values, bytes.size());
  return bytes;
}

template <typename T>
std::vector<T> from_bytes(const Bytes& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(static_cast<void*>(values.data()), bytes.data(), bytes.size());
  return values;
}

using Groups = std::map<const void*, NcclGroupPointer>;

Groups& groups() {
  static Groups& only = *new Groups;
  return only;
}

void finish_start(NcclGroup& group, const std::vector<Member>& members) {
  for (std::size_t i = 0; i < members.size(); ++i) {
    group.world_ranks.push_back(members[i].world_rank);
    for (std::size_t j = 0; j < i; ++j) {
      if (std::strcmp(static_cast<const char*>(members[i].device),
                      static_cast<const char*>(members[j].device)) == 0) {
        group.state = ncclInvalidUsage;
        group.error = fmt::format("Duplicate GPU detected : rank {} and rank {} both on device {}",
                                  j,
                                  i,
                                  static_cast<const char*>(members[i].device));
      }
    }
  }
  group.num_sent.resize(members.size());
  group.num_received.resize(members.size());
  if (group.state == ncclInProgress) {
    group.state = ncclSuccess;
  }
}

Member describe_self(int size) {
  Member self;
  self.world_rank = world_rank();
  self.size = size;
  cudaDeviceProp properties{};
  cudaGetDeviceProperties(&properties, current_device());
  std::string uuid;
  for (const char byte : properties.uuid.bytes) {
    uuid += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  uuid.copy(static_cast<char*>(self.device), sizeof self.device - 1);
  return self;
}

// At the process that made the identity: collects all members, then tells each of them of all.
class Gathering {
 public:
  explicit Gathering(NcclGroupPointer group)
      : group_(std::move(group)),
        members_(static_cast<std::size_t>(group_->size)),
        has_(members_.size()) {}

  bool advance() {
    for (std::size_t rank = 0; rank < members_.size(); ++rank) {
      for (int source = 0; source < world_size() && !has_[rank]; ++source) {
        Bytes bytes;
        const MessageKey key{
            group_->id, MessageKind::kHello, static_cast<std::uint32_t>(rank), source};
        if (take_message(key, bytes)) {
          members_[rank] = from_bytes<Member>(bytes)[0];
          has_[rank] = true;
        }
      }
    }
    if (std::find(has_.begin(), has_.end(), false) != has_.end()) {
      return false;
    }
    for (const Member& member : members_) {
      if (member.size != group_->size) {
        fault(
            "NCCL: ranks start a communicator of {} and of {} members", group_->size, member.size);
      }
      send_message(member.world_rank,
                   group_->id,
                   MessageKind::kTable,
                   0,
                   to_bytes(members_.data(), members_.size()));
    }
    return true;
  }

 private:
  NcclGroupPointer group_;
  std::vector<Member> members_;
  std::vector<bool> has_;
};

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  return (a ^ (b + 0x9e3779b97f4a7c15U + (a << 6U) + (a >> 2U))) * 0xff51afd7ed558ccdU;
}

// One exchange of all members of the parent; then the new group is known without a message.
void finish_split(const NcclGroup& parent,
                  const std::vector<Colored>& all,
                  std::uint32_t number,
                  NcclGroup& part) {
  const int color = all[static_cast<std::size_t>(parent.rank)].color;
  std::vector<int> ranks;
  for (int rank = 0; rank < parent.size; ++rank) {
    if (all[static_cast<std::size_t>(rank)].color == color) {
      ranks.push_back(rank);
    }
  }
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    return all[static_cast<std::size_t>(a)].key < all[static_cast<std::size_t>(b)].key;
  });
  part.id = mix(mix(parent.id, number), static_cast<std::uint64_t>(color) + 1);
  part.size = static_cast<int>(ranks.size());
  part.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), parent.rank) - ranks.begin());
  part.world_ranks.reserve(ranks.size());
  for (const int rank : ranks) {
    part.world_ranks.push_back(parent.world_ranks[static_cast<std::size_t>(rank)]);
  }
  part.num_sent.resize(ranks.size());
  part.num_received.resize(ranks.size());
  part.state = ncclSuccess;
}

void run_helper() {
  using namespace std::chrono_literals;
  while (true) {
    std::this_thread::sleep_for(5ms);
    const ApiLock lock;
    if (!has_groups_of_several()) {
      continue;
    }
    int finalised = 0;
    MPI_Finalized(&finalised);
    if (finalised != 0) {
      return;
    }
    poll_messages();
    if (!is_everything_idle()) {
      work_a_little();
    }
  }
}

}  // namespace

void NcclGroup::advance() {
  poll_messages();
  while (!tasks.empty() && tasks.front()()) {
    tasks.erase(tasks.begin());
  }
}

NcclGroupPointer group_of(ncclComm_t comm) {
  const auto found = groups().find(comm);
  if (found == groups().end()) {
    fault("NCCL: {} is no communicator, or one that was destroyed", static_cast<const void*>(comm));
  }
  return found->second;
}

ncclComm_t handle_of(const NcclGroupPointer& group) {
  groups()[group.get()] = group;
  return reinterpret_cast<ncclComm_t>(group.get());
}

void remove_group(ncclComm_t comm) {
  groups().erase(comm);
}

bool has_groups_of_several() {
  const Groups& all = groups();
  return std::any_of(
      all.begin(), all.end(), [](const auto& entry) { return entry.second->size > 1; });
}

NcclGroupPointer join_group(const Identity& identity, int size, int rank, bool is_blocking) {
  auto group = std::make_shared<NcclGroup>();
  group->id = identity.id;
  group->rank = rank;
  group->size = size;
  group->device = current_device();
  group->is_blocking = is_blocking;
  const Member self = describe_self(size);
  send_message(identity.root,
               group->id,
               MessageKind::kHello,
               static_cast<std::uint32_t>(rank),
               to_bytes(&self, 1));
  if (identity.root == world_rank()) {
    auto gathering = std::make_shared<Gathering>(group);
    group->tasks.emplace_back([gathering] { return gathering->advance(); });
  }
  const std::weak_ptr<NcclGroup> weak = group;
  const int root = identity.root;
  group->tasks.emplace_back([weak, root] {
    const NcclGroupPointer self_group = weak.lock();
    Bytes bytes;
    if (!take_message({self_group->id, MessageKind::kTable, 0, root}, bytes)) {
      return false;
    }
    finish_start(*self_group, from_bytes<Member>(bytes));
    return true;
  });
  if (size > 1) {
    start_helper_thread();
  }
  return group;
}

void split_group(const NcclGroupPointer& parent,
                 int color,
                 int key,
                 bool is_blocking,
                 const std::function<void(NcclGroupPointer)>& give) {
  const std::uint32_t number = parent->num_splits++;
  const Colored own{color, key};
  for (const int world : parent->world_ranks) {
    send_message(world, parent->id, MessageKind::kSplit, number, to_bytes(&own, 1));
  }
  auto part = std::make_shared<NcclGroup>();
  part->device = parent->device;
  part->is_blocking = is_blocking;
  give(color == NCCL_SPLIT_NOCOLOR ? nullptr : part);
  auto all = std::make_shared<std::vector<Colored>>(static_cast<std::size_t>(parent->size));
  auto next = std::make_shared<int>(0);
  const auto collect = [parent, part, all, next, number] {
    for (; *next < parent->size; ++*next) {
      Bytes bytes;
      const auto index = static_cast<std::size_t>(*next);
      if (!take_message({parent->id, MessageKind::kSplit, number, parent->world_ranks[index]},
                        bytes)) {
        return false;
      }
      (*all)[index] = from_bytes<Colored>(bytes)[0];
    }
    finish_split(*parent, *all, number, *part);
    return true;
  };
  if (color == NCCL_SPLIT_NOCOLOR) {
    wait_with_others([&] {
      poll_messages();
      return collect();
    });
    return;
  }
  part->tasks.emplace_back(collect);
}

void wait_for_tasks(const NcclGroupPointer& group) {
  wait_with_others([&] {
    group->advance();
    return group->tasks.empty();
  });
}

void start_helper_thread() {
  static bool started = false;
  if (!started) {
    started = true;
    std::thread(&run_helper).detach();
  }
}

}  // namespace lockstep::emulated
