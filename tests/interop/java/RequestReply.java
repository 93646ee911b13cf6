import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.*;

/** Request and reply: a producer asks, a consumer answers over the broker, and the answer reaches the one who asked. */
final class RequestReply {
    static final int REQUESTS = 5;

    public static void main(String[] args) {
        Kit.main("RequestReply", args, k -> {
            String topic = k.topic("asked", 2);
            DefaultMQProducer replier = k.producer(), asker = k.start(new DefaultMQProducer("asker_" + k.run, Kit.account("account.client")), "asker"), other = k.start(new DefaultMQProducer("asker_" + k.run, Kit.account("account.client")), "other");
            AtomicInteger answered = new AtomicInteger();
            DefaultMQPushConsumer consumer = k.push(k.group("repliers"), "c");
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                for (MessageExt m : messages) try {
                    byte[] body = ("answer to " + new String(m.getBody(), StandardCharsets.UTF_8)).getBytes(StandardCharsets.UTF_8);
                    Kit.check(replier.send(MessageUtil.createReplyMessage(m, body)).getSendStatus() == SendStatus.SEND_OK, "the reply is accepted");
                    answered.incrementAndGet();
                } catch (Exception e) { return ConsumeConcurrentlyStatus.RECONSUME_LATER; }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            for (int i = 0; i < REQUESTS; i++) {
                DefaultMQProducer who = i % 2 == 0 ? asker : other;
                Message reply = who.request(new Message(topic, ("question " + i).getBytes(StandardCharsets.UTF_8)), 20000);
                Kit.eq("answer to question " + i, new String(reply.getBody(), StandardCharsets.UTF_8), "the answer to request " + i);
            }
            k.until(10000, "one answer to each request", () -> answered.get() == REQUESTS);
            return REQUESTS + " requests of two producers of one group, each answered to the one who asked";
        });
    }
}
