import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Groups SECONDS ROUNDS WARM_SECONDS NAMESRV...: sends of 1 KiB by 1, 16 and 64 threads to each cluster in turn, from one client; as Pairs. */
public class Groups {
    static final int[] THREADS = {1, 16, 64};

    public static void main(String[] a) throws Exception {
        double secs = Double.parseDouble(a[0]), warm = Double.parseDouble(a[2]);
        int rounds = Integer.parseInt(a[1]), sides = a.length - 3;
        DefaultMQProducer[] producers = new DefaultMQProducer[sides];
        String[] topics = new String[sides];
        for (int side = 0; side < sides; side++) {
            producers[side] = Bench.open(a[3 + side], "group" + side);
            topics[side] = Bench.topic("group" + side);
        }
        for (int threads : THREADS) {
            for (int side = 0; side < sides; side++) Bench.send(producers[side], topics[side], threads, warm / THREADS.length, 1024, 1, null);
        }
        for (int round = 0; round < rounds; round++) {
            for (int threads : THREADS) {
                for (int k = 0; k < sides; k++) {
                    int side = (round + k) % sides;
                    System.out.println("{\"bench\":\"side\",\"side\":" + side + "}");
                    Bench.send(producers[side], topics[side], threads, secs, 1024, 1, "send_sync");
                }
            }
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
