package malflow;

import com.sun.management.OperatingSystemMXBean;
import io.siddhi.core.SiddhiAppRuntime;
import io.siddhi.core.SiddhiManager;
import io.siddhi.core.event.Event;
import io.siddhi.core.stream.input.InputHandler;
import io.siddhi.core.stream.output.StreamCallback;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;

/** Sends records to a query of Siddhi, once for each line of standard input; prints CPU seconds and matches. */
public final class Patterns {
    private static final long START = 1_700_000_000_000L;

    private static final Map<String, String> QUERIES = Map.of(
            "failures",
            "from every (f=In[kind == 'failed']<3:3> -> l=In[kind == 'login']) within 5 min "
                    + "select l.user as user insert into Out;",
            "rising",
            "from every a=In, b=In[size > a.size], c=In[size > b.size], d=In[size > c.size], e=In[size > d.size] "
                    + "select e.user as user insert into Out;");

    private Patterns() {}

    /** Takes the name of a query and a file of records: user, time, kind and size, with commas between them. */
    public static void main(String[] arguments) throws Exception {
        List<String> lines = Files.readAllLines(Path.of(arguments[1]));
        Object[][] rows = new Object[lines.size()][];
        long[] times = new long[rows.length];
        for (int number = 0; number < rows.length; number++) {
            String[] fields = lines.get(number).split(",");
            rows[number] = new Object[] {Integer.valueOf(fields[0]), fields[2], Integer.valueOf(fields[3])};
            times[number] = START + Long.parseLong(fields[1]);
        }
        BufferedReader rounds = new BufferedReader(new InputStreamReader(System.in));
        while (rounds.readLine() != null) {
            System.gc();
            System.out.println(round(QUERIES.get(arguments[0]), rows, times));
        }
        System.exit(0);
    }

    private static String round(String query, Object[][] rows, long[] times) throws Exception {
        SiddhiManager manager = new SiddhiManager();
        SiddhiAppRuntime runtime = manager.createSiddhiAppRuntime("@app:playback "
                + "define stream In (user int, kind string, size int); "
                + "partition with (user of In) begin @info(name = 'pattern') " + query + " end;");
        AtomicLong found = new AtomicLong();
        runtime.addCallback("Out", new StreamCallback() {
            @Override
            public void receive(Event[] events) {
                found.addAndGet(events.length);
            }
        });
        InputHandler input = runtime.getInputHandler("In");
        runtime.start();
        var system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long before = system.getProcessCpuTime();
        for (int number = 0; number < rows.length; number++) {
            input.send(times[number], rows[number]);
        }
        double seconds = (system.getProcessCpuTime() - before) / 1e9;
        runtime.shutdown();
        manager.shutdown();
        return seconds + " " + found.get();
    }
}
