import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import java.util.StringJoiner;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** A probe of the Java client, all settings at their defaults: Gaps ADDRESSES TOPIC PARTITIONS. See gaps_test.go. */
public class Gaps {
    static long[] last, gap, sent; // by partition: nanoseconds

    public static void main(String[] args) throws Exception {
        int partitions = Integer.parseInt(args[2]);
        last = new long[partitions];
        gap = new long[partitions];
        sent = new long[partitions];
        Properties p = new Properties();
        p.put("bootstrap.servers", args[0]);
        KafkaProducer<String, String> producer =
            new KafkaProducer<>(p, new StringSerializer(), new StringSerializer());
        Thread orders = new Thread(Gaps::listen);
        orders.setDaemon(true);
        orders.start();
        while (orders.isAlive()) {
            for (int i = 0; i < partitions; i++) {
                int partition = i;
                long at = System.nanoTime();
                producer.send(new ProducerRecord<>(args[1], i, null, "x"), (m, e) -> acked(partition, at, e));
            }
            Thread.sleep(10);
        }
        System.exit(0);
    }

    static synchronized void acked(int partition, long at, Exception e) {
        if (e != null) {
            System.err.println("partition " + partition + ": " + e);
            return;
        }
        long now = System.nanoTime();
        if (last[partition] != 0) gap[partition] = Math.max(gap[partition], now - last[partition]);
        last[partition] = now;
        sent[partition] = at;
        Gaps.class.notifyAll();
    }

    static void listen() {
        try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) obey(line);
        } catch (Exception e) {
            System.err.println(e);
        }
    }

    /** Waits until each partition has taken a record that was sent after the order. */
    static synchronized void obey(String order) throws InterruptedException {
        long now = System.nanoTime();
        for (int i = 0; i < sent.length; i++) {
            while (sent[i] == 0 || sent[i] - now < 0) Gaps.class.wait();
        }
        StringJoiner out = new StringJoiner(" ");
        for (int i = 0; i < gap.length; i++) {
            out.add(Long.toString(gap[i] / 1_000_000));
            gap[i] = 0;
        }
        System.out.println(out);
    }
}
