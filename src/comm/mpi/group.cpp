#include "comm/mpi/group.h"

#include <algorithm>
#include <array>
#include <exception>
#include <functional>
#include <new>

#include <unistd.h>

#include "base/error.h"
#include "comm/mpi/mpi_call.h"

namespace lockstep {
namespace {

constexpr int kOperationsPerWindow = 64;
constexpr std::size_t kNameBytes = 64;

}  // namespace

MpiGroup::MpiGroup(MPI_Comm comm, MpiOptions options, std::shared_ptr<Progress> progress)
    : comm_(comm), options_(std::move(options)), progress_(std::move(progress)) {
  mpi_call(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  mpi_call(MPI_Comm_dup(comm_, &message_comm_), "MPI_Comm_dup");
  mpi_call(MPI_Comm_set_errhandler(message_comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  mpi_call(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  names_ = {"nothing", "all_gather", "broadcast", "barrier", "all_gather_text", "set-up"};
  find_hosts();
  control_ = std::make_unique<SharedWindow>(host_comm_, sizeof(RankControl));
  new (control_->own()) RankControl;
  mpi_call(MPI_Barrier(host_comm_), "MPI_Barrier");
  checked_.assign(local_ranks().size(), 0);
  if (hosts_->num_hosts() > 1) {
    const std::size_t values = Communicator::kMaxValues + 1;
    values_out_.resize(values);
    values_in_.resize(values * static_cast<std::size_t>(size()));
    notices_ = std::make_unique<Notices>(comm_, *hosts_, rank_);
  }
  progress_->join(*this);
}

MpiGroup::~MpiGroup() {
  progress_->leave(*this);
  if (gave_up_) {
    // A request that nobody waits for any more may still write here.
    static std::vector<std::vector<double>> abandoned;
    abandoned.push_back(std::move(values_in_));
    abandoned.push_back(std::move(values_out_));
  }
  windows_.clear();
  operation_controls_.clear();
  control_.reset();
  notices_.reset();
  if (std::uncaught_exceptions() == 0 && !gave_up_) {
    MPI_Comm_free(&message_comm_);
    MPI_Comm_free(&host_comm_);
    MPI_Comm_free(&comm_);
  }
}

void MpiGroup::find_hosts() {
  int num_ranks = 0;
  int global_rank = 0;
  mpi_call(MPI_Comm_size(comm_, &num_ranks), "MPI_Comm_size");
  mpi_call(MPI_Comm_rank(MPI_COMM_WORLD, &global_rank), "MPI_Comm_rank");
  MPI_Comm shared = MPI_COMM_NULL;
  mpi_call(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &shared),
           "MPI_Comm_split_type");
  const int part = options_.host_of_rank ? options_.host_of_rank(global_rank) : 0;
  mpi_call(MPI_Comm_split(shared, part, rank_, &host_comm_), "MPI_Comm_split");
  MPI_Comm_free(&shared);
  mpi_call(MPI_Comm_set_errhandler(host_comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  mpi_call(MPI_Comm_rank(host_comm_, &local_index_), "MPI_Comm_rank");

  // A host is known by its first rank.
  long first = rank_;
  mpi_call(MPI_Bcast(&first, 1, MPI_LONG, 0, host_comm_), "MPI_Bcast");
  std::vector<long> firsts(static_cast<std::size_t>(num_ranks));
  mpi_call(MPI_Allgather(&first, 1, MPI_LONG, firsts.data(), 1, MPI_LONG, comm_), "MPI_Allgather");
  hosts_ = std::make_unique<HostMap>(firsts);

  std::array<char, kNameBytes> name{};
  gethostname(name.data(), name.size() - 1);
  std::vector<char> names(kNameBytes * static_cast<std::size_t>(num_ranks));
  mpi_call(
      MPI_Allgather(name.data(), kNameBytes, MPI_CHAR, names.data(), kNameBytes, MPI_CHAR, comm_),
      "MPI_Allgather");
  for (int rank = 0; rank < num_ranks; ++rank) {
    host_names_.emplace_back(&names[kNameBytes * static_cast<std::size_t>(rank)]);
  }
}

std::string MpiGroup::describe(int rank) const {
  return fmt::format("rank {} (host {})", rank, host_names_[static_cast<std::size_t>(rank)]);
}

const SharedWindow& MpiGroup::add_window(std::size_t bytes, SharedWindow::Pieces pieces) {
  windows_.push_back(std::make_unique<SharedWindow>(host_comm_, bytes, pieces));
  if (pieces == SharedWindow::Pieces::kOneEach || local_index() == 0) {
    count_allocated(windows_.back()->bytes());
  }
  return *windows_.back();
}

bool MpiGroup::find(const void* data, int& window, std::size_t& offset) const {
  const auto* address = static_cast<const std::byte*>(data);
  for (std::size_t i = 0; i < windows_.size(); ++i) {
    const std::byte* own = windows_[i]->own();
    if (std::greater_equal<>()(address, own) &&
        std::less<>()(address, own + windows_[i]->bytes())) {
      window = static_cast<int>(i);
      offset = static_cast<std::size_t>(address - own);
      return true;
    }
  }
  return false;
}

int MpiGroup::add_operation(std::string name) {
  const int number = static_cast<int>(names_.size());
  names_.push_back(fmt::format("{} (operation {})", name, number - kNumPlainCalls));
  if ((number - kNumPlainCalls) % kOperationsPerWindow == 0) {
    auto window =
        std::make_unique<SharedWindow>(host_comm_, kOperationsPerWindow * sizeof(OperationControl));
    for (int i = 0; i < kOperationsPerWindow; ++i) {
      new (window->own() + static_cast<std::size_t>(i) * sizeof(OperationControl)) OperationControl;
    }
    mpi_call(MPI_Barrier(host_comm_), "MPI_Barrier");
    operation_controls_.push_back(std::move(window));
  }
  progress_->make_room();
  return number;
}

OperationControl& MpiGroup::control(int operation, int local) const {
  const auto index = static_cast<std::size_t>(operation - kNumPlainCalls);
  std::byte* piece = operation_controls_[index / kOperationsPerWindow]->piece(local);
  return *std::launder(reinterpret_cast<OperationControl*>(piece + index % kOperationsPerWindow *
                                                                       sizeof(OperationControl)));
}

RankControl& MpiGroup::block(int local) const {
  return *std::launder(reinterpret_cast<RankControl*>(control_->piece(local)));
}

void MpiGroup::agree(const std::string& what, std::span<const double> values) {
  const auto width = values.size();
  std::vector<double> all(width * static_cast<std::size_t>(size()));
  all_gather(kCallSetUp, values, all);
  for (int other = 1; other < size(); ++other) {
    const auto* theirs = &all[static_cast<std::size_t>(other) * width];
    if (std::equal(theirs, theirs + width, all.begin())) {
      continue;
    }
    const auto texts = all_gather_text(what);
    throw_error("ranks disagree: {} asks for {}, {} asks for {}",
                describe(0),
                texts[0],
                describe(other),
                texts[static_cast<std::size_t>(other)]);
  }
}

std::vector<std::string> MpiGroup::all_gather_text(const std::string& text) {
  const std::array<double, 1> length{static_cast<double>(text.size())};
  std::vector<double> lengths(static_cast<std::size_t>(size()));
  all_gather(kCallText, length, lengths);
  std::vector<int> counts;
  std::vector<int> offsets;
  int total = 0;
  for (const double count : lengths) {
    counts.push_back(static_cast<int>(count));
    offsets.push_back(total);
    total += counts.back();
  }
  std::vector<char> joined(static_cast<std::size_t>(total));
  MPI_Request request = MPI_REQUEST_NULL;
  const std::uint32_t number = begin_call(kCallText);
  mpi_call(MPI_Iallgatherv(text.data(),
                           static_cast<int>(text.size()),
                           MPI_CHAR,
                           joined.data(),
                           counts.data(),
                           offsets.data(),
                           MPI_CHAR,
                           comm_,
                           &request),
           "MPI_Iallgatherv");
  wait_request(kCallText, number, request);
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    texts.emplace_back(joined.data() + offsets[rank], static_cast<std::size_t>(counts[rank]));
  }
  return texts;
}

}  // namespace lockstep
