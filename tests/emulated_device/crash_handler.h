// What happens when the host touches memory that only the device may touch.
#pragma once

namespace lockstep::emulated {

/// Ends the program with a message for the host's accesses to memory of the device, and to pinned memory that a copy
/// under way uses. Other crashes go on to the handler from before. Called whenever memory is closed to the host, as others
/// (test frameworks) set handlers, too.
void install_crash_handler();

}  // namespace lockstep::emulated
