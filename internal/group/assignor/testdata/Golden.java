// Writes what Apache Kafka's assignors give to groups that come and go, for assignor_test.go:
//
//	java -cp "$ORACLE_HOME/libs/*" Golden.java > golden.txt
//
// Each step is a line of what happens, followed by the target assignment of every member.

import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.*;
import org.apache.kafka.coordinator.group.api.assignor.*;
import org.apache.kafka.coordinator.group.assignor.*;
import org.apache.kafka.coordinator.group.modern.*;
import org.apache.kafka.coordinator.group.modern.consumer.*;
import org.apache.kafka.timeline.SnapshotRegistry;

public class Golden {
    record Topic(String name, Uuid id, int partitionCount) implements CoordinatorMetadataImage.TopicMetadata {
        public List<String> partitionRacks(int p) { return List.of(); }
    }

    static class Image implements CoordinatorMetadataImage {
        final Map<String, TopicMetadata> byName = new TreeMap<>();
        public Set<Uuid> topicIds() { throw new UnsupportedOperationException(); }
        public Set<String> topicNames() { return byName.keySet(); }
        public Optional<TopicMetadata> topicMetadata(Uuid id) { return byName.values().stream().filter(t -> t.id().equals(id)).findFirst(); }
        public Optional<TopicMetadata> topicMetadata(String name) { return Optional.ofNullable(byName.get(name)); }
        public CoordinatorMetadataDelta emptyDelta() { throw new UnsupportedOperationException(); }
        public long version() { return 1; }
        public boolean isEmpty() { return false; }
    }

    static Random dice;

    static Uuid uuid() { return new Uuid(dice.nextLong(), dice.nextLong()); }

    static String memberId() {
        return dice.nextInt(3) == 0 ? "client-" + dice.nextInt(1000) : uuid().toString();
    }

    public static void main(String[] args) {
        for (int seed = 1; seed <= 60; seed++) {
            dice = new Random(seed);
            run(seed);
        }
    }

    static void run(int seed) {
        ConsumerGroupPartitionAssignor assignor = seed % 4 == 0 ? new RangeAssignor() : new UniformAssignor();
        Image image = new Image();
        System.out.printf("group %s%n", assignor.name());
        int topics = 1 + dice.nextInt(seed % 7 == 0 ? 12 : 4);
        for (int i = 0; i < topics; i++) {
            Topic t = new Topic("t" + i, uuid(), 1 + dice.nextInt(seed % 5 == 0 ? 40 : 9));
            image.byName.put(t.name(), t);
            System.out.printf("topic %s %s %d%n", t.name(), t.id(), t.partitionCount());
        }
        ConsumerGroup group = new ConsumerGroup(new LogContext(), new SnapshotRegistry(new LogContext()), "g");
        boolean same = seed % 2 == 0;
        int steps = 4 + dice.nextInt(12);
        for (int i = 0; i < steps; i++) {
            List<String> ids = new ArrayList<>(new TreeSet<>(group.members().keySet()));
            if (ids.size() > 1 && dice.nextInt(4) == 0) {
                String gone = ids.remove(dice.nextInt(ids.size()));
                group.removeMember(gone);
                group.removeTargetAssignment(gone);
                System.out.printf("leave %s%n", gone);
                assign(group, image, assignor, group.members().get(ids.get(dice.nextInt(ids.size()))));
                continue;
            }
            if (!same && ids.size() > 1 && dice.nextInt(4) == 0) {
                ConsumerGroupMember m = group.members().get(ids.get(dice.nextInt(ids.size())));
                assign(group, image, assignor, new ConsumerGroupMember.Builder(m).setSubscribedTopicNames(some(image)).build());
                continue;
            }
            ConsumerGroupMember.Builder b = new ConsumerGroupMember.Builder(memberId());
            b.setSubscribedTopicNames(same ? new ArrayList<>(image.topicNames()) : some(image));
            if (dice.nextInt(4) == 0) {
                b.setInstanceId("i" + dice.nextInt(100));
            }
            assign(group, image, assignor, b.build());
        }
    }

    static List<String> some(Image image) {
        List<String> out = new ArrayList<>();
        for (String t : image.topicNames()) {
            if (dice.nextInt(2) == 0) {
                out.add(t);
            }
        }
        return out;
    }

    static void assign(ConsumerGroup group, Image image, ConsumerGroupPartitionAssignor assignor, ConsumerGroupMember updated) {
        ConsumerGroupMember old = group.members().get(updated.memberId());
        SubscriptionType type = ConsumerGroup.subscriptionType(
            group.computeSubscribedRegularExpressions(old, updated), group.computeSubscribedTopicNames(old, updated),
            group.numMembers() + (old == null ? 1 : 0));
        System.out.printf("member %s %s %s %s%n", updated.memberId(), updated.instanceId() == null ? "-" : updated.instanceId(),
            String.join(",", new TreeSet<>(updated.subscribedTopicNames())), type.toString().toLowerCase());
        var result = new TargetAssignmentBuilder.ConsumerTargetAssignmentBuilder("g", 1, assignor)
            .withTime(Time.SYSTEM).withMembers(group.members()).withStaticMembers(group.staticMembers())
            .withSubscriptionType(type).withTargetAssignment(group.targetAssignment())
            .withInvertedTargetAssignment(group.invertedTargetAssignment()).withMetadataImage(image)
            .addOrUpdateMember(updated.memberId(), updated).build();
        group.updateMember(updated);
        group.updateMember(updated);
        for (String id : new TreeSet<>(group.members().keySet())) {
            MemberAssignment a = result.targetAssignment().get(id);
            TreeMap<String, String> rows = new TreeMap<>();
            Map<Uuid, Set<Integer>> copy = new HashMap<>();
            if (a != null) {
                a.partitions().forEach((topic, ps) -> {
                    rows.put(image.topicMetadata(topic).get().name(), String.join(",", new TreeSet<>(ps).stream().map(String::valueOf).toList()));
                    copy.put(topic, new HashSet<>(new ArrayList<>(ps)));
                });
            }
            group.updateTargetAssignment(id, new Assignment(copy));
            System.out.printf("  %s", id);
            rows.forEach((t, ps) -> System.out.printf(" %s:%s", t, ps));
            System.out.println();
        }
    }
}
