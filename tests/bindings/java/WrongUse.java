// SPDX-License-Identifier: Apache-2.0
import io.outrigger.Acquired;
import io.outrigger.Comm;
import io.outrigger.Context;
import io.outrigger.DType;
import io.outrigger.Engine;
import io.outrigger.LogLine;
import io.outrigger.Message;
import io.outrigger.Optimizer;
import io.outrigger.Outcome;
import io.outrigger.OutriggerException;
import io.outrigger.ParameterOptions;
import io.outrigger.Pass;
import io.outrigger.Route;
import io.outrigger.Shard;
import io.outrigger.Skip;
import io.outrigger.Status;
import io.outrigger.StepReport;
import io.outrigger.Tag;
import io.outrigger.Tensor;
import io.outrigger.Value;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicReference;

/** Wrong use is a Java exception with a text, and harms nothing. */
public final class WrongUse {
    public static void main(String[] arguments) throws Exception {
        Checks.run(WrongUse.class);
    }

    static void testClosedHandles() {
        Checks.One one = new Checks.One(Checks.SGD, 1, 2);
        Pass pass = one.engine.beginPass(Tensor.scalar(1));
        Acquired weights = one.engine.acquire(one.w);
        one.close();
        one.close();
        Checks.that(one.engine.isClosed(), "isClosed");
        Checks.fails(IllegalStateException.class, one.engine::step, "Engine is closed");
        Checks.fails(IllegalStateException.class, one.comm::barrier, "Comm is closed");
        Checks.fails(IllegalStateException.class, () -> Comm.alone(one.context), "Context is closed");
        Checks.refused(Status.STATE, () -> weights.floats(0), "closed");
        weights.close(); // of an engine that is gone: nothing
        pass.addGrad(one.w, Tensor.of(new float[] {1, 1}, 2)); // a child keeps what it needs
        pass.close();
        Checks.fails(IllegalStateException.class, pass::end, "Pass is closed");
        Checks.fails(IllegalStateException.class, () -> pass.slot(one.w), "Pass is closed");
    }

    static void testLentTensors() {
        try (Checks.One one = new Checks.One(Checks.SGD, 1, 2)) {
            Acquired weights = one.engine.acquire(one.w);
            Checks.same(weights.floats(0), 1, 2);
            Checks.refused(Status.ARGUMENT, () -> weights.get(0).set(0, 5), "read-only");
            Checks.refused(Status.ARGUMENT, () -> weights.get(0).put(5, 5), "read-only");
            Checks.fails(IndexOutOfBoundsException.class, () -> weights.get(1));
            AtomicReference<Tensor> slot = new AtomicReference<>();
            AtomicReference<Tensor> seed = new AtomicReference<>();
            one.engine.backward(Tensor.scalar(1), pass -> {
                seed.set(pass.outputGrad(0));
                slot.set(pass.slot(one.w));
                Checks.refused(Status.STATE, () -> pass.slot(one.w), "slot");
                Checks.fails(UnsupportedOperationException.class, () -> slot.get().buffer(), "takes this memory back");
                pass.addGrad(one.w, slot.get().put(2, 4));
                Checks.refused(Status.STATE, () -> slot.get().set(0, 9), "closed");
            });
            Checks.refused(Status.STATE, () -> seed.get().get(0), "closed");
            Checks.that(one.engine.step().isApplied(), "applied");
            Checks.refused(Status.STATE, () -> weights.floats(0), "closed");
            weights.close(); // the step has taken it already
            Checks.same(one.engine.read(one.w, Value.MASTER).floats(), 0, 0);
        }
    }

    static void testBuffersOutliveTheirHandles() {
        int count = 1 << 18;
        ByteBuffer seed;
        ByteBuffer state;
        Checks.One one = new Checks.One(Checks.SGD, new float[count]);
        Acquired weights = one.engine.acquire(one.w);
        Checks.fails(UnsupportedOperationException.class, () -> weights.get(0).buffer(), "takes this memory back");
        Checks.that(weights.get(0).address() != 0, "an address");
        Pass pass = one.engine.beginPass(Tensor.zeros(DType.FLOAT32, count).fill(3));
        seed = pass.outputGrad(0).buffer();
        pass.close();
        Shard shard = new Shard(one.context, Tensor.zeros(DType.FLOAT32, count), Tensor.zeros(DType.FLOAT32, count).fill(1));
        try (Optimizer optimizer = new Optimizer(one.context, "{\"type\": \"AdamW\"}")) {
            optimizer.step(shard);
        }
        state = shard.state(Value.EXP_AVG).buffer();
        shard.close();
        one.engine.finalizeRanks();
        Checks.refused(Status.STATE, () -> weights.floats(0), "closed");
        Checks.that(weights.get(0).address() == 0, "no address");
        one.close();
        System.gc();
        Checks.that(seed.getFloat(4096) == 3, "the output gradient can be read");
        Checks.that(state.getFloat(4096) != 0, "the state can be read");
    }

    static void testDtypesAndShapes() {
        try (Checks.One one = new Checks.One(Checks.SGD, 1, 2);
                Pass pass = one.engine.beginPass(Tensor.scalar(1))) {
            Checks.refused(Status.DTYPE, () -> pass.addGrad(one.w, Checks.ints(2)), "w");
            Checks.refused(Status.SHAPE, () -> pass.addGrad(one.w, Tensor.of(new float[3], 3)), "w");
            Checks.refused(Status.SHAPE, () -> Tensor.of(new float[5], 2, 3), "24", "20");
            Checks.refused(Status.ARGUMENT, () -> Tensor.zeros(DType.FLOAT32, -1));
            Checks.fails(ArithmeticException.class, () -> Tensor.zeros(DType.FLOAT32, Long.MAX_VALUE, 2));
            Checks.fails(ArithmeticException.class, () -> Tensor.zeros(DType.FLOAT32, 1L << 40));
            Checks.refused(Status.ARGUMENT, () -> Tensor.of(new float[2], 2).get(2), "2");
            Checks.refused(Status.ARGUMENT, () -> Tensor.of(new float[2], 2).set(-1, 0), "-1");
            Checks.fails(IllegalArgumentException.class, () -> Tensor.of(new float[2], 2).put(1), "1 values for 2");
            Checks.fails(IllegalArgumentException.class, () -> Tensor.over(FloatBuffer.wrap(new float[2]), 2), "direct");
            ByteBuffer memory = ByteBuffer.allocateDirect(8);
            ByteOrder other = ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN ? ByteOrder.BIG_ENDIAN : ByteOrder.LITTLE_ENDIAN;
            Checks.fails(IllegalArgumentException.class, () -> Tensor.over(memory.order(other).asFloatBuffer(), 2), "order");
            Checks.fails(IllegalArgumentException.class, () -> Tensor.over(memory.asShortBuffer(), DType.FLOAT32, 2), "16 bits");
            Tensor fixed = Tensor.over(memory.asReadOnlyBuffer(), DType.FLOAT32, 2);
            Checks.refused(Status.ARGUMENT, () -> one.engine.read(one.w, Value.MASTER, fixed), "read-only");
            Checks.refused(Status.ARGUMENT, () -> one.engine.write(one.w, Value.PUBLISHED, fixed), "OTR_VALUE_MASTER");
            Tensor closed = Tensor.of(new float[2], 2);
            closed.close();
            closed.close();
            Checks.refused(Status.STATE, () -> pass.addGrad(one.w, closed), "closed");
            Checks.refused(Status.STATE, () -> one.engine.beginPass(closed), "closed");
            Checks.fails(NullPointerException.class, () -> pass.addGrad(one.w, null));
            Checks.refused(Status.DTYPE, () -> one.engine.beginPass(Checks.ints(1)));
            Checks.refused(Status.NOT_FOUND, () -> one.engine.acquire(7), "7");
            Checks.fails(IllegalArgumentException.class, () -> one.engine.parameterId("w\0"), "NUL");
        }
    }

    static void testOrderOfCalls() {
        try (Checks.One one = new Checks.One(Checks.SGD, 1, 2)) {
            Checks.refused(Status.STATE, one.engine::step, "pass");
            Checks.refused(Status.CONFIG, () -> new Engine(one.comm, "{\"optimizer\": "), "line");
            Checks.refused(Status.STATE, () -> one.engine.addParameter("late", Tensor.scalar(0)));
            Checks.refused(Status.ARGUMENT, () -> one.engine.setInitial(new long[] {0}), "0 values for 1 ids");
            one.engine.finalizeRanks();
            Checks.refused(Status.STATE, () -> one.engine.acquire(one.w), "finalize");
            try (Engine other = new Engine(one.comm, null)) {
                other.addParameter("w", Tensor.scalar(0));
                Checks.refused(Status.DUPLICATE, () -> other.addParameter("w", Tensor.scalar(0)), "w");
                Checks.refused(Status.STATE, () -> other.beginPass(Tensor.scalar(1)));
                other.addParameter("other", Tensor.scalar(0), new ParameterOptions().frozen());
            }
        }
    }

    static void testExceptionInBackward() {
        try (Checks.One one = new Checks.One(Checks.SGD, 1, 2)) {
            IOException thrown = new IOException("the data is gone");
            IOException caught = Checks.fails(IOException.class, () -> one.engine.backward(Tensor.scalar(1), pass -> {
                pass.addGrad(one.w, Tensor.of(new float[] {1, 1}, 2));
                throw thrown;
            }));
            Checks.that(caught == thrown, "the same exception arrives");
            StepReport report = one.engine.step();
            Checks.same(report.outcome(), Outcome.SKIPPED);
            Checks.same(report.reason(), Skip.ABANDONED);
            Checks.same(one.engine.read(one.w, Value.MASTER).floats(), 1, 2);
            one.add(Float.NaN, 1);
            report = one.engine.step();
            Checks.same(report.reason(), Skip.NONFINITE);
            Checks.same(report.nonfiniteParam(), one.w);
            one.engine.backward(Tensor.scalar(1), pass -> one.engine.close()); // in the middle: the pass still ends
            Checks.fails(IllegalStateException.class, one.engine::step, "closed");
        }
    }

    static void testMessages() {
        Tensor ids = Tensor.zeros(DType.INT64, 3).put(5, 6, 7);
        Map<String, Tensor> tensors = new TreeMap<>(Map.of("ids", ids, "grad", Tensor.zeros(DType.BFLOAT16, 2, 2).put(1, 2, 3, 4)));
        ByteBuffer bytes = Message.pack(tensors, 41, new Tag(8, 2, 1), Map.of("sender", "vision", "place", ""));
        Message message = new Message(bytes);
        Checks.same(message.names(), List.of("ids", "grad"));
        Checks.same(message.microBatch(), 41L);
        Checks.same(message.attributes(), Map.of("sender", "vision", "place", ""));
        Checks.same(message.tag(), new Tag(8, 2, 1));
        Tensor grad = message.tensor("grad");
        Checks.same(grad.dtype(), DType.BFLOAT16);
        Checks.same(grad.floats(), 1, 2, 3, 4);
        Checks.same(message.tensor("ids").getBits(2), 7L);
        Checks.refused(Status.NOT_FOUND, () -> message.tensor("grads"), "grads");
        message.close();
        message.close();
        Checks.refused(Status.STATE, grad::floats, "closed");
        Checks.fails(IllegalStateException.class, message::tag, "Message is closed");
        Checks.that(new Message(Message.pack(Map.of())).tag() == null, "nothing was said");
        for (int at = 0; at < bytes.limit(); at += 7) { // nothing that is damaged is read
            bytes.put(at, (byte) (bytes.get(at) ^ 1));
            Checks.fails(OutriggerException.class, () -> new Message(bytes));
            bytes.put(at, (byte) (bytes.get(at) ^ 1));
        }
        Checks.refused(Status.CORRUPT, () -> new Message(bytes.slice(0, bytes.limit() - 8)), "");
        Checks.refused(Status.ARGUMENT, () -> new Message(bytes.slice(1, bytes.limit() - 1)), "multiple of 8");
        Checks.fails(IllegalArgumentException.class, () -> new Message(ByteBuffer.allocate(64)), "direct buffers only");
        ids.close();
        Checks.refused(Status.STATE, () -> Message.pack(tensors), "ids is closed");
        Checks.same(Message.routes(new long[] {3, 1}, new long[] {2, 2}), List.of(new Route(0, 0, 0, 0, 2), new Route(0, 1, 2, 0, 1), new Route(1, 1, 0, 1, 1)));
        Checks.refused(Status.ARGUMENT, () -> Message.routes(new long[] {3}, new long[] {2}), "");
    }

    static void testLog() {
        while (Context.takeLog() != null) {} // of other tests
        try (Context logged = new Context(1, LogLine.Level.INFO); Comm comm = Comm.alone(logged); Engine engine = new Engine(comm, Checks.SGD)) {
            engine.addParameter("w", Tensor.scalar(1));
            engine.commit();
            new Checks.One(Checks.SGD, 1).close(); // its context keeps no lines
            LogLine line = Context.takeLog();
            Checks.same(line.level(), LogLine.Level.INFO);
            Checks.that(line.text().contains("parameter"), line.text());
            Checks.that(Context.takeLog() == null, "each once");
        }
    }

    static void testOtherThreads() throws Exception {
        try (Context context = new Context(1)) {
            List<Comm> ranks = Comm.threads(context, 2, 60);
            AtomicReference<Throwable> ended = new AtomicReference<>();
            Thread waiting = new Thread(() -> {
                try {
                    ranks.get(0).barrier();
                } catch (Throwable failure) {
                    ended.set(failure);
                }
            });
            waiting.start();
            while (!isInCall(ranks.get(0))) {
                Thread.sleep(5);
            }
            Checks.fails(IllegalStateException.class, () -> ranks.get(0).barrier(), "another thread");
            waiting.interrupt();
            waiting.join();
            Checks.same(((OutriggerException) ended.get()).status(), Status.INTERRUPTED);
            Checks.refused(Status.STATE, () -> ranks.get(0).allReduceSum(new double[1]));

            Thread again = new Thread(() -> ranks.get(0).barrier());
            again.start();
            while (!isInCall(ranks.get(0))) {
                Thread.sleep(5);
            }
            ranks.get(0).close(); // its call goes on, and gives it back in the end
            ranks.get(1).barrier();
            again.join();
            Checks.fails(IllegalStateException.class, () -> ranks.get(0).barrier(), "closed");
            ranks.get(1).close();
        }
    }

    /** Whether another thread is in a call on it; where none is, this is refused for its tensor. */
    private static boolean isInCall(Comm comm) {
        try {
            comm.broadcast(null, 0);
        } catch (IllegalStateException busy) {
            return true;
        } catch (NullPointerException free) {
            return false;
        }
        throw new AssertionError("it was accepted");
    }

    static void testMemoryThatIsDropped() {
        int count = 1 << 16;
        try (Context context = new Context(1);
                Optimizer optimizer = new Optimizer(context, "{\"type\": \"SGD\", \"params\": {\"lr\": 1}}")) {
            Tensor weights = Tensor.zeros(DType.FLOAT32, count);
            Shard shard = new Shard(context, weights, Tensor.zeros(DType.FLOAT32, count).fill(1));
            for (int i = 0; i < 20; i++) {
                System.gc(); // nobody but the shard has the gradients
                Tensor.zeros(DType.FLOAT32, count).fill(7);
            }
            Checks.that(optimizer.step(shard).isApplied(), "applied");
            Checks.that(weights.get(0) == -1 && weights.get(count - 1) == -1, "the gradients were there: " + weights.get(0));
            shard.close();
            Checks.fails(IllegalStateException.class, shard::stateBytes, "closed");
            Checks.fails(IllegalStateException.class, () -> optimizer.step(shard), "closed");
        }
    }
}
