// Numbers as people read them: for messages and tables, never for files that programs read.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

/// Powers of 1024 with one decimal from KiB on: "512 B", "1.5 GiB". A value that would round to
/// 1024.0 takes the next unit. Negative values keep their sign.
std::string human_bytes(std::int64_t bytes);

/// Powers of 1000 with one decimal: "950", "10.7 M", "1.2 G". Below 1000 whole numbers stand bare
/// and others have one decimal. Not finite: "-".
std::string human_count(double count);

/// The two largest units: "0.42s", "42s", "3m 12s", "2h 05m", "3d 04h"; seconds are rounded first.
/// Negative or not finite: "-".
std::string human_duration(double seconds);

}  // namespace lockstep
