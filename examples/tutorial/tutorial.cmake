# The programs of docs/tutorial.md: build/tutorial/<name>, each with what they share in toy.c.
add_library(tutorial_toy STATIC examples/tutorial/toy.c)
target_link_libraries(tutorial_toy PUBLIC ls_static PRIVATE ls_warnings)
foreach(program 1_collectives 2_data_parallel 3_buckets 4_optimizer_shards 5_parameter_shards)
  add_executable(tutorial_${program} examples/tutorial/${program}.c)
  set_target_properties(tutorial_${program} PROPERTIES OUTPUT_NAME ${program}
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tutorial)
  target_link_libraries(tutorial_${program} PRIVATE tutorial_toy ls_warnings)
endforeach()
