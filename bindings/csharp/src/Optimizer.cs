// SPDX-License-Identifier: Apache-2.0
using System;
using System.Collections.Generic;
using Outrigger.Lowlevel;

namespace Outrigger
{
    /// <summary>A flat piece of parameters and gradients in tensors that it keeps, with states of its own. Local.</summary>
    public sealed class Shard : Handle<Lowlevel.Shard>
    {
        readonly Tensor[] kept;
        readonly List<Tensor> states = new List<Tensor>();

        /// <summary>weights, grads: 1-D, of one count; published: of 16 bits, receives the updated weights. They are not to be disposed before it.</summary>
        public Shard(Context context, Tensor weights, Tensor grads, Tensor published = null) : base(Wrap(context, weights, grads, published))
        {
            kept = new[] { weights, grads, published };
        }

        static Lowlevel.Shard Wrap(Context context, Tensor weights, Tensor grads, Tensor published)
        {
            using (var options = new ShardOptions())
            {
                options.set_published(published?.Made);
                return context.Any(made => Native.shard_wrap(made, weights.Made, grads.Made, options));
            }
        }

        /// <summary>A 1-D view of Native.VALUE_EXP_AVG or VALUE_EXP_AVG_SQ, as stored, until Dispose. E_NOT_FOUND before the first step.</summary>
        public Tensor State(int value)
        {
            lock (states) // a Dispose of another thread comes before or after
            {
                var state = new Tensor(Alone(shard => Native.shard_state(shard, value)), this);
                states.Add(state);
                return state;
            }
        }

        public long StateBytes => Alone(Native.shard_state_bytes);

        public override void Dispose()
        {
            lock (states)
            {
                states.ForEach(each => each.Dispose());
                base.Dispose();
            }
            GC.KeepAlive(kept);
        }
    }

    /// <summary>An update rule without an engine. Local.</summary>
    public sealed class Optimizer : Handle<Lowlevel.Optimizer>
    {
        public Optimizer(Context context, string json) : base(context.Any(made => Native.optimizer_create(made, json)))
        {
        }

        public void SetValue(string name, double value) => Alone(optimizer => Native.optimizer_set_value(optimizer, name, value));

        /// <summary>One update of the shard.</summary>
        public StepReport Step(Shard shard) => shard.Alone(made =>
        {
            using (var list = new Shards())
            {
                list.add(made);
                return Alone(optimizer => Native.optimizer_step(optimizer, list));
            }
        });
    }
}
