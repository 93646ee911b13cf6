import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * demo/consumer.py on Apache RocketMQ's own client: the same work, the same ledger, the same options.
 *
 *   DemoConsumer NAMESRV GROUP TOPIC MEMBER LEDGER [--freezes-on KEY] [--fails-on KEY] [--dies-on KEY]
 *
 * Invariant: a ledger line is written when the work on a message is done, before anything else happens.
 */
public final class DemoConsumer {
    private static final long WORK_MS = 20;
    /** The message that kills is worked on for so long: who looks from outside each two seconds sees that it is held. */
    private static final long LAST_WORK_MS = 5_000;

    public static void main(String[] args) throws Exception {
        System.setProperty("rocketmq.client.rebalance.waitInterval", "5000");
        Map<String, String> harm = new HashMap<>();
        for (int i = 5; i + 1 < args.length; i += 2) harm.put(args[i + 1], args[i]);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[1]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName(args[3]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPollNameServerInterval(5_000);
        consumer.setHeartbeatBrokerInterval(3_000);
        consumer.setMaxReconsumeTimes(1);
        consumer.subscribe(args[2], "*");
        consumer.registerMessageListener(listener(Path.of(args[4]), harm));
        consumer.start();
        Runtime.getRuntime().addShutdownHook(new Thread(consumer::shutdown));
        System.out.println("ready " + consumer.buildMQClientId());
        Thread.currentThread().join();
    }

    private static MessageListenerConcurrently listener(Path ledger, Map<String, String> harm) throws Exception {
        Files.createDirectories(ledger.getParent());
        return (messages, context) -> {
            MessageExt message = messages.get(0);
            String option = harm.getOrDefault(message.getKeys() == null ? "" : message.getKeys(), "");
            try {
                if (option.equals("--freezes-on")) Thread.currentThread().join();
                Thread.sleep(option.equals("--dies-on") ? LAST_WORK_MS : WORK_MS);
                if (option.equals("--fails-on")) return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                note(ledger, message, context.getMessageQueue().getTopic());
                if (option.equals("--dies-on")) {
                    new ProcessBuilder("kill", "-9", Long.toString(ProcessHandle.current().pid())).start();
                    Thread.currentThread().join();
                }
            } catch (InterruptedException | java.io.IOException error) {
                throw new IllegalStateException(error);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
    }

    private static synchronized void note(Path ledger, MessageExt message, String pulledFrom) throws java.io.IOException {
        String line = String.format(
            "{\"message_id\": \"%s\", \"topic\": \"%s\", \"pulled_from\": \"%s\", \"queue_id\": %d, \"queue_offset\": %d}%n",
            message.getMsgId(), message.getTopic(), pulledFrom, message.getQueueId(), message.getQueueOffset());
        byte[] bytes = line.getBytes(StandardCharsets.UTF_8);
        Files.write(ledger, bytes, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }
}
