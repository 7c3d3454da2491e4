import java.time.Duration;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecords;

/** Polls as clients since 2.0 do. */
final class Poll {
    static ConsumerRecords<String, String> of(Consumer<String, String> consumer, long ms) {
        return consumer.poll(Duration.ofMillis(ms));
    }

    private Poll() {}
}
