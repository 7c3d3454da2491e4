// Answers questions of interop_test.go about the messages of the real Apache Kafka on its class path. One question a
// line, one answer a line, except for "schema", whose answer ends with an empty line:
//
//   schema NAME                 apiKey, versions, and each version's schema
//   default NAME VERSION        the bytes of a new message, in hex
//   echo NAME VERSION HEX       reads the bytes and writes them again
//   json NAME VERSION HEX       reads the bytes and prints Kafka's JSON form
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.Map;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.Readable;
import org.apache.kafka.common.protocol.types.ArrayOf;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.CompactArrayOf;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;

public class Interop {
    static final String[] PACKAGES = {
        "org.apache.kafka.common.metadata.", "org.apache.kafka.common.message.",
        "org.apache.kafka.coordinator.group.generated.", "org.apache.kafka.coordinator.transaction.generated.",
        "org.apache.kafka.coordinator.share.generated.", "org.apache.kafka.raft.generated.",
        "org.apache.kafka.server.log.remote.metadata.storage.generated.", "org.apache.kafka.storage.internals.log.generated.",
    };

    static Class<?> find(String name) {
        for (String p : PACKAGES) {
            try {
                return Class.forName(p + name);
            } catch (ClassNotFoundException e) {
                // the next package
            }
        }
        throw new IllegalArgumentException("no message " + name);
    }

    static void type(StringBuilder out, Type t, String indent) {
        if (t instanceof Schema s) {
            out.append("struct\n");
            schema(out, s, indent + "  ");
        } else if (t instanceof ArrayOf a) {
            out.append(a.isNullable() ? "ARRAY? of " : "ARRAY of ");
            type(out, a.arrayElementType().get(), indent);
        } else if (t instanceof CompactArrayOf a) {
            out.append(a.isNullable() ? "COMPACT_ARRAY? of " : "COMPACT_ARRAY of ");
            type(out, a.arrayElementType().get(), indent);
        } else {
            out.append(t).append("\n");
        }
    }

    static void schema(StringBuilder out, Schema s, String indent) {
        for (BoundField f : s.fields()) {
            if (f.def.type instanceof TaggedFields tagged) {
                out.append(indent).append("TAGS\n");
                for (Map.Entry<Integer, Field> e : tagged.fields().entrySet()) {
                    out.append(indent).append("  tag ").append(e.getKey()).append(": ").append(e.getValue().name).append(" ");
                    type(out, e.getValue().type, indent + "  ");
                }
            } else {
                out.append(indent).append(f.def.name).append(" ");
                type(out, f.def.type, indent);
            }
        }
    }

    static String describe(String name) throws Exception {
        Class<?> c = find(name);
        ApiMessage fresh = (ApiMessage) c.getConstructor().newInstance();
        Schema[] schemas = (Schema[]) c.getField("SCHEMAS").get(null);
        StringBuilder out = new StringBuilder();
        out.append(name).append(" apiKey=").append(fresh.apiKey()).append(" versions ");
        out.append(fresh.lowestSupportedVersion()).append("-").append(fresh.highestSupportedVersion()).append("\n");
        for (int v = fresh.lowestSupportedVersion(); v <= fresh.highestSupportedVersion(); v++) {
            out.append("v").append(v).append(": struct\n");
            schema(out, schemas[v], "  ");
        }
        return out.toString();
    }

    static String hex(Message m, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buf = ByteBuffer.allocate(m.size(cache, version));
        m.write(new ByteBufferAccessor(buf), cache, version);
        return HexFormat.of().formatHex(buf.array());
    }

    static Message read(String name, short version, String hex) throws Exception {
        ByteBuffer buf = ByteBuffer.wrap(HexFormat.of().parseHex(hex));
        Message m = (Message) find(name).getConstructor(Readable.class, short.class).newInstance(new ByteBufferAccessor(buf), version);
        if (buf.hasRemaining()) throw new IllegalStateException(buf.remaining() + " bytes left");
        return m;
    }

    static String json(String name, short version, String hex) throws Exception {
        Class<?> converter = Class.forName(find(name).getName() + "JsonConverter");
        return converter.getMethod("write", find(name), short.class).invoke(null, read(name, version, hex), version).toString();
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] w = line.split(" ", -1);
            try {
                switch (w[0]) {
                    case "schema" -> System.out.println(describe(w[1]));
                    case "default" -> System.out.println(hex((Message) find(w[1]).getConstructor().newInstance(), Short.parseShort(w[2])));
                    case "echo" -> System.out.println(hex(read(w[1], Short.parseShort(w[2]), w[3]), Short.parseShort(w[2])));
                    case "json" -> System.out.println(json(w[1], Short.parseShort(w[2]), w[3]));
                    default -> System.out.println("ERROR unknown question");
                }
            } catch (Throwable e) {
                Throwable c = e.getCause() == null ? e : e.getCause();
                System.out.println("ERROR " + c.toString().replace('\n', ' ') + (w[0].equals("schema") ? "\n" : ""));
            }
        }
    }
}
