import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** A crew (crew_test.go) of the Java client: Crew [KEY=VALUE of the consumer…] ADDR TOPIC GROUP. */
public final class Crew {
    private static final Properties consumerConf = new Properties();
    private static final Map<String, Member> members = new HashMap<>();
    private static String topic;

    public static void main(String[] args) throws Exception {
        int last = args.length - 3;
        topic = args[last + 1];
        consumerConf.put("bootstrap.servers", args[last]);
        consumerConf.put("group.id", args[last + 2]);
        consumerConf.put("key.deserializer", StringDeserializer.class.getName());
        consumerConf.put("value.deserializer", StringDeserializer.class.getName());
        consumerConf.put("auto.offset.reset", "earliest");
        consumerConf.put("enable.auto.commit", "false");
        consumerConf.put("session.timeout.ms", "10000");
        consumerConf.put("heartbeat.interval.ms", "300");
        for (int i = 0; i < last; i++) option(consumerConf, args[i]);
        Properties producerConf = new Properties();
        producerConf.put("bootstrap.servers", args[last]);
        producerConf.put("key.serializer", StringSerializer.class.getName());
        producerConf.put("value.serializer", StringSerializer.class.getName());
        producerConf.put("acks", "all");
        producerConf.put("retries", "100");
        producerConf.put("max.in.flight.requests.per.connection", "1"); // what is sent again keeps its place
        producerConf.put("linger.ms", "5");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(producerConf)) {
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
            for (String line; (line = in.readLine()) != null; ) {
                String[] w = line.split(" ");
                switch (w[0]) {
                    case "send":
                        send(producer, Integer.parseInt(w[1]), Integer.parseInt(w[2]));
                        break;
                    case "join":
                        members.put(w[1], new Member(w[1], w));
                        members.get(w[1]).start();
                        break;
                    case "leave":
                        members.remove(w[1]).leave();
                        say(w[1] + " left");
                        break;
                    case "extra":
                        extra();
                        say("extra ok");
                        break;
                    default:
                        throw new IllegalArgumentException(line);
                }
            }
        }
        for (Member m : members.values()) m.leave();
    }

    private static void option(Properties conf, String pair) {
        int eq = pair.indexOf('=');
        conf.put(pair.substring(0, eq), pair.substring(eq + 1));
    }

    private static synchronized void say(String line) {
        System.out.println(line);
    }

    private static void check(boolean right, String what) {
        if (!right) throw new IllegalStateException(what);
    }

    private static void send(KafkaProducer<String, String> producer, int from, int to) throws Exception {
        List<Future<RecordMetadata>> acks = new ArrayList<>();
        for (int i = from; i < to; i++) acks.add(producer.send(new ProducerRecord<>(topic, "" + i, "" + i)));
        for (Future<RecordMetadata> ack : acks) ack.get();
        say("sent " + to);
    }

    /** Offsets by time, seek, commits of both kinds and what can be asked of them, with a group of its own. */
    private static void extra() throws Exception {
        Properties conf = new Properties();
        conf.putAll(consumerConf);
        conf.put("group.id", consumerConf.get("group.id") + "-extra");
        try (KafkaConsumer<String, String> c = new KafkaConsumer<>(conf)) {
            TopicPartition p0 = new TopicPartition(topic, 0);
            c.assign(Collections.singletonList(p0));
            c.seekToEnd(Collections.singletonList(p0));
            long end = c.position(p0);
            check(end > 10, "the end of " + p0 + " is " + end);
            check(c.endOffsets(Collections.singletonList(p0)).get(p0) == end, "endOffsets");
            check(c.beginningOffsets(Collections.singletonList(p0)).get(p0) == 0, "beginningOffsets");

            c.seek(p0, 7);
            ConsumerRecord<String, String> r = next(c);
            check(r.offset() == 7, "after seek to 7 comes " + r.offset());
            OffsetAndTimestamp found = c.offsetsForTimes(Collections.singletonMap(p0, r.timestamp())).get(p0);
            check(found.offset() <= 7 && found.timestamp() == r.timestamp(), "offsetsForTimes: " + found);
            found = c.offsetsForTimes(Collections.singletonMap(p0, 1L)).get(p0);
            check(found.offset() == 0, "offsetsForTimes of long ago: " + found);
            found = c.offsetsForTimes(Collections.singletonMap(p0, System.currentTimeMillis() + 3_600_000L)).get(p0);
            check(found == null, "offsetsForTimes of the future: " + found);

            c.commitSync(Collections.singletonMap(p0, new OffsetAndMetadata(3, "three")));
            check(committed(c, p0).offset() == 3 && committed(c, p0).metadata().equals("three"), "commitSync: " + committed(c, p0));
            Exception[] failed = {new IllegalStateException("commitAsync was not answered")};
            c.commitAsync(Collections.singletonMap(p0, new OffsetAndMetadata(5)), (offsets, e) -> failed[0] = e);
            for (int i = 0; i < 100 && failed[0] != null; i++) Poll.of(c, 100);
            if (failed[0] != null) throw failed[0];
            check(committed(c, p0).offset() == 5, "commitAsync: " + committed(c, p0));
        }
        try (KafkaConsumer<String, String> c = new KafkaConsumer<>(conf)) {
            c.assign(Collections.singletonList(new TopicPartition(topic, 0)));
            ConsumerRecord<String, String> r = next(c);
            check(r.offset() == 5, "after the commit of 5 comes " + r.offset());
        }
    }

    @SuppressWarnings("unchecked")
    private static OffsetAndMetadata committed(KafkaConsumer<String, String> c, TopicPartition p) throws Exception {
        try { // one partition until 3.x, a set since 2.4
            return (OffsetAndMetadata) c.getClass().getMethod("committed", TopicPartition.class).invoke(c, p);
        } catch (NoSuchMethodException e) {
            return ((Map<TopicPartition, OffsetAndMetadata>) c.getClass().getMethod("committed", Set.class).invoke(c, Collections.singleton(p))).get(p);
        }
    }

    private static ConsumerRecord<String, String> next(KafkaConsumer<String, String> c) {
        for (int i = 0; i < 300; i++) {
            ConsumerRecords<String, String> records = Poll.of(c, 100);
            if (!records.isEmpty()) return records.iterator().next();
        }
        throw new IllegalStateException("no record within 30 s");
    }

    /** One member of the group, in a thread of its own. */
    private static final class Member extends Thread implements ConsumerRebalanceListener {
        private final String name;
        private final KafkaConsumer<String, String> consumer;
        private final Set<Integer> held = new TreeSet<>();
        private volatile boolean leaving;

        Member(String name, String[] options) {
            this.name = name;
            Properties conf = new Properties();
            conf.putAll(consumerConf);
            for (int i = 2; i < options.length; i++) option(conf, options[i]);
            consumer = new KafkaConsumer<>(conf);
        }

        void leave() throws InterruptedException {
            leaving = true;
            join();
        }

        @Override
        public void run() {
            try {
                consumer.subscribe(Collections.singletonList(topic), this);
                while (!leaving) {
                    ConsumerRecords<String, String> records = Poll.of(consumer, 50);
                    for (ConsumerRecord<String, String> r : records) {
                        say(name + " record " + r.partition() + " " + r.offset() + " " + r.value());
                    }
                    if (!records.isEmpty()) commit();
                }
                consumer.close();
            } catch (Throwable e) {
                e.printStackTrace();
                System.exit(1);
            }
        }

        private void commit() {
            try {
                consumer.commitSync();
            } catch (CommitFailedException | RetriableException e) { // the group moved on: who has the partition now reads on
                System.err.println(name + ": " + e);
            }
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            for (TopicPartition p : partitions) held.add(p.partition());
            sayHeld();
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            if (leaving) return; // the goodbye
            for (TopicPartition p : partitions) held.remove(p.partition());
            sayHeld();
        }

        private void sayHeld() {
            String list = held.stream().map(String::valueOf).collect(Collectors.joining(","));
            say(name + " assigned " + (list.isEmpty() ? "-" : list));
        }
    }
}
