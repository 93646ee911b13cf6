import java.util.*;
import java.util.concurrent.*;
import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.message.*;

/**
 * A property that leaves no room for what retries add is refused at the send. The longest one that is taken comes again whole: sent back by
 * the broker's own copy, and as the dead letter that an orderly consumer makes by sending a copy itself. Not a check for Apache RocketMQ,
 * which takes the first and cannot retry it.
 */
public class FullProperties {
    public static void main(String[] a) {
        Kit.main("FullProperties", a, k -> {
            String topic = k.topic("t", 1), retried = k.group("retried"), ordered = k.group("ordered");
            DefaultMQProducer p = k.producer();
            try {
                p.send(with(topic, 32_500));
                Kit.check(false, "properties of 32,500 characters were taken");
            } catch (MQBrokerException e) {
                Kit.eq(13, e.getResponseCode(), "MESSAGE_ILLEGAL");
                Kit.check(e.getErrorMessage().contains("the limit is 32767"), e.getErrorMessage());
            }
            String whole = with(topic, 29_700).getProperty("BIG");
            Set<Integer> tries = ConcurrentHashMap.newKeySet();
            DefaultMQPushConsumer c = k.push(retried, "c");
            c.subscribe(topic, "*");
            c.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
                for (MessageExt m : msgs) {
                    if (!whole.equals(m.getProperty("BIG"))) continue;
                    tries.add(m.getReconsumeTimes());
                    if (m.getReconsumeTimes() < 2) {
                        ctx.setDelayLevelWhenNextConsume(1);
                        return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                    }
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            c.start();
            DefaultMQPushConsumer o = k.push(ordered, "o");
            o.setMaxReconsumeTimes(1);
            o.setSuspendCurrentQueueTimeMillis(100);
            o.subscribe(topic, "*");
            o.registerMessageListener((MessageListenerOrderly) (msgs, ctx) -> ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
            o.start();
            Kit.eq(SendStatus.SEND_OK, p.send(with(topic, 29_700)).getSendStatus(), "the longest that fits");
            k.until(60000, "three tries with the whole property: " + tries, () -> tries.contains(2));
            Kit.eq(Set.of(0, 1, 2), tries, "tries with the whole property");
            Set<String> dead = ConcurrentHashMap.newKeySet();
            k.untilX(60000, "a dead letter", () -> !k.admin().examineTopicRouteInfo("%DLQ%" + ordered).getQueueDatas().isEmpty());
            DefaultMQPushConsumer d = k.push(k.group("dead"), "d");
            d.subscribe("%DLQ%" + ordered, "*");
            d.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
                for (MessageExt m : msgs) dead.add(String.valueOf(m.getProperty("BIG")));
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            d.start();
            k.until(60000, "the dead letter is read", () -> !dead.isEmpty());
            Kit.eq(Set.of(whole), dead, "the dead letter's property");
            return "29,700 characters over 2 retries and a dead letter; 32,500 refused with 13";
        });
    }

    static Message with(String topic, int chars) {
        Message m = new Message(topic, "full".getBytes());
        m.putUserProperty("BIG", "x".repeat(chars));
        return m;
    }
}
