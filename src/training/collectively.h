// Local work that may fail on one rank only: all ranks then fail alike instead of waiting for it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"

namespace lockstep {

/// Calls `work`, which must not communicate, on every rank. If it throws a RequestError anywhere,
/// all ranks throw the RequestError of the lowest such rank. Collective.
template <typename Work>
void collectively(Communicator& group, Work&& work) {
  std::string refusal;
  try {
    std::forward<Work>(work)();
  } catch (const RequestError& failure) {
    refusal = failure.what();
  }
  if (group.size() == 1) {
    if (!refusal.empty()) {
      throw RequestError(refusal);
    }
    return;
  }
  const std::vector<std::string> all = group.all_gather_text(refusal);
  for (const std::string& text : all) {
    if (!text.empty()) {
      throw RequestError(text);
    }
  }
}

}  // namespace lockstep
