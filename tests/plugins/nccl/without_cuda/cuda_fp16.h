/* SPDX-License-Identifier: Apache-2.0
 * Nothing of it is needed; see cuda_runtime.h. */
#pragma once
