/*
 * config_compare.h - may a run with this config go on from a checkpoint with that one?
 */
#ifndef LS_CLI_CONFIG_COMPARE_H
#define LS_CLI_CONFIG_COMPARE_H

#include "cli/args.h"
#include "cli/config.h"

/* ECONFIG for a name in the list that is no key, with the nearest one. */
LS_MUST_CHECK ls_status ls_config_check_keys(const ls_arg_list *keys, const char *option);

/*
 * ECONFIG lists all keys, with both values, that are not the same and that decide the
 * training's bits; but for those in `allowed`.  Data files are compared elsewhere, by what they
 * hold.
 */
LS_MUST_CHECK ls_status ls_config_compare(const ls_config *now, const ls_config *then,
                                          const char *name, const ls_arg_list *allowed);

/* What is left at its default takes the checkpoint's value: the schedule is part of the state.
 */
void ls_config_adopt_schedule(ls_config *cfg, int64_t steps, double min_lr);

#endif
