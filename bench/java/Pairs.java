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

    /** Point Bench at one side, unmeasured work first. */
    static void enter(int side) {
        Bench.ns = servers[side];
        Bench.admin = admins[side];
    }
    static void tell(int side) {
        System.out.println("{\"bench\":\"side\",\"side\":" + side + "}");
    }
    static void consume(int side, int round, double secs) throws Exception {
        enter(side);
        String t = Bench.topic("consume" + side + "_" + round);
        long n = Bench.send(producers[side], t, 4, 3 * secs, 1024, 32, null);
        AtomicLong got = new AtomicLong(), first = new AtomicLong();
        tell(side);
        DefaultMQPushConsumer c = Bench.consumer("GID_pair_" + side + "_" + round + Bench.run, t, (ms, ctx) -> {
            first.compareAndSet(0, System.nanoTime());
            got.addAndGet(ms.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        long limit = System.nanoTime() + 120_000_000_000L;
        while (got.get() < n && System.nanoTime() < limit) Thread.sleep(2);
        double seconds = (System.nanoTime() - first.get()) / 1e9;
        System.out.printf("{\"bench\":\"consume_backlog\",\"msgs\":%d,\"of\":%d,\"msgs_per_s\":%.0f}%n", got.get(), n, got.get() / seconds);
        c.shutdown();
    }
    public static void main(String[] a) throws Exception {
        double secs = Double.parseDouble(a[2]);
        int rounds = Integer.parseInt(a[3]);
        for (int side = 0; side < 2; side++) {
            servers[side] = a[side];
            admins[side] = new DefaultMQAdminExt(10000);
            admins[side].setNamesrvAddr(a[side]);
            admins[side].setInstanceName("pairadm" + side + Bench.run);
            admins[side].start();
            producers[side] = new DefaultMQProducer("PG_pair" + side + "_" + Bench.run);
            producers[side].setNamesrvAddr(a[side]);
            producers[side].setInstanceName("pairp" + side + Bench.run);
            producers[side].setSendMsgTimeout(10000);
            producers[side].start();
            enter(side);
            topics[side] = Bench.topic("pair" + side);
            Bench.send(producers[side], topics[side], 8, Math.max(secs, 3), 1024, 1, null);
        }
        int[][] loads = {{1, 1}, {8, 1}, {64, 1}, {4, 32}};
        for (int round = 0; round < rounds; round++) {
            for (int[] load : loads) {
                for (int k = 0; k < 2; k++) {
                    int side = (round + k) % 2;
                    tell(side);
                    Bench.send(producers[side], topics[side], load[0], secs, 1024, load[1], load[1] > 1 ? "send_batch" : "send_sync");
                }
            }
            for (int k = 0; k < 2; k++) consume((round + k) % 2, round, secs);
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
