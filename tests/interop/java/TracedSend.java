import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** A producer and a consumer with enableMsgTrace: ten messages fill their batches of traces; the verdict carries the first one's id. */
public class TracedSend {
    public static void main(String[] a) {
        Kit.main("TracedSend", a, k -> {
            String topic = k.topic("t", 1), group = k.group("g");
            CountDownLatch consumed = new CountDownLatch(10);
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
            consumer.setEnableTrace(true);
            consumer.setNamesrvAddr(k.ns);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(one -> consumed.countDown());
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            DefaultMQProducer producer = new DefaultMQProducer(group + "p");
            producer.setEnableTrace(true);
            producer.setNamesrvAddr(k.ns);
            producer.start();
            String[] ids = new String[10];
            for (int at = 0; at < ids.length; at++) {
                byte[] body = ("body" + at).getBytes(StandardCharsets.UTF_8);
                ids[at] = producer.send(new Message(topic, "TagA", "key1 key2", body)).getMsgId();
            }
            consumer.start();
            Kit.check(consumed.await(60, TimeUnit.SECONDS), "consumed");
            k.untilX(30000, "three traces of " + ids[0], () -> tracesOf(k, ids[0]) == 3);
            producer.shutdown();
            consumer.shutdown();
            return ids[0];
        });
    }

    private static int tracesOf(Kit k, String id) throws Exception {
        int count = 0;
        for (MessageExt record : k.admin().queryMessage("RMQ_SYS_TRACE_TOPIC", id, 64, 0, Long.MAX_VALUE).getMessageList()) {
            for (TraceContext context : TraceDataEncoder.decoderFromTraceDataString(new String(record.getBody(), StandardCharsets.UTF_8))) {
                if (context.getTraceBeans().get(0).getMsgId().equals(id)) count++;
            }
        }
        return count;
    }
}
