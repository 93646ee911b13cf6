import java.util.*;
import java.util.concurrent.*;
import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.message.*;

/** Commit, rollback, unknown and then checked, unknown for good: only what was committed arrives, each once. */
public class Transaction {
    public static void main(String[] a) {
        Kit.main("Transaction", a, k -> {
            String topic = k.topic("t", 4);
            Map<String, Integer> got = new ConcurrentHashMap<>(), asked = new ConcurrentHashMap<>();
            Map<String, MessageExt> last = new ConcurrentHashMap<>();
            DefaultMQPushConsumer c = k.push(k.group("c"), "c");
            c.subscribe(topic, "*");
            c.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
                for (MessageExt m : msgs) { got.merge(new String(m.getBody()), 1, Integer::sum); last.put(new String(m.getBody()), m); }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            c.start();
            TransactionMQProducer p = new TransactionMQProducer("P_Transaction_" + k.run, Kit.account("account.client"));
            p.setTransactionListener(new TransactionListener() {
                public LocalTransactionState executeLocalTransaction(Message m, Object arg) {
                    String body = new String(m.getBody());
                    if (body.startsWith("commit")) return LocalTransactionState.COMMIT_MESSAGE;
                    if (body.startsWith("rollback")) return LocalTransactionState.ROLLBACK_MESSAGE;
                    if (body.startsWith("throws")) throw new IllegalStateException("planted");
                    return LocalTransactionState.UNKNOW;
                }
                public LocalTransactionState checkLocalTransaction(MessageExt m) {
                    String body = new String(m.getBody());
                    int times = asked.merge(body, 1, Integer::sum);
                    Kit.check(topic.equals(m.getTopic()) && m.getTransactionId() != null, "the question names the real topic and the transaction: " + m);
                    if (body.startsWith("later")) return times < 2 ? LocalTransactionState.UNKNOW : LocalTransactionState.COMMIT_MESSAGE;
                    return body.startsWith("unknown-rollback") ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.COMMIT_MESSAGE;
                }
            });
            k.start(p, "p");
            String[] kinds = {"commit", "rollback", "throws", "unknown-commit", "unknown-rollback", "later"};
            Set<String> wanted = new TreeSet<>();
            for (int i = 0; i < 10; i++) for (String kind : kinds) {
                String body = kind + "#" + i;
                Message m = new Message(topic, "tag", body, body.getBytes());
                TransactionSendResult r = p.sendMessageInTransaction(m, i);
                Kit.eq(SendStatus.SEND_OK, r.getSendStatus(), body);
                if (!kind.contains("rollback")) wanted.add(body);
            }
            k.until(20000, "commits at once", () -> got.keySet().stream().filter(b -> b.startsWith("commit")).count() == 10);
            k.until(60000, "all that were committed in the end, has " + got.size(), () -> got.size() >= wanted.size());
            Thread.sleep(3000);
            Kit.eq(wanted, new TreeSet<>(got.keySet()), "what arrived");
            Kit.check(got.values().stream().allMatch(n -> n == 1), "each once: " + got);
            Kit.check(asked.keySet().stream().noneMatch(b -> b.startsWith("commit") || b.startsWith("rollback")), "nobody asks about what has ended: " + asked);
            MessageExt m = last.get("commit#3");
            Kit.eq(8, m.getSysFlag() & 12, "transaction bits of sysFlag");
            Kit.check(m.getPreparedTransactionOffset() > 0 && m.getKeys().equals("commit#3") && m.getTags().equals("tag"), "the committed message: " + m);
            Kit.check(last.get("later#0") != null && asked.get("later#0") == 2, "asked until it knew: " + asked);
            try {
                Message delayed = new Message(topic, "x".getBytes()); delayed.setDelayTimeLevel(3);
                p.sendMessageInTransaction(delayed, null);
                throw new Kit.Fail("a delayed message of a transaction was sent");
            } catch (org.apache.rocketmq.client.exception.MQClientException expected) { }
            return wanted.size() + " of 60 " + m.getProperties().keySet().stream().sorted().toList();
        });
    }
}
