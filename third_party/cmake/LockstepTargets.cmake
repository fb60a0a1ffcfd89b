# How this project's libraries, programs and tests are declared.

# Flags of every target. Contraction is off: a fused multiply-add stands only where the source says so,
# because the bits of a result may not depend on what the compiler chose to fuse.
add_library(lockstep_flags INTERFACE)
set(warnings -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Wno-missing-field-initializers)
target_compile_options(lockstep_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${warnings};-ffp-contract=off>")
if(LOCKSTEP_WERROR)
  target_compile_options(lockstep_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Werror>"
                                                  "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Werror all-warnings>")
endif()
if(LOCKSTEP_SANITIZE)
  # A finding ends the program, or tests that only print it would pass.
  target_compile_options(lockstep_flags INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all
                                                  -fno-omit-frame-pointer)
  target_link_options(lockstep_flags INTERFACE -fsanitize=address,undefined)
endif()
target_include_directories(lockstep_flags INTERFACE ${PROJECT_SOURCE_DIR}/src)

# lockstep_library(FOLDER DEPENDS ...): one static library a folder of src/, from all its sources.
function(lockstep_library folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "DEPENDS")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/(cuda|nccl)/")  # those are lockstep_cuda's
  if(sources)
    add_library(lockstep_${folder} STATIC ${sources})
    target_link_libraries(lockstep_${folder} PUBLIC lockstep_flags ${arg_DEPENDS})
  else()
    add_library(lockstep_${folder} INTERFACE)
    target_link_libraries(lockstep_${folder} INTERFACE lockstep_flags ${arg_DEPENDS})
  endif()
endfunction()

# lockstep_unit_tests(FOLDER): tests/unit/FOLDER/*_test.cpp as one program; every case is a ctest test.
# With several jobs ctest starts tests in descending COST, so that these cheap ones come first.
function(lockstep_unit_tests folder)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/unit/${folder}/*_test.cpp)
  if(NOT sources)
    return()
  endif()
  add_executable(unit_${folder} ${sources})
  target_link_libraries(unit_${folder} PRIVATE lockstep_test_main lockstep_${folder})
  catch_discover_tests(unit_${folder} TEST_PREFIX "${folder}: " PROPERTIES LABELS unit
                       TIMEOUT ${LOCKSTEP_UNIT_TIMEOUT} COST 1000)
endfunction()

# lockstep_rank_test(NAME SOURCES ... RANKS ... DEPENDS ...): one program, one ctest test a rank count.
function(lockstep_rank_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;RANKS;DEPENDS")
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE lockstep_rank_test_main ${arg_DEPENDS})
  foreach(ranks IN LISTS arg_RANKS)
    add_test(NAME ${name}.np${ranks}
             COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} --bind-to none
                     $<TARGET_FILE:${name}>)
    set_tests_properties(
      ${name}.np${ranks}
      PROPERTIES PROCESSORS ${ranks} TIMEOUT 180 LABELS "mpi" ENVIRONMENT "${LOCKSTEP_MPI_ENVIRONMENT}")
  endforeach()
endfunction()
set(LOCKSTEP_MPI_ENVIRONMENT
    "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_rmaps_base_oversubscribe=1")
if(LOCKSTEP_SANITIZE)
  # Open MPI leaks, and rank tests replace operator new to count allocations.
  list(APPEND LOCKSTEP_MPI_ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0:alloc_dealloc_mismatch=0")
endif()
