# The ctest `docs_are_current`: the generated documents against those in docs/.
# cmake -DGENERATOR=<ls_gen_docs> -DDOCS=<docs folder> -DOUT=<scratch folder> -P docs_are_current.cmake
file(MAKE_DIRECTORY ${OUT})
execute_process(COMMAND ${GENERATOR} ${OUT} RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "${GENERATOR} ${OUT}: exit ${failed}")
endif()
foreach(name config.md config.schema.json)
  execute_process(COMMAND ${CMAKE_COMMAND} -E compare_files ${OUT}/${name} ${DOCS}/${name} RESULT_VARIABLE differs)
  if(differs)
    message(SEND_ERROR "docs/${name} is not what cli/config_table.c says; run ls_gen_docs docs")
  endif()
endforeach()
