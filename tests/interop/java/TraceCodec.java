import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.rocketmq.client.AccessChannel;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.trace.TraceBean;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.client.trace.TraceTransferBean;
import org.apache.rocketmq.client.trace.TraceType;
import org.apache.rocketmq.common.message.MessageType;

/**
 * Traces by the official codec: what it makes of ours, and its own of known contexts. Arguments: a
 * name server that is not asked, and our trace data in hex. The verdict carries the official data.
 */
public class TraceCodec {
    public static void main(String[] args) {
        String ours = new String(unhex(args[1]), StandardCharsets.UTF_8);
        StringBuilder again = new StringBuilder();
        for (TraceContext context : TraceDataEncoder.decoderFromTraceDataString(ours)) {
            context.setAccessChannel(AccessChannel.LOCAL); // Not part of the data, but looked at.
            again.append(TraceDataEncoder.encoderFromContextBean(context).getTransData());
        }
        if (!again.toString().equals(ours)) {
            System.out.println("FAIL TraceCodec read\n" + ours + "\nand wrote\n" + again);
            System.exit(1);
        }
        StringBuilder known = new StringBuilder();
        for (TraceContext context : contexts()) {
            TraceTransferBean bean = TraceDataEncoder.encoderFromContextBean(context);
            known.append(bean.getTransData());
        }
        System.out.println("PASS TraceCodec " + hex(known.toString().getBytes(StandardCharsets.UTF_8)));
    }

    private static List<TraceContext> contexts() {
        List<TraceContext> made = new ArrayList<>();
        for (TraceType type : new TraceType[] {
            TraceType.Pub, TraceType.SubBefore, TraceType.SubAfter, TraceType.EndTransaction}) {
            TraceContext context = new TraceContext();
            context.setTraceType(type);
            context.setTimeStamp(1700000000000L);
            context.setRegionId("DefaultRegion");
            context.setGroupName("group");
            context.setCostTime(7);
            context.setSuccess(type != TraceType.SubAfter);
            context.setRequestId("REQUEST");
            context.setContextCode(4);
            context.setAccessChannel(AccessChannel.LOCAL);
            context.setTraceBeans(Arrays.asList(bean("ID1", "k1 k2"), bean("ID2", null)));
            made.add(context);
        }
        return made;
    }

    private static TraceBean bean(String id, String keys) {
        TraceBean bean = new TraceBean();
        bean.setTopic("topic");
        bean.setMsgId(id);
        bean.setOffsetMsgId("OFFSET" + id);
        bean.setTags("tag");
        bean.setKeys(keys);
        bean.setStoreHost("127.0.0.1:10911");
        bean.setClientHost("127.0.0.1");
        bean.setBodyLength(12);
        bean.setRetryTimes(2);
        bean.setMsgType(MessageType.Trans_Msg_Half);
        bean.setTransactionId("TX");
        bean.setTransactionState(LocalTransactionState.ROLLBACK_MESSAGE);
        bean.setFromTransactionCheck(true);
        return bean;
    }

    private static byte[] unhex(String text) {
        byte[] bytes = new byte[text.length() / 2];
        for (int at = 0; at < bytes.length; at++) {
            bytes[at] = (byte) Integer.parseInt(text.substring(2 * at, 2 * at + 2), 16);
        }
        return bytes;
    }

    private static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte one : bytes) {
            text.append(String.format("%02x", one));
        }
        return text.toString();
    }
}
