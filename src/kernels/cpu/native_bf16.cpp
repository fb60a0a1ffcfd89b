#include "kernels/cpu/native_bf16.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <type_traits>
#include <unordered_map>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <oneapi/dnnl/dnnl.h>

#include "base/error.h"
#include "base/integers.h"
#include "kernels/matmul.h"

namespace lockstep {
namespace {

// Rows or columns of c that one call computes, at most.
constexpr long kPanel = 256;

void check(dnnl_status_t status, const char* call) {
  if (status != dnnl_success) {
    throw_error("oneDNN: {} failed with status {}", call, static_cast<int>(status));
  }
}

template <auto Destroy>
struct Destroyer {
  template <typename T>
  void operator()(T* handle) const {
    Destroy(handle);
  }
};

template <typename Handle, auto Destroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroyer<Destroy>>;
using Engine = Owned<dnnl_engine_t, dnnl_engine_destroy>;
using Stream = Owned<dnnl_stream_t, dnnl_stream_destroy>;
using Attributes = Owned<dnnl_primitive_attr_t, dnnl_primitive_attr_destroy>;
using PostOps = Owned<dnnl_post_ops_t, dnnl_post_ops_destroy>;
using Description = Owned<dnnl_primitive_desc_t, dnnl_primitive_desc_destroy>;
using Primitive = Owned<dnnl_primitive_t, dnnl_primitive_destroy>;
using Buffer = Owned<dnnl_memory_t, dnnl_memory_destroy>;

// What a primitive is made for. All members are of one size, so that it can be compared as bytes.
struct Key {
  long m = 0;
  long n = 0;
  long k = 0;
  long a_stride = 0;
  long b_stride = 0;
  long c_stride = 0;
  long form = 0;  ///< bits: a transposed, b transposed, accumulated, c in f32

  friend bool operator==(const Key&, const Key&) = default;
};

struct KeyHash {
  std::size_t operator()(const Key& key) const {
    std::uint64_t hash = 0;
    for (const long value :
         {key.m, key.n, key.k, key.a_stride, key.b_stride, key.c_stride, key.form}) {
      hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x9e3779b97f4a7c15U;
      hash ^= hash >> 32U;
    }
    return hash;
  }
};

struct Call {
  Primitive primitive;
  Buffer a;
  Buffer b;
  Buffer c;
};

// Everything of oneDNN that one thread uses. Handles are set before each execution, so primitives
// and their buffers cannot be shared; oneDNN shares the compiled code of equal ones.
class ThreadCalls {
 public:
  ThreadCalls() {
    dnnl_engine_t engine = nullptr;
    check(dnnl_engine_create(&engine, dnnl_cpu, 0), "dnnl_engine_create");
    engine_.reset(engine);
    dnnl_stream_t stream = nullptr;
    check(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "dnnl_stream_create");
    stream_.reset(stream);
  }

  void execute(const Key& key, void* a, void* b, void* c) {
    auto found = calls_.find(key);
    if (found == calls_.end()) {
      found = calls_.emplace(key, create(key)).first;
    }
    const Call& call = found->second;
    check(dnnl_memory_set_data_handle(call.a.get(), a), "dnnl_memory_set_data_handle");
    check(dnnl_memory_set_data_handle(call.b.get(), b), "dnnl_memory_set_data_handle");
    check(dnnl_memory_set_data_handle(call.c.get(), c), "dnnl_memory_set_data_handle");
    const std::array<dnnl_exec_arg_t, 3> arguments = {{{DNNL_ARG_SRC, call.a.get()},
                                                       {DNNL_ARG_WEIGHTS, call.b.get()},
                                                       {DNNL_ARG_DST, call.c.get()}}};
    check(dnnl_primitive_execute(call.primitive.get(),
                                 stream_.get(),
                                 static_cast<int>(arguments.size()),
                                 arguments.data()),
          "dnnl_primitive_execute");
    check(dnnl_stream_wait(stream_.get()), "dnnl_stream_wait");
  }

 private:
  static dnnl_memory_desc_t describe(long rows, long cols, long stride, bool transposed, bool f32) {
    const dnnl_dims_t sizes = {rows, cols};
    const dnnl_dims_t strides = {transposed ? 1 : stride, transposed ? stride : 1};
    dnnl_memory_desc_t description;
    check(dnnl_memory_desc_init_by_strides(
              &description, 2, sizes, f32 ? dnnl_f32 : dnnl_bf16, strides),
          "dnnl_memory_desc_init_by_strides");
    return description;
  }

  [[nodiscard]] Buffer buffer(const dnnl_memory_desc_t& description) const {
    dnnl_memory_t memory = nullptr;
    check(dnnl_memory_create(&memory, &description, engine_.get(), DNNL_MEMORY_NONE),
          "dnnl_memory_create");
    return Buffer(memory);
  }

  static Attributes attributes(bool accumulate) {
    dnnl_primitive_attr_t attributes = nullptr;
    check(dnnl_primitive_attr_create(&attributes), "dnnl_primitive_attr_create");
    Attributes owned(attributes);
    if (accumulate) {
      dnnl_post_ops_t post_ops = nullptr;
      check(dnnl_post_ops_create(&post_ops), "dnnl_post_ops_create");
      const PostOps owned_post_ops(post_ops);
      check(dnnl_post_ops_append_sum(post_ops, 1.0F), "dnnl_post_ops_append_sum");
      check(dnnl_primitive_attr_set_post_ops(attributes, post_ops),
            "dnnl_primitive_attr_set_post_ops");
    }
    return owned;
  }

  [[nodiscard]] Call create(const Key& key) const {
    const auto form = static_cast<unsigned long>(key.form);
    const auto a = describe(key.m, key.k, key.a_stride, (form & 1U) != 0, false);
    const auto b = describe(key.k, key.n, key.b_stride, (form & 2U) != 0, false);
    const auto c = describe(key.m, key.n, key.c_stride, false, (form & 8U) != 0);
    dnnl_matmul_desc_t operation;
    check(dnnl_matmul_desc_init(&operation, &a, &b, nullptr, &c), "dnnl_matmul_desc_init");
    const Attributes attributes_of_call = attributes((form & 4U) != 0);
    dnnl_primitive_desc_t description = nullptr;
    check(dnnl_primitive_desc_create(
              &description, &operation, attributes_of_call.get(), engine_.get(), nullptr),
          "dnnl_primitive_desc_create (bf16 matmul)");
    const Description owned_description(description);
    dnnl_primitive_t primitive = nullptr;
    check(dnnl_primitive_create(&primitive, description), "dnnl_primitive_create");
    return {Primitive(primitive), buffer(a), buffer(b), buffer(c)};
  }

  Engine engine_;
  Stream stream_;
  std::unordered_map<Key, Call, KeyHash> calls_;
};

ThreadCalls& calls_of_this_thread() {
  thread_local ThreadCalls calls;
  return calls;
}

bool onednn_may_use(dnnl_cpu_isa_t isa) {
  const auto wanted = static_cast<unsigned>(isa);
  return (static_cast<unsigned>(dnnl_get_effective_cpu_isa()) & wanted) == wanted;
}

bool vendor_is_amd() {
#if defined(__x86_64__)
  unsigned highest = 0;
  std::array<unsigned, 3> name{};
  if (__get_cpuid(0, &highest, name.data(), name.data() + 2, name.data() + 1) != 0) {
    return std::memcmp(name.data(), "AuthenticAMD", 12) == 0;
  }
#endif
  return false;
}

bool prefer_native_bf16() {
  const bool available = native_bf16_is_available();
  const char* choice = std::getenv("LOCKSTEP_BF16_MATMUL");
  if (choice == nullptr) {
    return onednn_may_use(dnnl_cpu_isa_avx512_core_amx) || (available && vendor_is_amd());
  }
  const std::string_view wanted = choice;
  if (wanted != "native" && wanted != "f32") {
    throw_request_error("LOCKSTEP_BF16_MATMUL={}: expected native or f32", wanted);
  }
  if (wanted == "native" && !available) {
    throw_error(
        "LOCKSTEP_BF16_MATMUL=native: this processor (or ONEDNN_MAX_CPU_ISA) offers no bf16 "
        "instructions; use f32");
  }
  return wanted == "native";
}

// Rows or columns of c a call, decided by the shape alone. An even number of panels of one size, so
// that two or four threads end together.
long panel_size(long longer) {
  const long panels = ceil_div(longer, kPanel);
  const long multiple = panels > 2 ? 4 : panels;
  return round_up(ceil_div(longer, round_up(panels, multiple)), 32L);
}

}  // namespace

bool native_bf16_is_available() {
  return onednn_may_use(dnnl_cpu_isa_avx512_core_bf16);
}

bool native_bf16_is_preferred() {
  static const bool preferred = prefer_native_bf16();
  return preferred;
}

std::string native_bf16_name() {
  const dnnl_version_t& version = *dnnl_version();
  return fmt::format("onednn {}.{}.{} {}",
                     version.major,
                     version.minor,
                     version.patch,
                     onednn_may_use(dnnl_cpu_isa_avx512_core_amx) ? "amx" : "avx512_bf16");
}

void multiply_native_bf16(ThreadPool& threads, const MatMul& op) {
  if (!native_bf16_is_available()) {
    throw_error("native bf16 products: this processor has no bf16 instructions");
  }
  const bool by_rows = op.m() > op.n();
  const long longer = std::max(op.m(), op.n());
  const unsigned long form = (op.transpose_a ? 1U : 0U) | (op.transpose_b ? 2U : 0U) |
                             (op.accumulate ? 4U : 0U) | (op.c.dtype == DType::kF32 ? 8U : 0U);
  const long size = panel_size(longer);
  threads.run(ceil_div(longer, size), [&](long panel) {
    const long first = panel * size;
    const long count = std::min(size, longer - first);
    Matrix a = op.a;
    Matrix b = op.b;
    Matrix c = op.c;
    if (by_rows) {
      a = op.transpose_a ? a.columns(first, count) : a.row_range(first, count);
      c = c.row_range(first, count);
    } else {
      b = op.transpose_b ? b.row_range(first, count) : b.columns(first, count);
      c = c.columns(first, count);
    }
    const Key key = {c.rows, c.cols, op.k(), a.stride, b.stride, c.stride, static_cast<long>(form)};
    calls_of_this_thread().execute(key, a.data, b.data, c.data);
  });
}

}  // namespace lockstep
