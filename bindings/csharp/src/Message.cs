// SPDX-License-Identifier: Apache-2.0
using System;
using System.Collections.Generic;
using System.Linq;
using System.Runtime.InteropServices;
using Outrigger.Lowlevel;

namespace Outrigger
{
    /// <summary>Rows that rank Source of one group has and rank Target of another one needs.</summary>
    public sealed class Route
    {
        public int Source { get; internal set; }

        public int Target { get; internal set; }

        /// <summary>The first of them, in the rows of Source.</summary>
        public long SourceRow { get; internal set; }

        /// <summary>The same, in the rows of Target.</summary>
        public long TargetRow { get; internal set; }

        public long Rows { get; internal set; }
    }

    /// <summary>Tensors of a micro-batch in one array, for any transport (docs/messages.md). Any thread.</summary>
    public sealed class Message : Handle<Lowlevel.Message>
    {
        readonly List<Tensor> lent = new List<Tensor>();
        readonly Tensor memory;

        Message(Tensor memory) : base(Native.message_unpack(memory.Made, 0))
        {
            this.memory = memory;
        }

        /// <summary>Reads a copy of the bytes, which may come from anybody. E_CORRUPT: damaged, cut short or no message; E_UNSUPPORTED: of a later
        /// version.</summary>
        public Message(byte[] bytes) : this(CopyOf(bytes))
        {
        }

        static Tensor CopyOf(byte[] bytes)
        {
            var memory = new Tensor("uint8", bytes.Length);
            if (bytes.Length > 0)
            {
                Marshal.Copy(bytes, 0, (IntPtr)memory.Made.address(), bytes.Length);
            }
            return memory;
        }

        /// <summary>The bytes of a message: tensors by name, of any dtype. tag: of gradients, as Pass.Tag gives it; attributes: texts by name.
        /// E_ARGUMENT; E_STATE: a tensor is closed.</summary>
        public static byte[] Pack(IDictionary<string, Tensor> tensors, long microBatch = 0, CallInfo tag = null, IDictionary<string, string> attributes = null)
        {
            using (var options = new MessageOptions { micro_batch = microBatch })
            using (var list = new NamedTensors())
            {
                options.set_tag(tag);
                foreach (KeyValuePair<string, string> each in attributes ?? new Dictionary<string, string>())
                {
                    options.add_attribute(each.Key, each.Value);
                }
                foreach (KeyValuePair<string, Tensor> each in tensors)
                {
                    list.add(each.Key, each.Value?.Made);
                }
                using (Lowlevel.Tensor made = Native.message_pack(list, options))
                {
                    var bytes = new byte[made.bytes()];
                    Marshal.Copy((IntPtr)made.address(), bytes, 0, bytes.Length);
                    GC.KeepAlive(tensors);
                    return bytes;
                }
            }
        }

        /// <summary>A tensor over the message's memory, until Dispose. E_NOT_FOUND gives the nearest name.</summary>
        public Tensor this[string name]
        {
            get
            {
                lock (lent)
                {
                    var tensor = new Tensor(Any(message => Native.message_get_tensor(message, name)), this);
                    lent.Add(tensor);
                    return tensor;
                }
            }
        }

        public string[] Names => Many(info => info.tensor_count, Native.message_tensor_name);

        /// <summary>Texts of the sender's.</summary>
        public Dictionary<string, string> Attributes =>
            Many(info => info.attribute_count, Native.message_attribute_name)
                .ToDictionary(name => name, name => Any(message => Native.message_get_attribute(message, name)));

        /// <summary>The sender's number.</summary>
        public long MicroBatch => Info(info => info.micro_batch);

        /// <summary>What was applied to gradients, for Engine.BeginPass; null: nothing was said.</summary>
        public CallInfo Tag()
        {
            var info = new CallInfo();
            Any(message => Native.message_get_tag(message, info));
            return info.loss_scale != 0 ? info : null;
        }

        R Info<R>(Func<MessageInfo, R> field)
        {
            using (MessageInfo info = Any(Native.message_get_info))
            {
                return field(info);
            }
        }

        string[] Many(Func<MessageInfo, long> count, Func<Lowlevel.Message, long, string> name) =>
            Enumerable.Range(0, (int)Info(count)).Select(i => Any(message => name(message, i))).ToArray();

        /// <summary>Who sends which rows between two groups, from each rank's rows with one sum. In the order of the rows. E_ARGUMENT.</summary>
        public static Route[] Routes(long[] sourceRows, long[] targetRows)
        {
            using (Lowlevel.Tensor made = Native.message_routes(sourceRows, targetRows))
            {
                return Enumerable.Range(0, (int)made.extent(0)).Select(i => new Route
                {
                    Source = (int)made.get_bits(5 * i),
                    Target = (int)made.get_bits(5 * i + 1),
                    SourceRow = made.get_bits(5 * i + 2),
                    TargetRow = made.get_bits(5 * i + 3),
                    Rows = made.get_bits(5 * i + 4),
                }).ToArray();
            }
        }

        public override void Dispose()
        {
            lock (lent)
            {
                lent.ForEach(each => each.Dispose());
                lent.Clear();
                base.Dispose();
                GC.KeepAlive(memory);
            }
        }
    }
}
