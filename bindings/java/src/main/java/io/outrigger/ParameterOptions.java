// SPDX-License-Identifier: Apache-2.0
package io.outrigger;

import io.outrigger.lowlevel.ParamOptions;

/** What a parameter is beyond its name, shape and value; each method returns this. */
public final class ParameterOptions {
    private boolean isTrainable = true;
    private long aliasOf = -1;
    private String group = "default";
    private int contributions = 1;

    /** Stored, but without gradient, master and states. */
    public ParameterOptions frozen() {
        isTrainable = false;
        return this;
    }

    /** The parameter whose memory this name shares. */
    public ParameterOptions aliasOf(long id) {
        aliasOf = id;
        return this;
    }

    /** The group whose hyperparameters it has; else "default". */
    public ParameterOptions group(String name) {
        group = name;
        return this;
    }

    /** How many gradients one pass adds to this name; else 1. */
    public ParameterOptions contributions(int count) {
        contributions = count;
        return this;
    }

    <R> R with(Handle.Question<ParamOptions, R> call) {
        ParamOptions options = new ParamOptions();
        try {
            options.setTrainable(isTrainable ? 1 : 0);
            options.setAlias_of(aliasOf);
            options.setGroup(group);
            options.setContributions(contributions);
            return call.on(options);
        } finally {
            options.delete();
        }
    }
}
