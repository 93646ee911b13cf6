import java.io.FileWriter;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A member of a group that writes each message it is handed as one JSON line; no check.
 *
 *   LedgerConsumer NAMESRV GROUP TOPIC concurrently|orderly LAST|FIRST LEDGER
 *
 * Concurrently, it fails the first time, and writes nothing, where a body ends with `!`. It has RocketMQ's own defaults but
 * for the start policy, and leaves its group on SIGTERM.
 */
public final class LedgerConsumer {
    public static void main(String[] args) throws Exception {
        FileWriter ledger = new FileWriter(args[5], StandardCharsets.UTF_8, true);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[1]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(args[4].equals("LAST")
            ? ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET : ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[2], "*");
        if (args[3].equals("orderly"))
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                note(ledger, messages);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        else
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                if (messages.get(0).getReconsumeTimes() == 0 && messages.get(0).getBody()[messages.get(0).getBody().length - 1] == '!')
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                note(ledger, messages);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        try {
            consumer.start();
        } catch (Exception e) {
            e.printStackTrace();
            Runtime.getRuntime().halt(1); // Its threads would keep a JVM alive that consumes nothing.
        }
        Runtime.getRuntime().addShutdownHook(new Thread(consumer::shutdown));
        System.out.println("ready");
        Thread.currentThread().join();
    }

    private static synchronized void note(FileWriter ledger, List<MessageExt> messages) {
        try {
            for (MessageExt one : messages)
                ledger.write(String.format("{\"topic\": \"%s\", \"queue\": %d, \"offset\": %d, \"id\": \"%s\", \"body\": \"%s\"}%n",
                    one.getTopic(), one.getQueueId(), one.getQueueOffset(), one.getMsgId(), new String(one.getBody(), StandardCharsets.UTF_8)));
            ledger.flush();
        } catch (java.io.IOException e) {
            throw new java.io.UncheckedIOException(e);
        }
    }
}
