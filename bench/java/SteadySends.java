import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/** SteadySends NAMESRV TOPIC POLL_MS PAUSE_MS: one send after the other until its input ends; a line "SENT end_ms 1" for an acknowledged one, "SENT end_ms 0" for another. */
public class SteadySends {
    public static void main(String[] a) throws Exception {
        DefaultMQProducer p = new DefaultMQProducer("PG_steady");
        p.setNamesrvAddr(a[0]); p.setPollNameServerInterval(Integer.parseInt(a[2])); p.start();
        AtomicBoolean over = new AtomicBoolean();
        Thread watch = new Thread(() -> { try { while (System.in.read() >= 0) { } } catch (Exception e) { } over.set(true); });
        watch.setDaemon(true); watch.start();
        while (!over.get()) {
            int ok = 0;
            try { if (p.send(new Message(a[1], new byte[100])).getSendStatus() == SendStatus.SEND_OK) ok = 1; }
            catch (Exception e) { System.err.println(System.currentTimeMillis() + " " + e); }
            System.out.println("SENT " + System.currentTimeMillis() + " " + ok); System.out.flush();
            Thread.sleep(Long.parseLong(a[3]));
        }
        Runtime.getRuntime().halt(0);
    }
}
