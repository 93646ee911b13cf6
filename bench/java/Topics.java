import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/** Topics SECONDS ROUNDS WARM_SECONDS NAMESRV TOPICS: 64 sends in flight to one topic and to TOPICS of them in turn, from one client that knows all. */
public class Topics {
    static final int THREADS = 64;

    public static void main(String[] a) throws Exception {
        double secs = Double.parseDouble(a[0]), warm = Double.parseDouble(a[2]);
        int rounds = Integer.parseInt(a[1]), count = Integer.parseInt(a[4]);
        DefaultMQProducer producer = Bench.open(a[3], "topics");
        String[] names = new String[count];
        for (int i = 0; i < count; i++) names[i] = Bench.create("many" + i);
        String one = Bench.topic("one");
        AtomicInteger next = new AtomicInteger();
        Supplier<String> all = () -> names[(next.getAndIncrement() & Integer.MAX_VALUE) % count];
        Bench.send(producer, one, THREADS, warm / 2, 1024, 1, null);
        Bench.send(producer, all, THREADS, warm / 2, 1024, 1, null);
        while (next.get() < 4 * count) { // Every topic's route is known and every queue has its file before anything is measured.
            Bench.send(producer, all, THREADS, secs, 1024, 1, null);
        }
        System.out.println("{\"bench\":\"pause\"}");
        for (int round = 0; round < rounds; round++) {
            for (int k = 0; k < 2; k++) {
                if ((round + k) % 2 == 0) Bench.send(producer, one, THREADS, secs, 1024, 1, "send_one_topic");
                else Bench.send(producer, all, THREADS, secs, 1024, 1, "send_many_topics");
            }
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
