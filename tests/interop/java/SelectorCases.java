import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.*;

/**
 * What RocketMQ's own SQL92 filter says of many cases. Arguments: a file of cases, a file for the answers.
 * A case is a line of Base64 words: the expression, then name and value of each property. An answer is a line:
 * REFUSED (no such selector), TRUE, FALSE, NULL, or ERROR (evaluating it threw).
 */
public class SelectorCases {
    public static void main(String[] a) throws Exception {
        List<String> answers = new ArrayList<>();
        for (String line : Files.readAllLines(Paths.get(a[0]))) {
            String[] words = line.split(" ", -1);
            Map<String, String> properties = new HashMap<>();
            for (int i = 1; i < words.length; i += 2) properties.put(text(words[i]), text(words[i + 1]));
            answers.add(answer(text(words[0]), properties));
        }
        Files.write(Paths.get(a[1]), answers);
        System.out.println("PASS SelectorCases " + answers.size() + " cases");
    }

    static String answer(String expression, Map<String, String> properties) {
        Expression compiled;
        try {
            compiled = FilterFactory.INSTANCE.get("SQL92").compile(expression);
        } catch (MQFilterException e) {
            return "REFUSED";
        }
        try {
            Object value = compiled.evaluate(new EvaluationContext() {
                public Object get(String name) { return properties.get(name); }
                public Map<String, Object> keyValues() { return new HashMap<>(properties); }
            });
            return value == null ? "NULL" : value.toString().toUpperCase();
        } catch (Exception e) {
            return "ERROR";
        }
    }

    static String text(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }
}
