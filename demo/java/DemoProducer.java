import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.topic.TopicValidator;

/**
 * demo/producer.py on Apache RocketMQ's own client: steady traffic, and one special message for each order on standard input.
 *
 *   DemoProducer NAMESRV BROKER QUEUES MESSAGES_PER_S TOPIC ...
 *
 * A message that cannot be sent (the broker is down) is dropped; traffic goes on when there is somebody to send to.
 */
public final class DemoProducer {
    private static final int ORDER_TRIES_MAX = 20;

    public static void main(String[] args) throws Exception {
        int queues = Integer.parseInt(args[2]);
        long pauseMs = 1_000 / Long.parseLong(args[3]);
        DefaultMQProducer producer = new DefaultMQProducer("demo-producers");
        producer.setNamesrvAddr(args[0]);
        producer.setClientIP("127.0.0.1");
        producer.setInstanceName("producer");
        producer.setPollNameServerInterval(5_000);
        producer.setHeartbeatBrokerInterval(3_000);
        producer.start();
        Runtime.getRuntime().addShutdownHook(new Thread(producer::shutdown));
        for (int i = 4; i < args.length; i++) {
            producer.createTopic(TopicValidator.AUTO_CREATE_TOPIC_KEY_TOPIC, args[i], queues, Map.of());
            String topic = args[i];
            Thread sender = new Thread(() -> sendSteadily(producer, topic, pauseMs));
            sender.setDaemon(true);
            sender.start();
        }
        System.out.println("ready " + producer.buildMQClientId());
        carryOutOrders(producer, args[1]);
        Thread.currentThread().join();
    }

    private static void sendSteadily(DefaultMQProducer producer, String topic, long pauseMs) {
        for (long number = 1; ; number++) {
            try {
                Thread.sleep(pauseMs);
                producer.send(message(topic, topic + " " + number, topic + "-" + number));
            } catch (InterruptedException stopped) {
                return;
            } catch (Exception error) {
                System.out.println("not sent: " + error);
            }
        }
    }

    /** Until the stage closes its end of the pipe. */
    private static void carryOutOrders(DefaultMQProducer producer, String broker) throws Exception {
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            JSONObject order = JSON.parseObject(line);
            String topic = order.getString("topic");
            Message message = message(topic, "made to harm", order.getString("key"));
            sendSurely(producer, message, new MessageQueue(topic, broker, order.getIntValue("queue_id")));
        }
    }

    private static void sendSurely(DefaultMQProducer producer, Message message, MessageQueue queue) throws Exception {
        for (int tries = 0; tries < ORDER_TRIES_MAX; tries++) {
            try {
                SendResult result = producer.send(message, queue);
                System.out.println("sent " + message.getKeys() + " " + result.getMessageQueue() + " " + result.getQueueOffset());
                return;
            } catch (Exception error) {
                System.out.println("not sent yet: " + error);
                Thread.sleep(1_000);
            }
        }
        System.out.println("gave up: " + message.getKeys());
    }

    private static Message message(String topic, String body, String key) {
        return new Message(topic, "", key, body.getBytes(StandardCharsets.UTF_8));
    }
}
