import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.exception.*;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.message.*;

/** Batches: one answer with an id per message, neighbours in one queue, each consumed and viewed as its own message; too large is refused. */
public class BatchSend {
    public static void main(String[] a) {
        Kit.main("BatchSend", a, k -> {
            String topic = k.topic("t", 4), group = k.group("g");
            Map<String, MessageExt> seen = new ConcurrentHashMap<>();
            List<String> twice = new CopyOnWriteArrayList<>();
            DefaultMQPushConsumer c = k.push(group, "c");
            c.subscribe(topic, "TagA || TagB");
            c.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
                for (MessageExt m : msgs) if (seen.put(text(m), m) != null) twice.add(text(m));
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            c.start();

            DefaultMQProducer p = k.producer();
            p.setMaxMessageSize(16 << 20); // the broker's limit shall answer, not the client's
            SendResult first = p.send(batch(topic, 0, 32));
            Kit.eq(SendStatus.SEND_OK, first.getSendStatus(), "send status");
            Kit.eq(32, first.getMsgId().split(",").length, "unique ids in the answer");
            String[] places = first.getOffsetMsgId().split(",");
            Kit.eq(32, new HashSet<>(Arrays.asList(places)).size(), "distinct offset ids in the answer");

            MessageQueue q = new MessageQueue(topic, first.getMessageQueue().getBrokerName(), 3);
            SendResult named = p.send(batch(topic, 32, 8), q);
            Kit.eq(q, named.getMessageQueue(), "batch to a named queue");

            CompletableFuture<SendResult> later = new CompletableFuture<>();
            p.send(batch(topic, 40, 10), new SendCallback() {
                public void onSuccess(SendResult r) { later.complete(r); }
                public void onException(Throwable e) { later.completeExceptionally(e); }
            });
            Kit.eq(SendStatus.SEND_OK, later.get(20, TimeUnit.SECONDS).getSendStatus(), "async batch");

            // Apache's broker answers SYSTEM_ERROR here, MESSAGE_ILLEGAL would be the better word: both are a broker's refusal
            Message big = new Message(topic, "TagA", new byte[3 << 20]);
            Kit.check(refusedByBroker(p, Arrays.asList(big, new Message(topic, "TagA", new byte[3 << 20]))), "a batch of 6 MiB is refused");

            k.until(60000, "50 consumed", () -> seen.size() == 50);
            Kit.check(twice.isEmpty(), "consumed twice: " + twice);
            for (int i = 0; i < 50; i++) {
                MessageExt m = seen.get("b" + i);
                Kit.eq("k" + i, m.getKeys(), "keys of b" + i);
                Kit.eq("v" + i, m.getUserProperty("user"), "user property of b" + i);
                Kit.eq(i % 2 == 0 ? "TagA" : "TagB", m.getTags(), "tag of b" + i);
            }
            neighbours(seen, 0, 32, first);
            neighbours(seen, 32, 8, named);
            neighbours(seen, 40, 10, later.get());
            MessageExt viewed = k.admin().viewMessage(topic, places[7]);
            Kit.eq("b7", text(viewed), "message viewed by its offset id");
            k.untilX(20000, "lag 0", () -> k.lag(group, topic) == 0);
            return "50 messages in 3 batches";
        });
    }

    static List<Message> batch(String topic, int from, int count) {
        List<Message> batch = new ArrayList<>();
        for (int i = from; i < from + count; i++) {
            Message m = new Message(topic, i % 2 == 0 ? "TagA" : "TagB", "k" + i, ("b" + i).getBytes(StandardCharsets.UTF_8));
            m.putUserProperty("user", "v" + i);
            batch.add(m);
        }
        return batch;
    }

    static boolean refusedByBroker(DefaultMQProducer p, List<Message> batch) throws Exception {
        try {
            p.send(batch);
            return false;
        } catch (MQBrokerException | MQClientException e) {
            for (Throwable t = e; t != null; t = t.getCause()) if (t instanceof MQBrokerException) return true;
            throw e;
        }
    }

    /** The messages of one batch lie in the answered queue, one after the other, from the answered queue offset on. */
    static void neighbours(Map<String, MessageExt> seen, int from, int count, SendResult r) {
        for (int i = 0; i < count; i++) {
            MessageExt m = seen.get("b" + (from + i));
            Kit.eq(r.getMessageQueue().getQueueId(), m.getQueueId(), "queue of b" + (from + i));
            Kit.eq(r.getQueueOffset() + i, m.getQueueOffset(), "queue offset of b" + (from + i));
        }
    }

    static String text(MessageExt m) { return new String(m.getBody(), StandardCharsets.UTF_8); }
}
