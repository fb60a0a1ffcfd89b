#include "formats/tokenizer_json.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "formats/strict_json.h"

namespace lockstep {

namespace {

using Json = nlohmann::json;

// The member, or null where it is missing: files leave out what is at its default.
const Json& member(const Json& object, const char* key) {
  static const Json missing;
  const auto found = object.find(key);
  return found == object.end() ? missing : *found;
}

std::string type_of(const Json& object, const std::string& where) {
  if (!object.is_object() || !member(object, "type").is_string()) {
    throw_request_error("{}: expected an object with a \"type\", found {}",
                        where,
                        object.is_object() ? "none" : object.type_name());
  }
  return member(object, "type").get<std::string>();
}

bool flag(const Json& object, const char* key, bool otherwise, const std::string& where) {
  const Json& value = member(object, key);
  if (value.is_null()) {
    return otherwise;
  }
  if (!value.is_boolean()) {
    throw_request_error("{}: {} is a {}, expected true or false", where, key, value.type_name());
  }
  return value.get<bool>();
}

void read_split(const Json& step, const std::string& where, TokenizerTables& tables) {
  const Json& pattern = member(step, "pattern");
  SplitStep split;
  if (pattern.is_object() && member(pattern, "Regex").is_string()) {
    split.pattern = member(pattern, "Regex").get<std::string>();
  } else if (pattern.is_object() && member(pattern, "String").is_string()) {
    split.pattern = member(pattern, "String").get<std::string>();
    split.literal = true;
  } else {
    throw_request_error("{}: Split needs a pattern that is a Regex or a String", where);
  }
  const Json& behavior = member(step, "behavior");
  const bool invert = flag(step, "invert", false, where);
  split.must_cover = invert && behavior == "Removed";
  if (behavior != "Isolated" && !split.must_cover) {
    throw_request_error("{}: Split with behavior {}{} is not supported, only Isolated",
                        where,
                        behavior.dump(),
                        invert ? " inverted" : "");
  }
  tables.steps.push_back(std::move(split));
}

// Returns whether the step was the byte-level one, which must come last.
bool read_pre_tokenizer(const Json& step, const std::string& where, TokenizerTables& tables) {
  const std::string type = type_of(step, where);
  if (type == "Split") {
    read_split(step, where, tables);
  } else if (type == "Digits") {
    SplitStep digits;
    digits.pattern = flag(step, "individual_digits", false, where) ? "\\p{N}" : "\\p{N}+";
    tables.steps.push_back(std::move(digits));
  } else if (type == "ByteLevel") {
    if (flag(step, "add_prefix_space", true, where)) {
      throw_request_error(
          "{}: add_prefix_space is not supported: texts would not come back as "
          "they were",
          where);
    }
    if (flag(step, "use_regex", true, where)) {
      SplitStep gpt2;
      gpt2.pattern = kGpt2Pattern;
      tables.steps.push_back(std::move(gpt2));
    }
    return true;
  } else {
    throw_request_error(
        "{}: the pre-tokenizer is {}, expected ByteLevel, Split, Digits or a "
        "Sequence of them",
        where,
        type);
  }
  return false;
}

void read_pre_tokenizers(const Json& pre_tokenizer,
                         const std::string& path,
                         TokenizerTables& tables) {
  if (pre_tokenizer.is_null()) {
    throw_request_error("{}: no pre_tokenizer, expected ByteLevel", path);
  }
  Json steps = Json::array({pre_tokenizer});
  if (type_of(pre_tokenizer, path + ": pre_tokenizer") == "Sequence") {
    const Json& list = member(pre_tokenizer, "pretokenizers");
    if (!list.is_array() || list.empty()) {
      throw_request_error("{}: pre_tokenizer: a Sequence needs a list of pretokenizers", path);
    }
    steps = list;
  }
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::string where = fmt::format("{}: pre_tokenizer {}", path, i);
    const bool byte_level = read_pre_tokenizer(steps[i], where, tables);
    if (byte_level != (i + 1 == steps.size())) {
      throw_request_error("{}: ByteLevel must be the last pre-tokenizer and stand once", where);
    }
  }
}

void check_model(const Json& model, const std::string& path) {
  if (!model.is_object()) {
    throw_request_error("{}: no \"model\" object: not a tokenizer.json", path);
  }
  // Files of the first versions left the type out.
  const Json& type = member(model, "type");
  if (!(type.is_null() && model.contains("merges")) && type != "BPE") {
    throw_request_error("{}: the model is {}, expected BPE",
                        path,
                        type.is_string() ? type.get<std::string>() : type.dump());
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const Json& value = member(model, key);
    if (!value.is_null() && value != Json(std::string())) {
      throw_request_error("{}: model.{} is {}, expected none", path, key, value.dump());
    }
  }
  if (const Json& dropout = member(model, "dropout"); !dropout.is_null() && dropout != 0.0) {
    throw_request_error("{}: model.dropout is {}, expected none", path, dropout.dump());
  }
  if (flag(model, "byte_fallback", false, path)) {
    throw_request_error(
        "{}: model.byte_fallback is set: a SentencePiece-like BPE, expected a "
        "byte-level one",
        path);
  }
}

void check_normalizer_and_decoder(const Json& root, const std::string& path) {
  if (const Json& normalizer = member(root, "normalizer"); !normalizer.is_null()) {
    throw_request_error("{}: the normalizer is {}, expected none",
                        path,
                        type_of(normalizer, path + ": normalizer"));
  }
  const Json& decoder = member(root, "decoder");
  const std::string type = decoder.is_null() ? "missing" : type_of(decoder, path + ": decoder");
  if (type != "ByteLevel") {
    throw_request_error("{}: the decoder is {}, expected ByteLevel", path, type);
  }
}

void read_merges(const Json& merges,
                 const TokenIds& ids,
                 const std::string& path,
                 TokenizerTables& tables) {
  if (!merges.is_array()) {
    throw_request_error("{}: model.merges is a {}, expected a list", path, merges.type_name());
  }
  tables.merges.reserve(merges.size());
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const Json& merge = merges[i];
    const std::string where = fmt::format("{}: merge {}", path, i);
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      append_merge(merge[0].get<std::string>(), merge[1].get<std::string>(), ids, where, tables);
      continue;
    }
    const std::string text = merge.is_string() ? merge.get<std::string>() : std::string();
    const std::size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
      throw_request_error("{} is {}, expected two tokens", where, merge.dump());
    }
    append_merge(text.substr(0, space), text.substr(space + 1), ids, where, tables);
  }
}

AddedToken read_added_token(const Json& entry, const std::string& where) {
  if (!entry.is_object() || !member(entry, "content").is_string() ||
      !member(entry, "id").is_number_integer()) {
    throw_request_error("{}: expected an object with a content and an integer id", where);
  }
  AddedToken token;
  token.content = member(entry, "content").get<std::string>();
  const auto id = member(entry, "id").get<std::int64_t>();
  if (token.content.empty() || id < 0 || id >= kMaxTokens) {
    throw_request_error("{}: content '{}' with id {}: expected a text and an id from 0 to {}",
                        where,
                        token.content,
                        id,
                        kMaxTokens - 1);
  }
  token.id = static_cast<std::int32_t>(id);
  token.special = flag(entry, "special", false, where);
  token.normalized = flag(entry, "normalized", !token.special, where);
  for (const char* key : {"single_word", "lstrip", "rstrip"}) {
    if (flag(entry, key, false, where)) {
      throw_request_error("{}: '{}' sets {}, which is not supported", where, token.content, key);
    }
  }
  return token;
}

void read_added_tokens(const Json& list,
                       const std::string& path,
                       TokenIds& ids,
                       TokenizerTables& tables) {
  if (list.is_null()) {
    return;
  }
  if (!list.is_array()) {
    throw_request_error("{}: added_tokens is a {}, expected a list", path, list.type_name());
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string where = fmt::format("{}: added token {}", path, i);
    AddedToken token = read_added_token(list[i], where);
    const auto [entry, inserted] = ids.try_emplace(token.content, token.id);
    if (!inserted && entry->second != token.id) {
      throw_request_error("{}: '{}' has id {} here and id {} before",
                          where,
                          token.content,
                          token.id,
                          entry->second);
    }
    tables.added.push_back(std::move(token));
  }
}

}  // namespace

TokenIds read_vocabulary(const Json& object, const std::string& name) {
  if (!object.is_object() || object.empty()) {
    throw_request_error("{}: the vocabulary is {}, expected an object of ids by token",
                        name,
                        object.is_object() ? "empty" : object.type_name());
  }
  TokenIds ids;
  ids.reserve(object.size());
  for (const auto& [token, value] : object.items()) {
    if (!value.is_number_integer() || token.empty()) {
      throw_request_error("{}: token '{}' has the id {}, expected a text and an integer",
                          name,
                          token,
                          value.dump());
    }
    // An unsigned number above the range of std::int64_t reads as negative.
    const auto id = value.get<std::int64_t>();
    if (id < 0 || id >= kMaxTokens) {
      throw_request_error("{}: token '{}' has the id {}, expected 0 to {}",
                          name,
                          token,
                          value.dump(),
                          kMaxTokens - 1);
    }
    ids.emplace(token, static_cast<std::int32_t>(id));
  }
  return ids;
}

void append_merge(const std::string& left,
                  const std::string& right,
                  const TokenIds& ids,
                  const std::string& where,
                  TokenizerTables& tables) {
  const std::array<std::string, 3> texts = {left, right, left + right};
  std::array<std::int32_t, 3> found{};
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto entry = ids.find(texts[i]);
    if (entry == ids.end()) {
      throw_request_error(
          "{}: '{}' + '{}': '{}' is not in the vocabulary", where, left, right, texts[i]);
    }
    found[i] = entry->second;
  }
  tables.merges.push_back({found[0], found[1], found[2]});
}

void fill_tokens(const TokenIds& ids, TokenizerTables& tables) {
  tables.tokens.assign(ids.size(), std::string());
  for (const auto& [token, id] : ids) {
    if (static_cast<std::size_t>(id) >= ids.size()) {
      throw_request_error(
          "{}: '{}' has the id {}, but there are only {} tokens: ids must be "
          "0 to {} without a gap",
          tables.source,
          token,
          id,
          ids.size(),
          ids.size() - 1);
    }
    std::string& place = tables.tokens[static_cast<std::size_t>(id)];
    if (!place.empty()) {
      throw_request_error("{}: '{}' and '{}' both have the id {}", tables.source, place, token, id);
    }
    place = token;
  }
}

TokenizerTables read_tokenizer_json(const std::string& path) {
  const Json root = parse_strict_json(read_small_file(path, kMaxTokenizerBytes), path);
  if (!root.is_object()) {
    throw_request_error("{}: a {}, expected an object", path, root.type_name());
  }
  TokenizerTables tables;
  tables.source = path;
  const Json& model = member(root, "model");
  check_model(model, path);
  read_pre_tokenizers(member(root, "pre_tokenizer"), path, tables);
  check_normalizer_and_decoder(root, path);
  tables.ignore_merges = flag(model, "ignore_merges", false, path);
  TokenIds ids = read_vocabulary(member(model, "vocab"), path);
  read_merges(member(model, "merges"), ids, path, tables);
  read_added_tokens(member(root, "added_tokens"), path, ids, tables);
  fill_tokens(ids, tables);
  return tables;
}

}  // namespace lockstep
