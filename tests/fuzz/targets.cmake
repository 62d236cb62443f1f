# The fuzz targets: what an input is stands in the header of fuzz_<target>.c.
set(LS_FUZZ_TARGETS safetensors manifest config zlib gz tokenizer vocab csv idx tokens hf_config hf_index)
set(LS_FUZZ_HELPERS fuzz_files.c fuzz_alloc.c)
set(LS_FUZZ_LINK -Wl,--wrap=ls_mem_alloc -Wl,--wrap=ls_mem_free)
