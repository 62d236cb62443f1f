/*
 * main.cc - the same from C++: the headers are C, the calls of a small training step are those of a C program.
 */
#include <cstdio>
#include <memory>
#include <vector>

#include "lockstep.h"

struct free_mlp {
    void operator()(ls_module *m) const { ls_module_free(m); }
};

int main()
{
    std::vector<int64_t> sizes = {2, 8, 2};
    ls_mlp_opts opts = {static_cast<int>(sizes.size()), sizes.data(), LS_MLP_RELU};
    std::unique_ptr<ls_module, free_mlp> mlp(ls_mlp_new(&opts));
    if (!mlp || ls_module_init(mlp.get(), 1337)) {
        std::fprintf(stderr, "%s\n", ls_error_message());
        return 1;
    }
    long long n = ls_module_parameter_count(mlp.get());
    std::printf("%lld parameters, %s\n", n, ls_status_text(LS_ESHAPE));
    return n == 2 * 8 + 8 + 8 * 2 + 2 ? 0 : 1;
}
