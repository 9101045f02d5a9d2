// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Compiles the contract as C11 and gives what that compiler made of it to abi_test.cc. */
#include "abi/tmem_abi.h"

unsigned int tmem_lane_of_in_c(tmem_u64 pool, const tmem_u64 object[3], tmem_u64 index,
			       unsigned int key_lanes);
tmem_u64 tmem_desc_bytes_in_c(void);

unsigned int tmem_lane_of_in_c(tmem_u64 pool, const tmem_u64 object[3], tmem_u64 index,
			       unsigned int key_lanes)
{
	return tmem_lane_of(pool, object, index, key_lanes);
}

tmem_u64 tmem_desc_bytes_in_c(void)
{
	return sizeof(struct tmem_desc);
}
