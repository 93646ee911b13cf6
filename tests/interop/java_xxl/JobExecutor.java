import com.xxl.job.core.context.XxlJobHelper;
import com.xxl.job.core.executor.impl.XxlJobSimpleExecutor;
import com.xxl.job.core.handler.annotation.XxlJob;
import java.util.List;

/** An unmodified XXL-Job executor with one handler: JobExecutor ADMIN TOKEN PORT LOGS. It ends with its input. */
public class JobExecutor {
    public static class Handlers {
        @XxlJob("demo")
        public void demo() throws Exception {
            String parameter = XxlJobHelper.getJobParam();
            XxlJobHelper.log("hello {} shard {}/{}", parameter, XxlJobHelper.getShardIndex(), XxlJobHelper.getShardTotal());
            if (parameter.equals("fail")) {
                XxlJobHelper.handleFail("bad");
            } else if (parameter.equals("boom")) {
                throw new IllegalStateException("boom");
            } else if (parameter.startsWith("sleep")) {
                Thread.sleep(Long.parseLong(parameter.substring(5)));
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        XxlJobSimpleExecutor executor = new XxlJobSimpleExecutor();
        executor.setAdminAddresses(arguments[0]);
        executor.setAccessToken(arguments[1]);
        executor.setAppname("java-sample");
        executor.setIp("127.0.0.1");
        executor.setPort(Integer.parseInt(arguments[2]));
        executor.setLogPath(arguments[3]);
        executor.setLogRetentionDays(30);
        executor.setXxlJobBeanList(List.of(new Handlers()));
        executor.start();
        while (System.in.read() >= 0) {
        }
        executor.destroy();
        System.exit(0);
    }
}
