import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.compression.Compressor;
import org.apache.rocketmq.common.compression.CompressorFactory;

/**
 * Bodies by the official compressors. Arguments: a name server that is not asked, then for each of
 * ZLIB, LZ4 and ZSTD our compressed body in hex. The verdict carries the official ones of the same text.
 */
public class Compressed {
    public static void main(String[] args) throws Exception {
        StringBuilder verdict = new StringBuilder("PASS Compressed");
        byte[] expected = "abc".repeat(2000).getBytes();
        int at = 1;
        for (CompressionType type : new CompressionType[] {CompressionType.ZLIB, CompressionType.LZ4, CompressionType.ZSTD}) {
            Compressor compressor = CompressorFactory.getCompressor(type);
            byte[] plain = compressor.decompress(unhex(args[at++]));
            if (!java.util.Arrays.equals(plain, expected)) {
                System.out.println("FAIL Compressed " + type);
                System.exit(1);
            }
            verdict.append(' ').append(hex(compressor.compress(expected, 5)));
        }
        System.out.println(verdict);
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
