// SPDX-License-Identifier: Apache-2.0
package io.outrigger;

import io.outrigger.lowlevel.Lowlevel;
import io.outrigger.lowlevel.LowlevelConstants;
import java.nio.file.Path;

/** Loads liboutrigger_java, once: from the folder that the property outrigger.library.path names, else from java.library.path. */
final class NativeLibrary {
    static {
        String folder = System.getProperty("outrigger.library.path");
        if (folder == null) {
            System.loadLibrary("outrigger_java");
        } else {
            System.load(Path.of(folder).toAbsolutePath().resolve(System.mapLibraryName("outrigger_java")).toString());
        }
        int loaded = Lowlevel.abi_version();
        int wanted = LowlevelConstants.ABI_VERSION;
        if (loaded != wanted) {
            throw new UnsatisfiedLinkError("liboutrigger has the ABI " + loaded + ", and this package was built for " + wanted);
        }
    }

    private NativeLibrary() {}

    /** Returns once the library is there. UnsatisfiedLinkError: it is not, or is another one. */
    static void load() {}
}
