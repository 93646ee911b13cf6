import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Pairs NAMESRV NAMESRV SECONDS ROUNDS: the loads of Bench against two clusters in turn, from one warm client; who begins
 * alternates. A line {"bench":"side","side":N} says whose the next figure is.
 */
public class Pairs {
    static final String[] servers = new String[2];
    static final DefaultMQAdminExt[] admins = new DefaultMQAdminExt[2];
    static final DefaultMQProducer[] producers = new DefaultMQProducer[2];
    static final String[] topics = new String[2];
    static final String[] backlogs = new String[2];
    static final long[] backlogSizes = new long[2];

    /** Point Bench at one side, unmeasured work first. */
    static void enter(int side) {
        Bench.ns = servers[side];
        Bench.admin = admins[side];
    }
    static void tell(int side) {
        System.out.println("{\"bench\":\"side\",\"side\":" + side + "}");
    }
    /** A backlog that every round reads anew with a group of its own: filling it again would cost more than reading it. */
    static void fill(int side, double secs) throws Exception {
        enter(side);
        backlogs[side] = Bench.topic("backlog" + side);
        backlogSizes[side] = Bench.send(producers[side], backlogs[side], 4, secs, 1024, 32, null);
    }
    static void consume(int side, int round) throws Exception {
        enter(side);
        AtomicLong got = new AtomicLong(), first = new AtomicLong();
        tell(side);
        DefaultMQPushConsumer c = Bench.consumer("GID_pair_" + side + "_" + round + Bench.run, backlogs[side], (ms, ctx) -> {
            first.compareAndSet(0, System.nanoTime());
            got.addAndGet(ms.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        long limit = System.nanoTime() + 120_000_000_000L;
        while (got.get() < backlogSizes[side] && System.nanoTime() < limit) Thread.sleep(2);
        double seconds = (System.nanoTime() - first.get()) / 1e9;
        System.out.printf("{\"bench\":\"consume_backlog\",\"msgs\":%d,\"of\":%d,\"msgs_per_s\":%.0f}%n", got.get(), backlogSizes[side], got.get() / seconds);
        c.shutdown();
    }
    public static void main(String[] a) throws Exception {
        double secs = Double.parseDouble(a[2]);
        int rounds = Integer.parseInt(a[3]);
        for (int side = 0; side < 2; side++) {
            servers[side] = a[side];
            producers[side] = Bench.open(a[side], "pair" + side);
            admins[side] = Bench.admin;
            topics[side] = Bench.topic("pair" + side);
            Bench.send(producers[side], topics[side], 8, Math.max(secs, 3), 1024, 1, null);
        }
        for (int side = 0; side < 2; side++) fill(side, 8 * secs);
        int[][] loads = {{1, 1}, {8, 1}, {64, 1}, {4, 32}};
        for (int round = 0; round < rounds; round++) {
            for (int[] load : loads) {
                for (int k = 0; k < 2; k++) {
                    int side = (round + k) % 2;
                    tell(side);
                    Bench.send(producers[side], topics[side], load[0], secs, 1024, load[1], load[1] > 1 ? "send_batch" : "send_sync");
                }
            }
            for (int k = 0; k < 2; k++) consume((round + k) % 2, round);
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
