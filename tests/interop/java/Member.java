import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A member of a group until it is killed; no check.
 *
 *   Member NAMESRV GROUP TOPIC EXPRESSION INSTANCE push|lite|hoards
 *
 * lite polls and commits; hoards polls and never commits. push says what it consumes, a line a
 * message: `consumed QUEUE OFFSET BODY`.
 */
public final class Member {
    public static void main(String[] args) throws Exception {
        if (args[5].equals("push")) push(args);
        else poll(args, args[5].equals("lite"));
    }

    private static void push(String[] args) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[1]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName(args[4]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setHeartbeatBrokerInterval(3_000);
        consumer.subscribe(args[2], args[3]);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages)
                System.out.println("consumed " + message.getQueueId() + " "
                    + message.getQueueOffset() + " " + new String(message.getBody()));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        System.out.println("ready " + consumer.buildMQClientId());
        Thread.currentThread().join();
    }

    private static void poll(String[] args, boolean commits) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(args[1]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName(args[4]);
        consumer.setAutoCommit(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[2], args[3]);
        consumer.start();
        System.out.println("ready " + consumer.buildMQClientId());
        while (true) {
            List<MessageExt> polled = consumer.poll(300);
            if (commits && !polled.isEmpty()) consumer.commitSync();
        }
    }
}
