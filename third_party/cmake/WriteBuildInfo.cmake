# Run at build time: cmake -D SOURCE_DIR=... -D TEMPLATE=... -D OUTPUT=... -D VERSION=... -P this file.
# Writes OUTPUT from TEMPLATE with the current commit, and leaves the file alone when nothing changed.
set(COMMIT unknown)
find_program(GIT git)
if(GIT)
  execute_process(
    COMMAND ${GIT} rev-parse --show-toplevel --short=12 HEAD
    WORKING_DIRECTORY ${SOURCE_DIR}
    OUTPUT_VARIABLE answer
    RESULT_VARIABLE failed
    ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  string(REPLACE "\n" ";" answer "${answer}")
  list(LENGTH answer lines)
  if(NOT failed AND lines EQUAL 2)
    list(GET answer 0 toplevel)
    list(GET answer 1 head)
    file(REAL_PATH "${toplevel}" toplevel)
    file(REAL_PATH "${SOURCE_DIR}" here)
    # A release unpacked inside another repository is not at that repository's commit.
    if(toplevel STREQUAL here)
      set(COMMIT ${head})
      execute_process(
        COMMAND ${GIT} diff-index --quiet HEAD -- WORKING_DIRECTORY ${SOURCE_DIR}
        RESULT_VARIABLE changed ERROR_QUIET)
      if(changed)
        string(APPEND COMMIT -dirty)
      endif()
    endif()
  endif()
endif()
configure_file(${TEMPLATE} ${OUTPUT} @ONLY)
