// SPDX-License-Identifier: Apache-2.0
package io.outrigger;

import io.outrigger.lowlevel.Lowlevel;
import java.lang.ref.Reference;
import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.ShortBuffer;
import java.util.Arrays;

/**
 * Elements in row-major order, in memory of its own, of a direct buffer of the caller's, or of the library. The library's is lent: a
 * tensor of a pass or of acquired weights is closed when the pass ends or the weights are released, and every later use is an
 * OutriggerException with Status.STATE. A tensor over the caller's buffer keeps it alive. Shapes are numbers of elements; no dimension
 * is a scalar. One memory has at most 2^31 - 1 bytes, as buffers do. Any thread may read; who writes sees to it that nobody else does.
 */
public final class Tensor implements AutoCloseable {
    static {
        NativeLibrary.load();
    }

    private final io.outrigger.lowlevel.Tensor made;
    /** What it lies over, or null: the library's memory. */
    private final Buffer source;
    /** The same as bytes. */
    private final ByteBuffer memory;
    /** Whose memory it shows, which stays with it; null: its own. */
    private final Handle<?> lender;
    /** Whether the lender's memory can stay for as long as any buffer of it can be reached. */
    private final boolean canStay;
    private final DType dtype;
    private final long[] shape;

    private Tensor(io.outrigger.lowlevel.Tensor made, Buffer source, Handle<?> lender, boolean canStay) {
        this.made = made;
        this.source = source;
        memory = source == null ? null : bytesOf(made, source);
        this.lender = lender;
        this.canStay = canStay;
        dtype = DType.of(made.dtype_name());
        shape = extents(made);
        Handle.CLEANER.register(this, made::delete);
    }

    static long[] extents(io.outrigger.lowlevel.Tensor made) {
        long[] extents = new long[made.dimensions()];
        Arrays.setAll(extents, made::extent);
        return extents;
    }

    /** Zeros in memory of its own. ARGUMENT: a negative extent; ArithmeticException: more bytes than a buffer has. */
    public static Tensor zeros(DType dtype, long... shape) {
        long bytes = dtype.bytes();
        for (long extent : shape) {
            bytes = Math.multiplyExact(bytes, extent);
        }
        return over(ByteBuffer.allocateDirect(Math.toIntExact(Math.max(bytes, 0))).order(ByteOrder.nativeOrder()), dtype, shape);
    }

    /** A copy of float32 values. SHAPE: the shape has another number of elements. */
    public static Tensor of(float[] values, long... shape) {
        ByteBuffer copy = ByteBuffer.allocateDirect(Math.multiplyExact(values.length, Float.BYTES)).order(ByteOrder.nativeOrder());
        copy.asFloatBuffer().put(values);
        return over(copy, DType.FLOAT32, shape);
    }

    /** A copy of float64 values. */
    public static Tensor of(double[] values, long... shape) {
        ByteBuffer copy = ByteBuffer.allocateDirect(Math.multiplyExact(values.length, Double.BYTES)).order(ByteOrder.nativeOrder());
        copy.asDoubleBuffer().put(values);
        return over(copy, DType.FLOAT64, shape);
    }

    /** One float32 without a dimension, such as the gradient of a loss. */
    public static Tensor scalar(float value) {
        return of(new float[] {value});
    }

    /** The buffer's memory from its position to its limit, without a copy: direct, in native order. */
    public static Tensor over(FloatBuffer buffer, long... shape) {
        return over(buffer, buffer.order(), DType.FLOAT32, shape);
    }

    /** The same with float64. */
    public static Tensor over(DoubleBuffer buffer, long... shape) {
        return over(buffer, buffer.order(), DType.FLOAT64, shape);
    }

    /** The same with a dtype of 16 bits: BFLOAT16 and FLOAT16 by their bits. */
    public static Tensor over(ShortBuffer buffer, DType dtype, long... shape) {
        if (dtype.bytes() != Short.BYTES) {
            throw new IllegalArgumentException("a ShortBuffer has elements of 16 bits, and " + dtype + " has not");
        }
        return over(buffer, buffer.order(), dtype, shape);
    }

    /** The same with any dtype; an `asByteBuffer()` of a MemorySegment is one, too. */
    public static Tensor over(ByteBuffer buffer, DType dtype, long... shape) {
        return over(buffer, buffer.order(), dtype, shape);
    }

    private static Tensor over(Buffer buffer, ByteOrder order, DType dtype, long[] shape) {
        if (!buffer.isDirect()) {
            throw new IllegalArgumentException("the library reads direct buffers only: allocateDirect, or Tensor.of for a copy");
        }
        if (order != ByteOrder.nativeOrder() && dtype.bytes() > 1 && !(buffer instanceof ByteBuffer)) {
            throw new IllegalArgumentException("the buffer's order is not the machine's: order(ByteOrder.nativeOrder())");
        }
        Buffer part = buffer.slice();
        long bytes = (long) part.remaining() * (buffer instanceof ByteBuffer ? 1 : dtype.bytes());
        io.outrigger.lowlevel.Tensor made =
                Lowlevel.tensor_over(part, bytes, dtype.libraryName(), shape, buffer.isReadOnly() ? 0 : 1);
        return new Tensor(made, part, null, false);
    }

    private static ByteBuffer bytesOf(io.outrigger.lowlevel.Tensor made, Buffer source) {
        if (source instanceof ByteBuffer bytes) {
            return bytes;
        }
        ByteBuffer shown = Lowlevel.memory_of(made);
        Handle.CLEANER.register(shown, () -> Reference.reachabilityFence(source)); // whoever has the bytes keeps the source
        return source.isReadOnly() ? shown.asReadOnlyBuffer() : shown;
    }

    /** Of the memory of a handle, which lives as long as the tensor; canStay: its destruction can be put off for a buffer. */
    static Tensor lent(io.outrigger.lowlevel.Tensor made, Handle<?> lender, boolean canStay) {
        return new Tensor(made, null, lender, canStay);
    }

    /** For a call; whether it is open the library says. */
    io.outrigger.lowlevel.Tensor made() {
        touch();
        return made;
    }

    /** Throws where the memory was freed behind the caller's buffer: that of a MemorySegment can be. */
    private void touch() {
        if (source == null || source.capacity() == 0) {
            return;
        }
        if (source instanceof ByteBuffer bytes) {
            bytes.get(0);
        } else if (source instanceof FloatBuffer floats) {
            floats.get(0);
        } else if (source instanceof DoubleBuffer doubles) {
            doubles.get(0);
        } else if (source instanceof ShortBuffer shorts) {
            shorts.get(0);
        }
    }

    /** A list for one call, which gives the list back. */
    static io.outrigger.lowlevel.Tensors list(Tensor[] tensors) {
        io.outrigger.lowlevel.Tensors list = new io.outrigger.lowlevel.Tensors();
        try {
            for (Tensor tensor : tensors) {
                list.add(tensor.made());
            }
            return list;
        } catch (RuntimeException failure) {
            list.delete();
            throw failure;
        }
    }

    public DType dtype() {
        return dtype;
    }

    /** A copy of its extents. */
    public long[] shape() {
        return shape.clone();
    }

    /** The number of elements. */
    public long elements() {
        return made.elements();
    }

    /** Whether it can be used: not closed. */
    public synchronized boolean isOpen() {
        return made.is_open() != 0;
    }

    /**
     * Where it lies, for native code of yours; 0 once it is closed. Since Java 22 {@code MemorySegment.ofAddress(address).reinterpret(bytes, arena,
     * null)} is a view without a copy, which the arena's close() takes back: close it before the tensor is closed.
     */
    public synchronized long address() {
        return made.address();
    }

    /** Element `index` in row-major order, as a number. ARGUMENT: outside of it; STATE: closed. */
    public synchronized double get(long index) {
        return made().get(index);
    }

    /** Sets it; of 16-bit floats, rounded to nearest even. ARGUMENT: outside, or read-only; STATE: closed. */
    public synchronized void set(long index, double value) {
        made().set(index, value);
    }

    /** The element's bits, in the lower bits of the result. */
    public synchronized long getBits(long index) {
        return made().get_bits(index);
    }

    /** Sets the element's bits. */
    public synchronized void setBits(long index, long bits) {
        made().set_bits(index, bits);
    }

    /** Sets all elements. */
    public synchronized Tensor fill(double value) {
        made().fill(value);
        return this;
    }

    /** A copy of all elements, as float32. */
    public synchronized float[] floats() {
        float[] copy = new float[Math.toIntExact(elements())];
        if (dtype == DType.FLOAT32) {
            float32().get(copy);
        } else {
            for (int i = 0; i < copy.length; i++) {
                copy[i] = (float) get(i);
            }
        }
        return copy;
    }

    /** Copies all elements of a FLOAT32 tensor into the buffer, from its position on. IllegalArgumentException: another dtype. */
    public synchronized void get(FloatBuffer out) {
        out.put(float32());
    }

    /** Sets all elements of a FLOAT32 tensor from the buffer's remaining ones. IllegalArgumentException: another dtype or number of elements. */
    public synchronized Tensor put(FloatBuffer values) {
        if (values.remaining() != elements()) {
            throw new IllegalArgumentException(values.remaining() + " values for " + elements() + " elements");
        }
        FloatBuffer memory = float32();
        if (values.hasRemaining()) {
            set(0, values.get(values.position())); // refuses what may not be written
        }
        memory.put(values);
        return this;
    }

    private FloatBuffer float32() {
        if (dtype != DType.FLOAT32) {
            throw new IllegalArgumentException("a FloatBuffer holds FLOAT32, and the tensor is of " + dtype);
        }
        return raw().asFloatBuffer();
    }

    /** Sets all elements. IllegalArgumentException: another number of values; ARGUMENT: read-only. */
    public synchronized Tensor put(float... values) {
        if (values.length != elements()) {
            throw new IllegalArgumentException(values.length + " values for " + elements() + " elements");
        }
        if (values.length > 0) {
            set(0, values[0]); // refuses what may not be written
        }
        if (dtype == DType.FLOAT32) {
            float32().put(values);
        } else {
            for (int i = 0; i < values.length; i++) {
                set(i, values[i]);
            }
        }
        return this;
    }

    private ByteBuffer raw() {
        touch();
        ByteBuffer shown = memory != null && isOpen() ? memory.duplicate() : Lowlevel.memory_of(made);
        return shown.order(ByteOrder.nativeOrder());
    }

    /**
     * Its memory as a direct buffer in native order, without a copy. Of a lent output gradient or state it stays as long as the buffer can be
     * reached, but means nothing once the tensor is closed: Java has no way to take a buffer back. UnsupportedOperationException: a slot or
     * weights, whose memory the library takes back: get, put and floats copy, and address() is for code that keeps to isOpen().
     */
    public synchronized ByteBuffer buffer() {
        if (memory != null) {
            return raw();
        }
        if (!canStay) {
            throw new UnsupportedOperationException("the library takes this memory back: get(), put() and floats() copy");
        }
        ByteBuffer shown = Lowlevel.memory_of(made);
        lender.keepFor(shown);
        return (made.is_writable() != 0 ? shown : shown.asReadOnlyBuffer()).order(ByteOrder.nativeOrder());
    }

    /** Lets go of its memory. Any thread. Doing it again is a no-op. */
    @Override
    public synchronized void close() {
        made.close();
    }

    @Override
    public String toString() {
        return "Tensor(" + dtype + Arrays.toString(shape) + (isOpen() ? ")" : ", closed)");
    }
}
