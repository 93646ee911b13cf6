import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/**
 * CatchUp SECONDS ROUNDS WARM_SECONDS NAMESRV: latencies of sends alone and beside a group that reads a backlog from its beginning as fast as
 * it can. The line {"bench":"cold"} asks whoever reads to take the backlog out of the machine's memory, and to answer with a line.
 */
public class CatchUp {
    static final int THREADS = 8, MESSAGES_BEHIND = 100_000; // A second: more than a reader takes.

    public static void main(String[] a) throws Exception {
        double secs = Double.parseDouble(a[0]);
        int rounds = Integer.parseInt(a[1]);
        DefaultMQProducer producer = Bench.open(a[3], "catch");
        String live = Bench.topic("live");
        Bench.send(producer, live, THREADS, Double.parseDouble(a[2]), 1024, 1, null);
        for (int round = 0; round < rounds; round++) {
            String backlog = Bench.topic("backlog" + round); // Pages that nobody has read can be taken out of memory.
            long behind = 0;
            while (behind < MESSAGES_BEHIND * secs) behind += Bench.send(producer, backlog, 4, secs, 1024, 32, null);
            System.out.println("{\"bench\":\"cold\"}"); // Before both: writing the backlog out would slow those that are alone.
            System.in.read();
            Bench.send(producer, live, THREADS, secs, 1024, 1, "send_alone");
            AtomicLong got = new AtomicLong();
            DefaultMQPushConsumer reader = Bench.consumer("GID_catch_" + round + Bench.run, backlog, (ms, ctx) -> {
                got.addAndGet(ms.size());
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            while (got.get() == 0) Thread.sleep(1);
            long before = got.get();
            Bench.send(producer, live, THREADS, secs, 1024, 1, "send_beside");
            System.out.printf("{\"bench\":\"read_beside\",\"msgs\":%d,\"behind\":%d,\"msgs_per_s\":%.0f}%n", got.get() - before, behind, (got.get() - before) / secs);
            reader.shutdown();
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
