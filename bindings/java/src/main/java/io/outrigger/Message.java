// SPDX-License-Identifier: Apache-2.0
package io.outrigger;

import io.outrigger.lowlevel.CallInfo;
import io.outrigger.lowlevel.Lowlevel;
import io.outrigger.lowlevel.MessageInfo;
import io.outrigger.lowlevel.MessageOptions;
import io.outrigger.lowlevel.NamedTensors;
import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.ToLongFunction;

/** Tensors of a micro-batch in one buffer, for any transport (docs/messages.md). Any thread. */
public final class Message extends Handle<io.outrigger.lowlevel.Message> {
    private final List<Tensor> lent = new ArrayList<>();
    private final Tensor memory; // stays as long as the message

    /**
     * Reads a message where it lies: the remaining bytes of a direct buffer, at a multiple of 8, which may come from anybody. CORRUPT: damaged, cut
     * short or no message; UNSUPPORTED: of a later version.
     */
    public Message(ByteBuffer bytes) {
        this(Tensor.over(bytes, DType.UINT8, bytes.remaining()));
    }

    private Message(Tensor memory) {
        super(Lowlevel.message_unpack(memory.made(), 0), io.outrigger.lowlevel.Message::delete);
        this.memory = memory;
    }

    /** The bytes of a message, in a new direct buffer: tensors by name, of any dtype. ARGUMENT; STATE: a tensor is closed. */
    public static ByteBuffer pack(Map<String, Tensor> tensors) {
        return pack(tensors, 0, null, Map.of());
    }

    /** The same with the sender's number, what was applied to gradients (a pass's tag, or null), and texts by name. */
    public static ByteBuffer pack(Map<String, Tensor> tensors, long microBatch, Tag tag, Map<String, String> attributes) {
        NativeLibrary.load();
        MessageOptions options = new MessageOptions();
        NamedTensors named = new NamedTensors();
        try {
            options.setMicro_batch(microBatch);
            Tag.with(tag, 0, info -> {
                options.set_tag(info);
                return null;
            });
            attributes.forEach(options::add_attribute);
            tensors.forEach((name, tensor) -> named.add(name, tensor.made()));
            io.outrigger.lowlevel.Tensor made = Lowlevel.message_pack(named, options);
            try {
                ByteBuffer bytes = ByteBuffer.allocateDirect((int) made.bytes());
                return bytes.put(Lowlevel.memory_of(made)).flip();
            } finally {
                made.delete();
            }
        } finally {
            Reference.reachabilityFence(tensors);
            named.delete();
            options.delete();
        }
    }

    /** A tensor over the message's memory, until it is closed. NOT_FOUND gives the nearest name. */
    public synchronized Tensor tensor(String name) {
        Tensor tensor = Tensor.lent(ask(message -> Lowlevel.message_get_tensor(message, name)), this, false);
        lent.add(tensor);
        return tensor;
    }

    /** The tensors' names. */
    public List<String> names() {
        List<String> names = new ArrayList<>();
        for (long i = 0; i < info(MessageInfo::getTensor_count); i++) {
            long index = i;
            names.add(ask(message -> Lowlevel.message_tensor_name(message, index)));
        }
        return names;
    }

    /** Texts of the sender's. */
    public Map<String, String> attributes() {
        Map<String, String> texts = new TreeMap<>();
        for (long i = 0; i < info(MessageInfo::getAttribute_count); i++) {
            long index = i;
            String name = ask(message -> Lowlevel.message_attribute_name(message, index));
            texts.put(name, ask(message -> Lowlevel.message_get_attribute(message, name)));
        }
        return texts;
    }

    /** The sender's number. */
    public long microBatch() {
        return info(MessageInfo::getMicro_batch);
    }

    /** What was applied to gradients, for Engine.beginPass; null: nothing was said. */
    public Tag tag() {
        CallInfo info = new CallInfo();
        try {
            tell(message -> Lowlevel.message_get_tag(message, info));
            return info.getLoss_scale() == 0 ? null : Tag.of(info);
        } finally {
            info.delete();
        }
    }

    private long info(ToLongFunction<MessageInfo> field) {
        MessageInfo info = ask(Lowlevel::message_get_info);
        try {
            return field.applyAsLong(info);
        } finally {
            info.delete();
        }
    }

    /** Who sends which rows between two groups, from each rank's rows with one sum. In the order of the rows. ARGUMENT. */
    public static List<Route> routes(long[] sourceRows, long[] targetRows) {
        NativeLibrary.load();
        io.outrigger.lowlevel.Tensor made = Lowlevel.message_routes(sourceRows, targetRows);
        try {
            List<Route> routes = new ArrayList<>();
            for (long i = 0; i < made.elements(); i += 5) {
                routes.add(new Route((int) made.get_bits(i), (int) made.get_bits(i + 1), made.get_bits(i + 2), made.get_bits(i + 3), made.get_bits(i + 4)));
            }
            return routes;
        } finally {
            made.delete();
        }
    }

    @Override
    public synchronized void close() {
        lent.forEach(Tensor::close);
        lent.clear();
        super.close();
        Reference.reachabilityFence(memory);
    }
}
