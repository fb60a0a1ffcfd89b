// The test framework, whatever its major version is called: include this, not Catch2's headers.
#pragma once

#include <catch2/catch.hpp>
