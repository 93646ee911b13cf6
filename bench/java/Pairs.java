import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Pairs SECONDS ROUNDS WARM_SECONDS NAMESRV...: the same loads against each cluster in turn, from one client; who begins
 * alternates. All clusters live for the whole run, and each is given every load for WARM_SECONDS in all before anything counts:
 * a JVM compiles what is used often, and a cold one would be measured compiling. A line {"bench":"side","side":N} says whose the
 * next figure is.
 */
public class Pairs {
    static final int[][] LOADS = {{1, 1}, {8, 1}, {64, 1}, {4, 32}}; // Threads, messages a send.
    static final int BACKLOG_A_SECOND = 100_000;
    static String[] servers, topics, backlogs;
    static DefaultMQAdminExt[] admins;
    static DefaultMQProducer[] producers;
    static long[] backlogSizes;

    /** Point Bench at one side. */
    static void enter(int side) {
        Bench.ns = servers[side];
        Bench.admin = admins[side];
    }
    static void report(int side) {
        System.out.println("{\"bench\":\"side\",\"side\":" + side + "}");
    }
    static void open(int side) throws Exception {
        producers[side] = Bench.open(servers[side], "pair" + side);
        admins[side] = Bench.admin;
        topics[side] = Bench.topic("pair" + side);
        backlogs[side] = Bench.topic("backlog" + side);
    }
    static void send(int side, int[] load, double secs, boolean counts) throws Exception {
        if (counts) report(side);
        String name = !counts ? null : load[1] > 1 ? "send_batch" : "send_sync";
        Bench.send(producers[side], topics[side], load[0], secs, 1024, load[1], name);
    }
    /** A backlog as large on every side, that every round reads anew with a group of its own: filling it again would cost more. */
    static void fill(int side, double secs) throws Exception {
        long wanted = (long) (BACKLOG_A_SECOND * secs);
        while (backlogSizes[side] < wanted) backlogSizes[side] += Bench.send(producers[side], backlogs[side], 4, 0.25, 1024, 32, null);
    }
    static void consume(int side, String round, boolean counts) throws Exception {
        enter(side);
        AtomicLong got = new AtomicLong(), first = new AtomicLong();
        if (counts) report(side);
        DefaultMQPushConsumer c = Bench.consumer("GID_pair_" + side + "_" + round + Bench.run, backlogs[side], (ms, ctx) -> {
            first.compareAndSet(0, System.nanoTime());
            got.addAndGet(ms.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        long limit = System.nanoTime() + 120_000_000_000L;
        while (got.get() < backlogSizes[side] && System.nanoTime() < limit) Thread.sleep(2);
        double seconds = (System.nanoTime() - first.get()) / 1e9;
        if (counts) System.out.printf("{\"bench\":\"consume_backlog\",\"msgs\":%d,\"of\":%d,\"msgs_per_s\":%.0f}%n", got.get(), backlogSizes[side], got.get() / seconds);
        c.shutdown();
    }
    public static void main(String[] a) throws Exception {
        double secs = Double.parseDouble(a[0]), warm = Double.parseDouble(a[2]);
        int rounds = Integer.parseInt(a[1]), sides = a.length - 3;
        servers = java.util.Arrays.copyOfRange(a, 3, a.length);
        topics = new String[sides]; backlogs = new String[sides]; backlogSizes = new long[sides];
        admins = new DefaultMQAdminExt[sides]; producers = new DefaultMQProducer[sides];
        for (int side = 0; side < sides; side++) open(side);
        for (int[] load : LOADS) {
            for (int side = 0; side < sides; side++) send(side, load, warm / LOADS.length, false);
        }
        for (int side = 0; side < sides; side++) fill(side, secs);
        for (int side = 0; side < sides; side++) consume(side, "warm", false);
        for (int round = 0; round < rounds; round++) {
            for (int[] load : LOADS) {
                for (int k = 0; k < sides; k++) send((round + k) % sides, load, secs, true);
            }
            for (int k = 0; k < sides; k++) consume((round + k) % sides, Integer.toString(round), true);
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
