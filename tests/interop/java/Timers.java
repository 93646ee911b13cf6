import java.util.*;
import java.util.concurrent.*;
import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.message.*;

/** Messages for a moment, by delay and by time: none early, each once; a recalled one never. */
public class Timers {
    static final long LATE_MS = 2000;

    public static void main(String[] a) {
        Kit.main("Timers", a, k -> {
            String topic = k.topic("t", 1);
            Map<String, Long> due = new ConcurrentHashMap<>(), came = new ConcurrentHashMap<>();
            Map<String, Integer> times = new ConcurrentHashMap<>();
            DefaultMQPushConsumer c = k.push(k.group("c"), "c");
            c.subscribe(topic, "*");
            c.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
                for (MessageExt m : msgs) {
                    came.putIfAbsent(new String(m.getBody()), System.currentTimeMillis());
                    times.merge(new String(m.getBody()), 1, Integer::sum);
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            c.start();
            DefaultMQProducer p = new DefaultMQProducer("P_Timers_" + k.run);
            k.start(p, "p");
            p.send(new Message(topic, "first".getBytes()));
            k.until(30000, "the consumer reads", () -> came.containsKey("first"));
            Map<String, String> handles = new HashMap<>();
            for (int i = 0; i < 20; i++) for (String kind : List.of("sec", "at", "recalled")) {
                Message m = new Message(topic, "tag", kind + "#" + i, (kind + "#" + i).getBytes());
                long now = System.currentTimeMillis(), delay = kind.equals("recalled") ? 6000 : 2000 + 100 * i;
                if (kind.equals("sec")) m.setDelayTimeSec(delay / 1000); else m.setDeliverTimeMs(now + delay);
                due.put(kind + "#" + i, now + (kind.equals("sec") ? delay / 1000 * 1000 : delay));
                SendResult r = p.send(m);
                Kit.eq(SendStatus.SEND_OK, r.getSendStatus(), kind);
                Kit.check(r.getRecallHandle() != null, "a send that waits is answered with a handle");
                handles.put(kind + "#" + i, r.getRecallHandle());
            }
            for (int i = 0; i < 20; i++) p.recallMessage(topic, handles.get("recalled#" + i));
            k.until(20000, "all that is due", () -> came.size() >= 41);
            Thread.sleep(Math.max(0, due.get("recalled#19") + LATE_MS - System.currentTimeMillis()));
            Kit.check(came.keySet().stream().noneMatch(b -> b.startsWith("recalled")), "recalled ones came: " + came.keySet());
            Kit.check(times.values().stream().allMatch(n -> n == 1), "each once: " + times);
            long late = 0;
            for (String b : due.keySet()) if (!b.startsWith("recalled")) {
                Kit.check(came.get(b) >= due.get(b), b + " came " + (due.get(b) - came.get(b)) + " ms early");
                late = Math.max(late, came.get(b) - due.get(b));
            }
            Kit.check(late <= LATE_MS, "the latest was " + late + " ms late");
            return "the latest of 40 was " + late + " ms late";
        });
    }
}
