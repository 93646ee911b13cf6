import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * Senders and a push consumer that say what they do, a line a step; the senders stop at the first line of the input, the
 * program at its end.
 *
 *   Clients NAMESRV TOPIC BROKER GROUP POLL_MS PAUSE_MS KEY...     `account`, a system property, may be `key:secret`
 *
 *   try KEY, sent KEY OFFSET ID, seen QUEUE OFFSET ID BODY, stopped
 */
public final class Clients {
    private static final AtomicBoolean over = new AtomicBoolean();

    public static void main(String[] args) throws Exception {
        String topic = args[1], broker = args[2];
        int pollMs = Integer.parseInt(args[4]), pauseMs = Integer.parseInt(args[5]);
        DefaultMQProducer producer = new DefaultMQProducer("java-senders", account());
        producer.setNamesrvAddr(args[0]);
        producer.setPollNameServerInterval(pollMs);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[3], account());
        consumer.setNamesrvAddr(args[0]);
        consumer.setPollNameServerInterval(pollMs);
        consumer.setInstanceName("consumer");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt one : messages)
                say("seen " + one.getQueueId() + " " + one.getQueueOffset() + " " + one.getMsgId() + " " + new String(one.getBody()));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        try {
            producer.start();
            consumer.start();
        } catch (Exception e) {
            e.printStackTrace();
            Runtime.getRuntime().halt(1); // Its threads would keep a JVM alive that does nothing.
        }
        say("ready");
        List<Thread> senders = new ArrayList<>();
        for (int at = 6; at < args.length; at++) {
            int key = Integer.parseInt(args[at]);
            senders.add(new Thread(() -> send(producer, new MessageQueue(topic, broker, key), key, pauseMs)));
        }
        for (Thread one : senders) one.start();
        System.in.read();
        over.set(true);
        for (Thread one : senders) one.join();
        say("stopped");
        while (System.in.read() >= 0) { }
        Runtime.getRuntime().halt(0);
    }

    private static void send(DefaultMQProducer producer, MessageQueue queue, int key, int pauseMs) {
        try {
            for (int number = 0; !over.get(); number++) {
                Message message = new Message(queue.getTopic(), body(key, number).getBytes());
                boolean isSent = false;
                while (!isSent && !over.get()) {
                    say("try " + key);
                    try {
                        SendResult sent = producer.send(message, queue);
                        isSent = sent.getSendStatus() == SendStatus.SEND_OK;
                        if (isSent) say("sent " + key + " " + sent.getQueueOffset() + " " + sent.getMsgId());
                    } catch (Exception e) {
                        System.err.println(System.currentTimeMillis() + " " + e);
                    }
                    Thread.sleep(pauseMs);
                }
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /** As `tests/chaos/record.py` makes it. */
    private static String body(int key, int number) {
        StringBuilder body = new StringBuilder(key + ":" + number + ":");
        while (body.length() < 40 + number * 37 % 900) body.append('.');
        return body.toString();
    }

    private static RPCHook account() {
        String[] words = System.getProperty("account", "").split(":");
        return words.length < 2 ? null : new AclClientRPCHook(new SessionCredentials(words[0], words[1]));
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
