// The rows of the key table.
#include "cli/key_table.h"

namespace lockstep {
namespace {

using Table = std::vector<Key>;

// Largest size of a dimension or a count: products of two of them still fit in 64 bits.
constexpr double kMaxSize = 2147483647.0;
// Largest number of steps, samples and the like: exact in the numbers of JSON files.
constexpr double kMaxCount = 1e15;

Allowed one_of(std::vector<std::string_view> choices) {
  Allowed allowed;
  allowed.choices = std::move(choices);
  return allowed;
}
Allowed between(double low, double high) {
  Allowed allowed;
  allowed.low = low;
  allowed.high = high;
  return allowed;
}
Allowed size() {
  return between(1, kMaxSize);
}
Allowed size_or_zero() {
  return between(0, kMaxSize);
}
Allowed count() {
  return between(0, kMaxCount);
}
Allowed not_negative() {
  Allowed allowed;
  allowed.low = 0.0;
  return allowed;
}
Allowed positive() {
  Allowed allowed = not_negative();
  allowed.low_excluded = true;
  return allowed;
}
Allowed below_one() {
  Allowed allowed = between(0.0, 1.0);
  allowed.high_excluded = true;
  return allowed;
}
Allowed filled() {
  Allowed allowed;
  allowed.may_be_empty = false;
  return allowed;
}
Allowed any() {
  return {};
}

// Adds the rows of one section, which is the member `Section` of the configuration.
template <auto Section>
class Rows {
 public:
  Rows(std::string_view section, Table& table) : section_(section), table_(table) {}

  template <auto Member>
  void add(std::string_view name, Allowed allowed, std::string_view help) {
    Key key;
    key.section = section_;
    key.name = name;
    key.help = help;
    key.allowed = std::move(allowed);
    key.default_value = value_in<Member>(Configuration{});
    key.get = &value_in<Member>;
    key.set = &set_in<Member>;
    table_.push_back(std::move(key));
  }

 private:
  template <auto Member>
  static Value value_in(const Configuration& config) {
    return (config.*Section).*Member;
  }
  template <auto Member>
  static void set_in(Configuration& config, const Value& value) {
    auto& member = (config.*Section).*Member;
    member = std::get<std::remove_reference_t<decltype(member)>>(value);
  }

  std::string_view section_;
  Table& table_;
};

void add_model(Table& table) {
  Rows<&Configuration::model> row{"model", table};
  using Section = ModelConfig;
  row.add<&Section::architecture>(
      "architecture", one_of({"mlp", "gpt2", "llama"}), "kind of network");
  row.add<&Section::layer_sizes>("layer_sizes", size(), "mlp: inputs, hidden layers, classes");
  row.add<&Section::num_layers>("num_layers", size(), "transformer blocks");
  row.add<&Section::hidden_size>("hidden_size", size(), "width of the residual stream");
  row.add<&Section::num_heads>("num_heads", size(), "attention heads; must divide hidden_size");
  row.add<&Section::num_kv_heads>(
      "num_kv_heads", size_or_zero(), "key and value heads; 0: as num_heads");
  row.add<&Section::ffn_hidden_size>("ffn_hidden_size",
                                     size_or_zero(),
                                     "0: 4 x hidden (gpt2), 8/3 x hidden rounded up to 64 (llama)");
  row.add<&Section::seq_length>("seq_length", size(), "tokens of a sample: the context");
  row.add<&Section::vocab_size>("vocab_size", size_or_zero(), "0: from the data or the tokeniser");
  row.add<&Section::tie_embeddings>(
      "tie_embeddings", any(), "input and output share one embedding");
  row.add<&Section::norm_epsilon>("norm_epsilon", positive(), "added to variances");
  row.add<&Section::rope_theta>("rope_theta", positive(), "llama: base of the rotary frequencies");
  row.add<&Section::dropout>(
      "dropout",
      below_one(),
      "gpt2: probability of dropping embeddings, attention and what joins the residual");
  row.add<&Section::init_from>(
      "init_from", any(), "checkpoint, Hugging Face folder or .gguf to start from");
}

void add_data(Table& table) {
  Rows<&Configuration::data> row{"data", table};
  using Section = DataConfig;
  row.add<&Section::kind>("kind", one_of({"tokens", "images", "synthetic"}), "kind of samples");
  row.add<&Section::train>(
      "train", any(), "tokens: a file or glob of shards; images: folder of the IDX files");
  row.add<&Section::validation>("validation", any(), "as train; \"\": no evaluation");
  row.add<&Section::ignore_token>(
      "ignore_token", between(-1, kMaxSize), "target id that is not trained; -1: none");
  row.add<&Section::tokenizer>(
      "tokenizer", any(), "folder or file; \"bytes\": raw bytes; \"\": none");
  row.add<&Section::shuffle>("shuffle", any(), "a new order every epoch");
}

void add_train(Table& table) {
  Rows<&Configuration::train> row{"train", table};
  using Section = TrainConfig;
  row.add<&Section::output_dir>("output_dir", filled(), "folder of the run");
  row.add<&Section::steps>("steps", count(), "optimiser steps; 0: counted in epochs");
  row.add<&Section::epochs>("epochs", count(), "passes over the data; 0: counted in steps");
  row.add<&Section::global_batch_size>(
      "global_batch_size", size(), "samples an optimiser step, over all ranks");
  row.add<&Section::micro_batch_size>(
      "micro_batch_size", size(), "samples a forward pass on one rank");
  row.add<&Section::recompute>("recompute",
                               one_of({"none", "selective", "full"}),
                               "activations computed again in the backward pass");
  row.add<&Section::eval_interval>("eval_interval", count(), "steps between evaluations; 0: never");
  row.add<&Section::eval_batches>("eval_batches", count(), "0: the whole validation set, once");
}

void add_run(Table& table) {
  Rows<&Configuration::run> row{"run", table};
  using Section = RunConfig;
  row.add<&Section::device>("device", one_of({"auto", "cpu", "cuda"}), "where kernels run");
  row.add<&Section::precision>("precision", one_of({"f32", "bf16", "fp8"}), "type of activations");
  row.add<&Section::threads>(
      "threads", between(0, 65536), "a rank; 0: the cores it is bound to, shared fairly");
  row.add<&Section::seed>("seed", count(), "of everything random");
}

void add_parallel(Table& table) {
  Rows<&Configuration::parallel> row{"parallel", table};
  using Section = ParallelConfig;
  row.add<&Section::tensor>("tensor", size(), "ranks that share each layer");
  row.add<&Section::pipeline>("pipeline", size(), "ranks that share the sequence of layers");
  row.add<&Section::data>("data", size_or_zero(), "ranks that share the batch; 0: those left");
  row.add<&Section::sequence>("sequence", any(), "sequence-parallel norms in the tensor group");
  row.add<&Section::schedule>("schedule",
                              one_of({"gpipe", "1f1b", "interleaved", "zero-bubble"}),
                              "order of work in a pipeline");
  row.add<&Section::virtual_stages>("virtual_stages", size(), "interleaved: model chunks a rank");
  row.add<&Section::zero_stage>("zero_stage",
                                one_of({"0", "1", "2", "3"}),
                                "what data ranks share: states, gradients, weights");
  row.add<&Section::reduction>(
      "reduction", one_of({"ordered", "native"}), "ordered: same bits on every layout");
  row.add<&Section::accumulate>(
      "accumulate", one_of({"fold-tree", "tree-fold"}), "order of summing micro-batches");
  row.add<&Section::virtual_data>(
      "virtual_data", size_or_zero(), "data degree that decides the bits; 0: of the first start");
  row.add<&Section::virtual_tensor>("virtual_tensor",
                                    size_or_zero(),
                                    "tensor degree that decides the bits; 0: of the first start");
  row.add<&Section::bucket_mib>(
      "bucket_mib", between(1, 1048576), "MiB of gradients sent together");
  row.add<&Section::overlap>("overlap", any(), "reduce gradients while computing");
  row.add<&Section::backend>("backend", one_of({"auto", "mpi", "nccl"}), "who carries messages");
}

void add_optimizer(Table& table) {
  Rows<&Configuration::optimizer> row{"optimizer", table};
  using Section = OptimizerConfig;
  row.add<&Section::name>("name", one_of({"sgd", "adamw"}), "update rule");
  row.add<&Section::lr>("lr", not_negative(), "peak learning rate");
  row.add<&Section::momentum>("momentum", below_one(), "sgd");
  row.add<&Section::weight_decay>(
      "weight_decay", not_negative(), "on parameters of two or more dimensions");
  row.add<&Section::beta1>("beta1", below_one(), "adamw: decay of the mean");
  row.add<&Section::beta2>("beta2", below_one(), "adamw: decay of the mean square");
  row.add<&Section::epsilon>("epsilon", positive(), "adamw");
  row.add<&Section::grad_clip>("grad_clip", not_negative(), "largest gradient norm; 0: off");

  Rows<&Configuration::lr_schedule> schedule{"lr_schedule", table};
  using Schedule = LrScheduleConfig;
  schedule.add<&Schedule::name>(
      "name", one_of({"constant", "linear", "cosine", "wsd"}), "course after the warm-up");
  schedule.add<&Schedule::warmup_steps>("warmup_steps", count(), "steps of linear rise");
  schedule.add<&Schedule::min_lr>("min_lr", not_negative(), "learning rate at the end");
  schedule.add<&Schedule::decay_steps>("decay_steps", count(), "wsd: steps of the final decay");
}

void add_checkpoint_and_fault(Table& table) {
  Rows<&Configuration::checkpoint> row{"checkpoint", table};
  using Section = CheckpointConfig;
  row.add<&Section::interval>("interval", count(), "steps; 0: only at the end");
  row.add<&Section::keep>("keep", size(), "newest checkpoints that stay");
  row.add<&Section::resume>("resume", filled(), "auto | never | a checkpoint");
  row.add<&Section::async_write>("async", any(), "write while training goes on");

  Rows<&Configuration::fault> fault{"fault", table};
  using Fault = FaultConfig;
  fault.add<&Fault::nan>("nan", one_of({"stop", "skip"}), "when a loss or gradient is not finite");
  fault.add<&Fault::hang_timeout_seconds>(
      "hang_timeout_seconds", size(), "seconds after which a silent rank counts as lost");
}

void add_generate(Table& table) {
  Rows<&Configuration::generate> row{"generate", table};
  using Section = GenerateConfig;
  row.add<&Section::prompt>("prompt", any(), "text to continue");
  row.add<&Section::prompts>("prompts", any(), "file of prompts; \"-\": standard input");
  row.add<&Section::chat>("chat", any(), "prompts are messages of a chat");
  row.add<&Section::max_tokens>("max_tokens", size(), "tokens a sample at most");
  row.add<&Section::temperature>("temperature", not_negative(), "0: greedy");
  row.add<&Section::top_k>("top_k", size_or_zero(), "0: off");
  row.add<&Section::top_p>("top_p", between(0.0, 1.0), "1: off");
  row.add<&Section::min_p>("min_p", between(0.0, 1.0), "0: off");
  row.add<&Section::repetition_penalty>("repetition_penalty", positive(), "1: off");
  row.add<&Section::stop>("stop", any(), "texts that end a sample");
  row.add<&Section::ignore_eos>("ignore_eos", any(), "go on after the end token");
  row.add<&Section::num_samples>("num_samples", size(), "samples a prompt");
  row.add<&Section::max_batch>("max_batch", size(), "sequences in flight");
  row.add<&Section::json>("json", any(), "a JSON object a line and sample");
}

void add_other_commands(Table& table) {
  Rows<&Configuration::evaluate> evaluate{"evaluate", table};
  using Evaluate = EvaluateConfig;
  evaluate.add<&Evaluate::data>(
      "data", any(), "token file, IDX folder, or multiple-choice JSON lines");
  evaluate.add<&Evaluate::stride>("stride", size_or_zero(), "sliding window; 0: the context");
  evaluate.add<&Evaluate::json>("json", any(), "one JSON object");

  Rows<&Configuration::quantize> quantize{"quantize", table};
  using Quantize = QuantizeConfig;
  quantize.add<&Quantize::method>("method", one_of({"rtn", "gptq"}), "how weights are rounded");
  quantize.add<&Quantize::bits>("bits", one_of({"8", "4"}), "bits a weight");
  quantize.add<&Quantize::group_size>(
      "group_size", size_or_zero(), "weights a scale; 0: 8 bits a row, 4 bits 128");
  quantize.add<&Quantize::symmetric>("symmetric", any(), "no zero points");
  quantize.add<&Quantize::calibration>("calibration", any(), "token file");
  quantize.add<&Quantize::output>("output", any(), "folder of the result");

  Rows<&Configuration::prune> prune{"prune", table};
  using Prune = PruneConfig;
  prune.add<&Prune::method>(
      "method", one_of({"magnitude", "wanda", "structured"}), "how weights are chosen");
  prune.add<&Prune::pattern>("pattern", one_of({"unstructured", "2:4"}), "where zeros may stand");
  prune.add<&Prune::sparsity>("sparsity", below_one(), "fraction of zeros");
  prune.add<&Prune::scope>("scope", one_of({"layer", "global"}), "where weights compete");
  prune.add<&Prune::calibration>("calibration", any(), "token file");
  prune.add<&Prune::output>("output", any(), "folder of the result");

  Rows<&Configuration::tokenize> tokenize{"tokenize", table};
  using Tokenize = TokenizeConfig;
  tokenize.add<&Tokenize::input>("input", any(), "glob of text files");
  tokenize.add<&Tokenize::output>("output", any(), "token file to write");
  tokenize.add<&Tokenize::validation>(
      "validation", below_one(), "fraction for a second file beside it; 0: none");
}

void add_log(Table& table) {
  Rows<&Configuration::log> row{"log", table};
  using Section = LogConfig;
  row.add<&Section::interval>("interval", between(1, kMaxCount), "steps between lines of metrics");
  row.add<&Section::level>(
      "level", one_of({"trace", "debug", "info", "warn", "error"}), "least severe message shown");
  row.add<&Section::progress>("progress", any(), "a live line on a terminal");
  row.add<&Section::tensorboard>("tensorboard", any(), "write event files");
  row.add<&Section::trace>("trace", any(), "\"12:14\" traces steps 12 and 13");
}

}  // namespace

const std::vector<Key>& key_table() {
  static const Table table = [] {
    Table rows;
    add_model(rows);
    add_data(rows);
    add_train(rows);
    add_run(rows);
    add_parallel(rows);
    add_optimizer(rows);
    add_checkpoint_and_fault(rows);
    add_generate(rows);
    add_other_commands(rows);
    add_log(rows);
    return rows;
  }();
  return table;
}

const std::vector<NotYetAvailable>& not_yet_available() {
  static const std::vector<NotYetAvailable> entries = {
      {"run.precision", {"f32", "bf16"}},
      {"generate", {}},
      {"quantize", {}},
      {"prune", {}},
  };
  return entries;
}

}  // namespace lockstep
