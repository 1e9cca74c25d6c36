// SPDX-License-Identifier: Apache-2.0
package io.outrigger;

import io.outrigger.lowlevel.Lowlevel;
import io.outrigger.lowlevel.Shards;

/** An update rule without an engine, for shards of the caller's memory. One thread at a time uses it. Local. */
public final class Optimizer extends Handle<io.outrigger.lowlevel.Optimizer> {
    /** json: {"type": "AdamW", "params": {"lr": ...}, ...}; docs/configuration.md lists the keys. CONFIG. */
    public Optimizer(Context context, String json) {
        super(context.ask(made -> Lowlevel.optimizer_create(made, json)), io.outrigger.lowlevel.Optimizer::delete);
    }

    /** "lr", "weight_decay" and what else the rule has. NOT_FOUND, ARGUMENT. */
    public void setValue(String name, double value) {
        tellAlone(optimizer -> Lowlevel.optimizer_set_value(optimizer, name, value));
    }

    /** One update of the shards: norm, clipping, Inf/NaN check; a skip changes nothing. */
    public StepReport step(Shard... shards) {
        Shards list = new Shards();
        try {
            return from(shards, list, 0);
        } finally {
            list.delete();
        }
    }

    /** Inside of a call on each shard from `index` on. */
    private StepReport from(Shard[] shards, Shards list, int index) {
        if (index == shards.length) {
            return StepReport.of(askAlone(optimizer -> Lowlevel.optimizer_step(optimizer, list)));
        }
        return shards[index].askAlone(made -> {
            list.add(made);
            return from(shards, list, index + 1);
        });
    }
}
