import java.io.FileReader;
import java.io.FileWriter;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Properties;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A DefaultMQPullConsumer that pulls every queue of a topic and writes each message as one JSON line; no check.
 *
 *   PollingLedger NAMESRV GROUP TOPIC committing|alone LEDGER
 *
 * committing: it goes on from its OffsetStore, which reports to the broker, and is a member that subscribes to the topic.
 * alone: its offsets are in a file of its own beside the ledger; it subscribes to nothing and reports nothing.
 * Like Apache's example it goes on from whatever offset the answer to a pull names.
 */
public final class PollingLedger {
    private final DefaultMQPullConsumer consumer;
    private final boolean alone;
    private final Path file;
    private final Properties own = new Properties();

    private PollingLedger(String[] args) throws Exception {
        consumer = new DefaultMQPullConsumer(args[1]);
        consumer.setNamesrvAddr(args[0]);
        alone = args[3].equals("alone");
        file = Path.of(args[4] + ".offsets");
        if (Files.exists(file))
            try (FileReader kept = new FileReader(file.toFile(), StandardCharsets.UTF_8)) { own.load(kept); }
        if (!alone) consumer.setRegisterTopics(Set.of(args[2]));
    }

    public static void main(String[] args) throws Exception {
        FileWriter ledger = new FileWriter(args[4], StandardCharsets.UTF_8, true);
        PollingLedger poller = new PollingLedger(args);
        try {
            poller.consumer.start();
        } catch (Exception e) {
            e.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
        Runtime.getRuntime().addShutdownHook(new Thread(poller.consumer::shutdown));
        System.out.println("ready");
        while (true) {
            boolean found = false;
            try {
                for (MessageQueue queue : poller.consumer.fetchSubscribeMessageQueues(args[2]))
                    found |= poller.poll(queue, ledger);
            } catch (Exception e) { // The topic, its route or the broker is not there: later.
                System.out.println(e.toString().split("\n")[0]);
            }
            if (!found) Thread.sleep(100);
        }
    }

    private boolean poll(MessageQueue queue, FileWriter ledger) throws Exception {
        long offset = offsetOf(queue);
        if (offset < 0) return false;
        PullResult result = consumer.pull(queue, "*", offset, 32);
        if (result.getPullStatus() == PullStatus.FOUND) note(ledger, result);
        if (result.getPullStatus() == PullStatus.OFFSET_ILLEGAL)
            System.out.println("moved " + queue + " from " + offset + " to " + result.getNextBeginOffset());
        keep(queue, result.getNextBeginOffset());
        return result.getPullStatus() == PullStatus.FOUND;
    }

    private long offsetOf(MessageQueue queue) throws Exception {
        if (alone) return Long.parseLong(own.getProperty(name(queue), "0"));
        long offset = consumer.fetchConsumeOffset(queue, false);
        return offset == -1 ? 0 : offset; // -2: the broker could not be asked.
    }

    private void keep(MessageQueue queue, long offset) throws Exception {
        if (!alone) {
            consumer.updateConsumeOffset(queue, offset);
            return;
        }
        if (String.valueOf(offset).equals(own.setProperty(name(queue), String.valueOf(offset)))) return;
        Path fresh = Path.of(file + ".tmp");
        try (FileWriter kept = new FileWriter(fresh.toFile(), StandardCharsets.UTF_8)) { own.store(kept, null); }
        Files.move(fresh, file, StandardCopyOption.ATOMIC_MOVE);
    }

    private static String name(MessageQueue queue) {
        return queue.getBrokerName() + "-" + queue.getQueueId();
    }

    private static void note(FileWriter ledger, PullResult result) throws IOException {
        for (MessageExt one : result.getMsgFoundList())
            ledger.write(String.format("{\"topic\": \"%s\", \"queue\": %d, \"offset\": %d, \"id\": \"%s\", \"body\": \"%s\"}%n",
                one.getTopic(), one.getQueueId(), one.getQueueOffset(), one.getMsgId(), new String(one.getBody(), StandardCharsets.UTF_8)));
        ledger.flush();
    }
}
