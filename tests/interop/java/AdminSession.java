import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * One JVM that brings a cluster into a known state and then runs mqadmin commands from standard input.
 *
 * args[0] is the name server, args[1] the broker. It prints `FACT name value` lines and `READY`; for each input line
 * (arguments split by tabs) it prints `BEGIN`, the command's output with `|` before each line, and `END <ms>`.
 */
final class AdminSession {
    static final String TOPIC = "AdmOrders", TRACED = "AdmTraced", GROUP = "gid_adm", OFFLINE = "gid_off", PRODUCERS = "pid_adm";
    static final int QUEUES = 4, MESSAGES = 20;
    static final PrintStream OUT = System.out;

    public static void main(String[] args) throws Exception {
        String ns = args[0], broker = args[1];
        System.setProperty("rocketmq.namesrv.addr", ns);
        System.setProperty("rocketmq.home.dir", System.getProperty("user.home"));
        DefaultMQAdminExt admin = new DefaultMQAdminExt(10000);
        admin.setNamesrvAddr(ns);
        admin.setInstanceName("adm-world");
        admin.start();
        topic(admin, broker, TOPIC, QUEUES);
        topic(admin, broker, TRACED, 1);
        group(admin, broker, GROUP);
        group(admin, broker, OFFLINE);
        DefaultMQProducer producer = producer(ns, PRODUCERS, "adm-producer", false);
        for (int i = 0; i < MESSAGES; i++) {
            Message m = new Message(TOPIC, i % 2 == 0 ? "TagA" : "TagB", "K" + i, ("body-" + i).getBytes(StandardCharsets.UTF_8));
            int queue = i % QUEUES;
            SendResult sent = producer.send(m, (qs, msg, arg) -> qs.get((Integer) arg), queue);
            if (i < 4) { fact("unique-" + i, sent.getMsgId()); fact("stored-" + i, sent.getOffsetMsgId()); }
        }
        DefaultMQProducer traced = producer(ns, "pid_traced", "adm-traced", true);
        SendResult sent = traced.send(new Message(TRACED, "TagT", "KT", "traced".getBytes(StandardCharsets.UTF_8)));
        fact("unique-traced", sent.getMsgId());
        DefaultMQPushConsumer consumer = consumer(ns);
        for (int q = 0; q < QUEUES; q++) admin.updateConsumeOffset(broker, OFFLINE, new MessageQueue(TOPIC, name(admin), q), q);
        until("the group has consumed and reported", () -> lag(admin) == 0);
        until("the trace is stored", () -> stored(admin, "RMQ_SYS_TRACE_TOPIC") > 0);
        until("statistics were sampled", () -> counted(admin, broker, "GROUP_GET_NUMS", TOPIC + "@" + GROUP) == MESSAGES
            && counted(admin, broker, "TOPIC_PUT_NUMS", "RMQ_SYS_TRACE_TOPIC") > 0);
        traced.shutdown();
        admin.shutdown();
        fact("consumer", consumer.buildMQClientId());
        OUT.println("READY");
        OUT.flush();
        hastenShutdowns(Thread.currentThread());
        serve(new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)));
        Runtime.getRuntime().halt(0);
    }

    /** A client's shutdown waits up to 3 s for a thread that polls a queue; 90 commands should not. */
    static void hastenShutdowns(Thread main) {
        Thread hasten = new Thread(() -> {
            while (true) {
                try { Thread.sleep(10); } catch (InterruptedException e) { return; }
                boolean waits = false;
                for (StackTraceElement frame : main.getStackTrace())
                    waits |= frame.getClassName().endsWith("ServiceThread") && frame.getMethodName().equals("shutdown");
                if (waits)
                    for (Thread one : Thread.getAllStackTraces().keySet())
                        if (one.getName().contains("NettyEventExecutor")) one.interrupt();
            }
        });
        hasten.setDaemon(true);
        hasten.start();
    }

    static volatile ByteArrayOutputStream caughtNow = new ByteArrayOutputStream();

    static void print(ByteArrayOutputStream bytes) {
        OUT.println("BEGIN");
        for (String one : bytes.toString(StandardCharsets.UTF_8).split("\n", -1)) OUT.println("|" + one);
        OUT.flush();
    }

    static void serve(BufferedReader in) throws IOException {
        // A command with wrong options ends the JVM: its complaint is shown all the same.
        Runtime.getRuntime().addShutdownHook(new Thread(() -> print(caughtNow)));
        for (String line; (line = in.readLine()) != null; ) {
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            caughtNow = bytes;
            PrintStream caught = new PrintStream(bytes, true, StandardCharsets.UTF_8);
            long began = System.currentTimeMillis();
            System.setOut(caught);
            System.setErr(caught);
            try {
                MQAdminStartup.main0(line.split("\t"), null);
            } catch (Throwable e) {
                e.printStackTrace(caught);
            }
            print(bytes);
            OUT.println("END " + (System.currentTimeMillis() - began));
            OUT.flush();
        }
    }

    static void topic(DefaultMQAdminExt admin, String broker, String name, int queues) throws Exception {
        TopicConfig config = new TopicConfig(name);
        config.setReadQueueNums(queues); config.setWriteQueueNums(queues); config.setPerm(6);
        admin.createAndUpdateTopicConfig(broker, config);
        until("route of " + name, () -> admin.examineTopicRouteInfo(name).getQueueDatas().size() == 1);
    }

    static void group(DefaultMQAdminExt admin, String broker, String name) throws Exception {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(name);
        admin.createAndUpdateSubscriptionGroupConfig(broker, config);
    }

    static DefaultMQProducer producer(String ns, String group, String instance, boolean trace) throws Exception {
        DefaultMQProducer p = new DefaultMQProducer(group);
        p.setEnableTrace(trace);
        p.setNamesrvAddr(ns); p.setClientIP("127.0.0.1"); p.setInstanceName(instance); p.setSendMsgTimeout(10000);
        p.start();
        return p;
    }

    static DefaultMQPushConsumer consumer(String ns) throws Exception {
        DefaultMQPushConsumer c = new DefaultMQPushConsumer(GROUP);
        c.setNamesrvAddr(ns); c.setClientIP("127.0.0.1"); c.setInstanceName("adm-consumer");
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        c.setConsumeThreadMin(1); c.setConsumeThreadMax(1);
        c.setPersistConsumerOffsetInterval(500); c.setHeartbeatBrokerInterval(3000); c.setPollNameServerInterval(2000);
        c.subscribe(TOPIC, "TagA || TagB");
        c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        c.start();
        return c;
    }

    static String name(DefaultMQAdminExt admin) throws Exception {
        return admin.examineTopicRouteInfo(TOPIC).getBrokerDatas().get(0).getBrokerName();
    }

    static long lag(DefaultMQAdminExt admin) throws Exception {
        long lag = 0;
        for (Map.Entry<MessageQueue, org.apache.rocketmq.remoting.protocol.admin.OffsetWrapper> e : admin.examineConsumeStats(GROUP, TOPIC).getOffsetTable().entrySet())
            if (e.getKey().getTopic().equals(TOPIC)) lag += e.getValue().getBrokerOffset() - e.getValue().getConsumerOffset();
        return lag;
    }

    static long stored(DefaultMQAdminExt admin, String topic) throws Exception {
        long count = 0;
        for (org.apache.rocketmq.remoting.protocol.admin.TopicOffset o : admin.examineTopicStats(topic).getOffsetTable().values()) count += o.getMaxOffset();
        return count;
    }

    static long counted(DefaultMQAdminExt admin, String broker, String statistic, String key) throws Exception {
        return admin.viewBrokerStatsData(broker, statistic, key).getStatsMinute().getSum();
    }

    interface Check { boolean ok() throws Exception; }

    static void until(String what, Check check) throws Exception {
        long end = System.currentTimeMillis() + 30000;
        for (Exception last = null; ; Thread.sleep(50)) {
            try { if (check.ok()) return; } catch (Exception e) { last = e; }
            if (System.currentTimeMillis() > end) throw new IllegalStateException("not within 30 s: " + what, last);
        }
    }

    static void fact(String name, String value) { OUT.println("FACT " + name + " " + value); OUT.flush(); }
}
