// The memory of a run in words and as JSON.
#pragma once

#include <string>

#include "planning/memory_report.h"
#include "planning/plan_outline.h"

namespace lockstep {

/// A table for people.
std::string text_of(const MemoryReport& report, const PlanOutline& plan);
/// One JSON object and a line end; in bytes.
std::string json_of(const MemoryReport& report, const PlanOutline& plan);

}  // namespace lockstep
