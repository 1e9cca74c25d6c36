// SPDX-License-Identifier: Apache-2.0
package io.outrigger;

/**
 * Rows that a rank of one group has and a rank of another one needs, from Message.routes.
 *
 * @param source the rank that has them
 * @param target the rank that needs them
 * @param sourceRow the first of them, in the rows of source
 * @param targetRow the same, in the rows of target
 * @param rows how many
 */
public record Route(int source, int target, long sourceRow, long targetRow, long rows) {}
