// SPDX-License-Identifier: Apache-2.0
// Nothing: its target is there for the headers that are compiled with its options.
