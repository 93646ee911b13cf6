import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Topics NAMESRV SECONDS ROUNDS TOPICS: 64 sends in flight to one topic and to TOPICS of them in turn, from one client that knows all. */
public class Topics {
    static final int THREADS = 64;

    public static void main(String[] a) throws Exception {
        Bench.ns = a[0];
        double secs = Double.parseDouble(a[1]);
        int rounds = Integer.parseInt(a[2]), count = Integer.parseInt(a[3]);
        Bench.admin = new DefaultMQAdminExt(10000);
        Bench.admin.setNamesrvAddr(Bench.ns);
        Bench.admin.setInstanceName("topicsadm" + Bench.run);
        Bench.admin.start();
        DefaultMQProducer producer = new DefaultMQProducer("PG_topics_" + Bench.run);
        producer.setNamesrvAddr(Bench.ns);
        producer.setInstanceName("topicsp" + Bench.run);
        producer.setSendMsgTimeout(10000);
        producer.start();
        String[] names = new String[count];
        for (BrokerData broker : Bench.admin.examineBrokerClusterInfo().getBrokerAddrTable().values()) {
            for (int i = 0; i < count; i++) {
                names[i] = "Bench_many_" + Bench.run + "_" + i;
                TopicConfig config = new TopicConfig(names[i]);
                config.setReadQueueNums(4);
                config.setWriteQueueNums(4);
                config.setPerm(6);
                Bench.admin.createAndUpdateTopicConfig(broker.getBrokerAddrs().get(0L), config);
            }
        }
        String one = Bench.topic("one");
        AtomicInteger next = new AtomicInteger();
        Bench.send(producer, one, THREADS, secs, 1024, 1, null);
        while (next.get() < 4 * count) { // Every topic's route is known and every queue has its file before anything is measured.
            Bench.send(producer, () -> names[next.getAndIncrement() % count], THREADS, secs, 1024, 1, null);
        }
        System.out.println("{\"bench\":\"pause\"}");
        for (int round = 0; round < rounds; round++) {
            for (int k = 0; k < 2; k++) {
                if ((round + k) % 2 == 0) Bench.send(producer, one, THREADS, secs, 1024, 1, "send_one_topic");
                else Bench.send(producer, () -> names[(next.getAndIncrement() & Integer.MAX_VALUE) % count], THREADS, secs, 1024, 1, "send_many_topics");
            }
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
