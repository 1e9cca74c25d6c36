// SPDX-License-Identifier: Apache-2.0
using System;
using System.Linq;
using System.Runtime.InteropServices;
using Outrigger.Lowlevel;

namespace Outrigger
{
    /// <summary>Elements in row-major order, in memory of its own or of the library. The library's is lent: the tensor is closed when the time
    /// is over, and later use is an OutriggerException E_STATE. Any thread may read.</summary>
    public sealed class Tensor : IDisposable
    {
        internal Lowlevel.Tensor Made { get; }

        /// <summary>Whose memory it shows, which lives as long.</summary>
        readonly object lender;
        readonly object gate = new object();

        internal Tensor(Lowlevel.Tensor made, object lender = null)
        {
            Made = made;
            this.lender = lender;
        }

        /// <summary>Zeros of a dtype of the header: "float32", "bfloat16", "uint8", …; no dimension is a scalar. E_DTYPE, E_ARGUMENT, E_SHAPE.</summary>
        public Tensor(string dtype, params long[] shape) : this(Native.tensor_new(dtype, shape))
        {
        }

        /// <summary>A copy of float32 values. ArgumentException: another number of them than the shape has.</summary>
        public static Tensor Of(float[] values, params long[] shape) => new Tensor("float32", shape).Put(values);

        /// <summary>One float32 without a dimension, such as the gradient of a loss.</summary>
        public static Tensor Scalar(float value) => Of(new[] { value });

        public string DType => Made.dtype_name();

        public long[] Shape => Extents(Made);

        internal static long[] Extents(Lowlevel.Tensor made) => Enumerable.Range(0, made.dimensions()).Select(made.extent).ToArray();

        public long Elements => Made.elements();

        /// <summary>An element as a number; 16-bit floats are rounded to nearest even. E_ARGUMENT: outside, or read-only; E_STATE: closed.</summary>
        public double this[long index]
        {
            get
            {
                lock (gate)
                {
                    return Made.get(index);
                }
            }
            set
            {
                lock (gate)
                {
                    Made.set(index, value);
                }
            }
        }

        /// <summary>An element's bits.</summary>
        public long Bits(long index)
        {
            lock (gate)
            {
                return Made.get_bits(index);
            }
        }

        public Tensor Fill(double value)
        {
            lock (gate)
            {
                Made.fill(value);
                return this;
            }
        }

        /// <summary>Sets all elements.</summary>
        public Tensor Put(params float[] values)
        {
            lock (gate)
            {
                if (values.Length != Elements)
                {
                    throw new ArgumentException(values.Length + " values for " + Elements + " elements");
                }
                if (DType == "float32" && values.Length > 0)
                {
                    Made.set(0, values[0]); // refuses what may not be written
                    Marshal.Copy(values, 0, (IntPtr)Made.address(), values.Length);
                    return this;
                }
                for (int i = 0; i < values.Length; i++)
                {
                    Made.set(i, values[i]);
                }
                return this;
            }
        }

        /// <summary>A copy of all elements, as float32.</summary>
        public float[] Floats()
        {
            lock (gate)
            {
                var copy = new float[Elements];
                for (int i = 0; i < copy.Length; i++)
                {
                    copy[i] = (float)Made.get(i); // refuses where it is closed
                    if (i == 0 && DType == "float32")
                    {
                        Marshal.Copy((IntPtr)Made.address(), copy, 0, copy.Length);
                        break;
                    }
                }
                return copy;
            }
        }

        /// <summary>Gives its memory back, or lets go of the library's. Doing it again is a no-op.</summary>
        public void Dispose()
        {
            lock (gate)
            {
                Made.close();
            }
            GC.KeepAlive(lender);
        }

        /// <summary>A list for one call; it refers to the tensors.</summary>
        internal static Tensors List(Tensor[] tensors)
        {
            var list = new Tensors();
            foreach (Tensor tensor in tensors)
            {
                list.add(tensor.Made);
            }
            return list;
        }
    }
}
