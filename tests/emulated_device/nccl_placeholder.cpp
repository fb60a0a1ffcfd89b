namespace lockstep::emulated {
void check_no_open_group(const char*) {}
}  // namespace lockstep::emulated
