/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BROKER_MACHINE_H
#define PAWL_BROKER_MACHINE_H

/* What the broker asks the machine once, at its start. */

#include <stdint.h>

/* RAM, or the limit of our control group where that is less. Never 0. */
uint64_t pawl_machine_memory(void);
/* The id of this boot; zeros where the kernel does not tell, which reads as another boot. */
void pawl_machine_boot_id(uint8_t out[16]);
/* How many more descriptors this process may have. */
uint32_t pawl_machine_files_left(void);

#endif
