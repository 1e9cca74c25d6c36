// SPDX-License-Identifier: Apache-2.0
import io.outrigger.Comm;
import io.outrigger.Context;
import io.outrigger.DType;
import io.outrigger.Engine;
import io.outrigger.OutriggerException;
import io.outrigger.Status;
import io.outrigger.Tensor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;

/** What the tests share: each test class calls run() with itself, and every static method whose name begins with "test" is a test. */
final class Checks {
    /** A rule whose numbers are easy: w -= lr * gradient. */
    static final String SGD = "{\"gradient_clipping\": 0, \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.5}}}";

    private Checks() {}

    interface Call {
        void run() throws Exception;
    }

    /** An engine of one parameter "w" on a group of one. */
    static final class One implements AutoCloseable {
        final Context context = new Context(1);
        final Comm comm = Comm.alone(context);
        final Engine engine;
        final long w;

        One(String config, float... values) {
            engine = new Engine(comm, config);
            w = engine.addParameter("w", Tensor.of(values, values.length));
            engine.commit();
        }

        /** A pass that adds this gradient to w. */
        void add(float... gradient) {
            engine.backward(Tensor.scalar(1), pass -> pass.addGrad(w, Tensor.of(gradient, gradient.length)));
        }

        @Override
        public void close() {
            engine.close();
            comm.close();
            context.close();
        }
    }

    static void run(Class<?> tests) throws Exception {
        List<Method> methods = Arrays.stream(tests.getDeclaredMethods()).filter(each -> each.getName().startsWith("test"))
                .sorted(Comparator.comparing(Method::getName)).toList();
        int failed = 0;
        for (Method method : methods) {
            try {
                method.invoke(null);
                System.out.println("ok      " + method.getName());
            } catch (InvocationTargetException failure) {
                failed++;
                System.out.println("FAILED  " + method.getName());
                failure.getCause().printStackTrace(System.out);
            }
        }
        if (failed > 0 || methods.isEmpty()) {
            System.out.println(failed + " of " + methods.size() + " tests failed");
            System.exit(1);
        }
    }

    static void that(boolean holds, String text) {
        if (!holds) {
            throw new AssertionError(text);
        }
    }

    static void same(Object found, Object wanted) {
        that(wanted.equals(found), "found " + found + ", wanted " + wanted);
    }

    static void same(float[] found, float... wanted) {
        that(Arrays.equals(found, wanted), "found " + Arrays.toString(found) + ", wanted " + Arrays.toString(wanted));
    }

    /** The call throws this kind, and its text has these parts. */
    static <X extends Throwable> X fails(Class<X> kind, Call call, String... parts) {
        try {
            call.run();
        } catch (Throwable failure) {
            if (!kind.isInstance(failure)) {
                throw new AssertionError("another failure: " + failure, failure);
            }
            for (String part : parts) {
                that(String.valueOf(failure.getMessage()).contains(part), "\"" + part + "\" is not in: " + failure.getMessage());
            }
            return kind.cast(failure);
        }
        throw new AssertionError("it was accepted");
    }

    /** The library refuses the call. */
    static void refused(Status status, Call call, String... parts) {
        same(fails(OutriggerException.class, call, parts).status(), status);
    }

    /** Waits until the collector has done what makes this true, for at most ten seconds. */
    static void eventually(java.util.function.BooleanSupplier holds, String text) throws InterruptedException {
        for (int i = 0; i < 200 && !holds.getAsBoolean(); i++) {
            System.gc();
            Thread.sleep(50);
        }
        that(holds.getAsBoolean(), text);
    }

    static Tensor ints(int count) {
        return Tensor.zeros(DType.INT32, count);
    }
}
