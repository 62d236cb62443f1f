/*
 * fuzz_hf_index.c - parameters in several files, with an index, that nobody vouches for.
 *
 * An input is the bytes of values in two files (a byte each), the index's text, a NUL, the
 * first file's header, a NUL and the second's; values are zeros.  The model is a small part of
 * a Llama, with a head of its own.  Where the directory is accepted every parameter was filled.
 */
#include <string.h>

#include "checkpoint/hf_impl.h"
#include "fuzz/fuzz.h"

enum { PARAMETERS = 4, MOST = 1 << 16 };

static const char *const names[] = {LS__HF_INDEX, "a.safetensors", "b.safetensors", NULL};

static void put_safetensors(int slot, fuzz_part header, size_t values)
{
    static unsigned char file[8 + MOST + 256];
    size_t               n = header.bytes < MOST ? header.bytes : MOST;

    for (int i = 0; i < 8; i++)
        file[i] = (unsigned char)(n >> 8 * i);
    memcpy(file + 8, header.text, n);
    memset(file + 8 + n, 0, values);
    fuzz_file(slot, file, 8 + n + values);
}

static void open_model(ls_tensor tensor[PARAMETERS], ls_named_tensor list[PARAMETERS])
{
    static const char *const ours[PARAMETERS] = {"h.0.attn.qkv.weight", "lm_head.weight",
                                                 "ln_f.weight", "wte.weight"};
    const ls_shape shape[PARAMETERS]          = {LS_SHAPE2(8, 4), LS_SHAPE2(3, 4), LS_SHAPE1(4),
                                                 LS_SHAPE2(3, 4)};

    for (int i = 0; i < PARAMETERS; i++) {
        tensor[i] = ls_tensor_header(LS_REAL, shape[i]);
        fuzz_expect(ls_tensor_materialize(&tensor[i], LS_MEM_PARAMS) == LS_OK);
        memset(ls_reals(&tensor[i]), 0xff, ls_tensor_bytes(&tensor[i]));
        list[i] = (ls_named_tensor){ours[i], &tensor[i]};
    }
}

static void close_model(ls_tensor tensor[PARAMETERS], bool filled)
{
    for (int i = 0; i < PARAMETERS; i++) {
        for (int64_t k = 0; filled && k < ls_tensor_numel(&tensor[i]); k++)
            fuzz_expect(ls_reals(&tensor[i])[k] == 0);
        ls_tensor_drop(&tensor[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const ls_gpt_opts llama = {.vocab_size = 3,
                                      .n_layer    = 1,
                                      .n_head     = 2,
                                      .n_kv_head  = 1,
                                      .d_model    = 4,
                                      .d_ff       = 4,
                                      .context    = 4,
                                      .norm       = LS_NORM_RMS,
                                      .norm_eps   = 1e-5,
                                      .mlp        = LS_MLP_SWIGLU,
                                      .rope       = true,
                                      .rope_base  = 10000};
    ls_tensor                tensor[PARAMETERS];
    ls_named_tensor          list[PARAMETERS];
    ls_hf_model              model     = {.opts = &llama, .list = list, .n = PARAMETERS};
    const char              *directory = fuzz_directory(names);

    if (size < 2)
        return 0;
    fuzz_part rest = {data + 2, size - 2}, index = fuzz_next_part(&rest);
    fuzz_part first = fuzz_next_part(&rest);
    fuzz_file(0, index.text, index.bytes);
    put_safetensors(1, first, data[0]);
    put_safetensors(2, rest, data[1]);
    open_model(tensor, list);
    ls_status status = ls_hf_read_parameters(directory, &model);
    fuzz_expect(status != LS_ENOMEM && (!status || *ls_error_message()));
    close_model(tensor, status == LS_OK);
    return 0;
}
