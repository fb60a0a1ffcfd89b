// Entry point of lockstep: see cli/application.h, and src/README.md for a walk through one step.
#include "cli/application.h"

int main(int argc, char** argv) {
  return lockstep::run_application(argc, argv);
}
