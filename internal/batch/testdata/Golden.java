// Writes the golden files of this directory with Apache Kafka's own classes, or reads entries written by others and prints them.
//   javac -cp 'KAFKA/libs/*' Golden.java
//   java -cp 'KAFKA/libs/*:.' Golden write DIR
//   java -cp 'KAFKA/libs/*:.' Golden read FILE
import java.nio.ByteBuffer;
import java.nio.file.*;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.*;

public class Golden {
    static byte[] b(String s) { return s == null ? null : s.getBytes(); }

    public static void main(String[] a) throws Exception {
        if (a[0].equals("write")) write(Paths.get(a[1])); else read(Paths.get(a[1]));
    }

    static void write(Path dir) throws Exception {
        for (byte magic = 0; magic <= 2; magic++)
            for (CompressionType c : CompressionType.values())
                for (TimestampType t : new TimestampType[] {TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME}) {
                    if (c == CompressionType.ZSTD && magic < 2 || magic == 0 && t == TimestampType.LOG_APPEND_TIME) continue;
                    MemoryRecordsBuilder m = MemoryRecords.builder(ByteBuffer.allocate(4096), magic, Compression.of(c).build(), t, 100L, 1700000009999L);
                    Header[] h = magic < 2 ? new Header[0] : new Header[] {new RecordHeader("h", b("x")), new RecordHeader("h", null), new RecordHeader("", b(""))};
                    m.append(1700000000000L, b("key"), b("value"), h);
                    m.append(1700000000005L, null, b(""));
                    m.append(1699999999999L, b(""), null);
                    m.append(1700000000005L, b("k".repeat(40)), b("v".repeat(400)));
                    ByteBuffer out = m.build().buffer();
                    byte[] bytes = new byte[out.remaining()];
                    out.get(bytes);
                    Files.write(dir.resolve("v" + magic + "-" + c.name + (t == TimestampType.LOG_APPEND_TIME ? "-append" : "") + ".bin"), bytes);
                }
    }

    static void read(Path file) throws Exception {
        MemoryRecords rs = MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(file)));
        for (RecordBatch batch : rs.batches()) {
            batch.ensureValid();
            System.out.printf("batch magic=%d codec=%s type=%s first=%d last=%d max=%d valid=%b%n", batch.magic(), batch.compressionType(), batch.timestampType(), batch.baseOffset(), batch.lastOffset(), batch.maxTimestamp(), batch.isValid());
            for (org.apache.kafka.common.record.internal.Record r : batch) {
                r.ensureValid();
                System.out.printf(" %d %d key=%s value=%s headers=%d%n", r.offset(), r.timestamp(), text(r.key()), text(r.value()), r.headers().length);
            }
        }
    }

    static String text(ByteBuffer v) {
        if (v == null) return "null";
        byte[] x = new byte[v.remaining()];
        v.get(x);
        return x.length > 20 ? x.length + " bytes" : "'" + new String(x) + "'";
    }
}
