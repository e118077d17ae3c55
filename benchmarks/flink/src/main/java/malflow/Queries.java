package malflow;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.DataStreamSink;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.ProviderContext;
import org.apache.flink.table.connector.sink.DataStreamSinkProvider;
import org.apache.flink.table.connector.sink.DynamicTableSink;
import org.apache.flink.table.connector.source.DataStreamScanProvider;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.connector.source.ScanTableSource;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.factories.DynamicTableSinkFactory;
import org.apache.flink.table.factories.DynamicTableSourceFactory;
import org.apache.flink.table.functions.ScalarFunction;
import org.apache.flink.table.types.DataType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.RowType;

/**
 * Runs statements of Flink SQL over events in memory. The events are a file of JSON lines, the first argument. Each line
 * of standard input is a request: `text` has the statements, `rows` the number of events, `warm` how many of them come
 * before the stopwatch starts, `lap` after how many it is read again, `span` the milliseconds of all events of the file,
 * and `every` those between two watermarks, where 0 stands for one with each row. The rows are written to the file
 * `out`, if there is one. The answer has the CPU nanoseconds of the process in each lap, and the number of rows.
 */
public final class Queries {
  static final ObjectMapper JSON = new ObjectMapper();
  static final com.sun.management.OperatingSystemMXBean PROCESS =
      (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
  static final List<GenericRowData> EVENTS = new ArrayList<>();
  static final List<Long> READINGS = new ArrayList<>();
  static long rows, lap, next, span, written;
  static Writer out;

  /** Counts a letter in a text. */
  public static final class CountChar extends ScalarFunction {
    public Long eval(String text, String letter) {
      return text == null || letter == null ? null : text.chars().filter(it -> it == letter.charAt(0)).count();
    }
  }

  public static void main(String[] arguments) throws Exception {
    PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
    System.setOut(System.err);
    BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    Files.readAllLines(Path.of(arguments[0])).forEach(Queries::add);
    for (String line; (line = requests.readLine()) != null; ) answers.println(run(JSON.readTree(line)));
    System.exit(0);
  }

  static String run(JsonNode request) throws Exception {
    rows = request.get("rows").asLong();
    next = request.get("warm").asLong();
    lap = request.get("lap").asLong();
    span = request.get("span").asLong();
    written = 0;
    READINGS.clear();
    StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(1);
    env.getConfig().setAutoWatermarkInterval(request.get("every").asLong());
    env.getConfig().enableObjectReuse();
    StreamTableEnvironment tables = StreamTableEnvironment.create(env);
    tables.getConfig().set("table.local-time-zone", "UTC");
    try (Writer file = request.hasNonNull("out") ? Files.newBufferedWriter(Path.of(request.get("out").asText())) : null) {
      out = file;
      for (String statement : request.get("text").asText().split(";\\s*(\n|$)")) {
        if (statement.isBlank()) continue;
        TableResult result = tables.executeSql(statement);
        if (result.getJobClient().isPresent()) result.await();
      }
    }
    READINGS.add(PROCESS.getProcessCpuTime());
    List<Long> laps = new ArrayList<>();
    for (int at = 1; at < READINGS.size(); at++) laps.add(READINGS.get(at) - READINGS.get(at - 1));
    return JSON.writeValueAsString(Map.of("laps", laps, "rows", written));
  }

  static void add(String line) {
    try {
      JsonNode event = JSON.readTree(line);
      EVENTS.add(GenericRowData.of(event.get(0).asInt(), row(event.get(1), 6), row(event.get(2), 5, 6), row(event.get(3), 5)));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  static GenericRowData row(JsonNode values, int... times) {
    if (values.isNull()) return null;
    GenericRowData made = new GenericRowData(values.size());
    for (int at = 0; at < values.size(); at++) {
      JsonNode it = values.get(at);
      made.setField(at, it.isTextual() ? StringData.fromString(it.asText()) : (Object) it.asLong());
    }
    for (int at : times) made.setField(at, TimestampData.fromEpochMillis(values.get(at).asLong()));
    return made;
  }

  /** Returns an event; those of the file come again and again, later each time. */
  static RowData event(long number) {
    if (number == next) {
      READINGS.add(PROCESS.getProcessCpuTime());
      next += lap;
    }
    int size = EVENTS.size();
    GenericRowData found = EVENTS.get((int) (number % size));
    long later = number / size * span;
    if (later == 0) return found;
    GenericRowData made = GenericRowData.of(found.getField(0), null, null, null);
    int kind = (int) found.getField(0) + 1;
    made.setField(kind, moved((GenericRowData) found.getField(kind), later, kind == 1 ? 6 : 5));
    if (kind == 2) ((GenericRowData) made.getField(kind)).setField(6, ((GenericRowData) found.getField(kind)).getField(6));
    return made;
  }

  static GenericRowData moved(GenericRowData row, long later, int time) {
    GenericRowData made = new GenericRowData(row.getArity());
    for (int at = 0; at < row.getArity(); at++) made.setField(at, row.getField(at));
    made.setField(time, TimestampData.fromEpochMillis(row.getTimestamp(time, 3).getMillisecond() + later));
    return made;
  }

  /** The connector `memory`: reads the events, and writes rows to the file or nowhere. */
  public static final class Tables implements DynamicTableSourceFactory, DynamicTableSinkFactory {
    @Override public String factoryIdentifier() { return "memory"; }
    @Override public Set<ConfigOption<?>> requiredOptions() { return Set.of(); }
    @Override public Set<ConfigOption<?>> optionalOptions() { return Set.of(); }
    @Override public DynamicTableSource createDynamicTableSource(Context context) { return new Source(context.getPhysicalRowDataType()); }
    @Override public DynamicTableSink createDynamicTableSink(Context context) { return new Target(context.getPhysicalRowDataType()); }
  }

  record Source(DataType type) implements ScanTableSource {
    @Override public ChangelogMode getChangelogMode() { return ChangelogMode.insertOnly(); }
    @Override public DynamicTableSource copy() { return this; }
    @Override public String asSummaryString() { return "events"; }
    @Override public ScanRuntimeProvider getScanRuntimeProvider(ScanContext context) {
      TypeInformation<RowData> made = context.createTypeInformation(type);
      return new DataStreamScanProvider() {
        @Override public boolean isBounded() { return true; }
        @Override public DataStream<RowData> produceDataStream(ProviderContext provider, StreamExecutionEnvironment env) {
          return env.fromSequence(0, rows - 1).map(Queries::event).returns(made);
        }
      };
    }
  }

  record Target(DataType type) implements DynamicTableSink {
    @Override public ChangelogMode getChangelogMode(ChangelogMode wanted) { return ChangelogMode.insertOnly(); }
    @Override public DynamicTableSink copy() { return this; }
    @Override public String asSummaryString() { return "rows"; }
    @Override public SinkRuntimeProvider getSinkRuntimeProvider(Context context) {
      RowType row = (RowType) type.getLogicalType();
      return new DataStreamSinkProvider() {
        @Override public DataStreamSink<?> consumeDataStream(ProviderContext provider, DataStream<RowData> stream) {
          return stream.sinkTo(new Lines(row));
        }
      };
    }
  }

  record Lines(RowType type) implements Sink<RowData> {
    @Override public SinkWriter<RowData> createWriter(WriterInitContext context) {
      List<RowData.FieldGetter> fields = new ArrayList<>();
      for (int at = 0; at < type.getFieldCount(); at++) fields.add(RowData.createFieldGetter(type.getTypeAt(at), at));
      return new SinkWriter<>() {
        @Override public void write(RowData row, Context ignored) throws IOException {
          written++;
          if (out == null) return;
          for (int at = 0; at < fields.size(); at++) {
            Object value = fields.get(at).getFieldOrNull(row);
            out.append(at == 0 ? "" : "\t").append(value instanceof TimestampData it ? "" + it.getMillisecond() : "" + value);
          }
          out.append('\n');
        }
        @Override public void flush(boolean isEnd) {}
        @Override public void close() {}
      };
    }
  }
}
