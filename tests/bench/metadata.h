/* metadata.h - the index of a DCP checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef METADATA_H
#define METADATA_H

#include "shape.h"

/* Write .metadata once all items have their place. */
void metadata_write(const struct checkpoint *c);

#endif
