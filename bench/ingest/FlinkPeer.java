import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

/**
 * Peer: Flink SQL in one JVM with a cluster that serves all jobs.
 *
 * <p>Arguments: topic, bootstrap servers, registry, catalog URI, warehouse. Each line {@code table batch-records} on
 * stdin lands the topic once; Flink commits by checkpoints, so the batch size means nothing to it. The answer is -1: how
 * many rows there are is counted in the table.
 */
public final class FlinkPeer {
    private static final String PAYLOAD =
            "order_id INT, product_id INT, customer_id INT, confirmation_code STRING, cc_number STRING,"
                    + " expiration STRING, amount DOUBLE, ts TIMESTAMP(3)";

    public static void main(String[] args) throws Exception {
        Configuration configuration = new Configuration();
        configuration.setString("parallelism.default", "2");
        configuration.setString("rest.bind-port", "0");
        configuration.setString("execution.checkpointing.interval", "10 s");
        configuration.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
        configuration.setString("restart-strategy.type", "none");
        configuration.setString("table.exec.iceberg.use-v2-sink", "true");
        MiniCluster cluster =
                new MiniCluster(
                        new MiniClusterConfiguration.Builder()
                                .setConfiguration(configuration)
                                .setNumTaskManagers(1)
                                .setNumSlotsPerTaskManager(2)
                                .build());
        cluster.start();
        URI address = cluster.getRestAddress().get();
        configuration.setString("execution.target", "remote");
        configuration.setString("rest.address", address.getHost());
        configuration.setString("rest.port", Integer.toString(address.getPort()));
        TableEnvironment tables =
                TableEnvironment.create(
                        EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(configuration).build());
        tables.executeSql(
                "CREATE TABLE source (" + PAYLOAD + ", kafka_raw_key BYTES,"
                        + " kafka_topic STRING METADATA FROM 'topic' VIRTUAL,"
                        + " kafka_partition INT METADATA FROM 'partition' VIRTUAL,"
                        + " kafka_offset BIGINT METADATA FROM 'offset' VIRTUAL,"
                        + " kafka_timestamp TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL)"
                        + " WITH ('connector' = 'kafka', 'topic' = '" + args[0] + "',"
                        + " 'properties.bootstrap.servers' = '" + args[1] + "',"
                        + " 'properties.isolation.level' = 'read_committed',"
                        + " 'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset',"
                        + " 'key.format' = 'raw', 'key.fields' = 'kafka_raw_key', 'value.fields-include' = 'EXCEPT_KEY',"
                        + " 'value.format' = 'avro-confluent', 'value.avro-confluent.url' = '" + args[2] + "')");
        tables.executeSql(
                "CREATE CATALOG lake WITH ('type' = 'iceberg',"
                        + " 'catalog-impl' = 'org.apache.iceberg.jdbc.JdbcCatalog', 'jdbc.schema-version' = 'V1',"
                        + " 'uri' = '" + args[3] + "', 'warehouse' = '" + args[4] + "')");
        tables.executeSql("CREATE DATABASE IF NOT EXISTS lake.bench");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String table = "lake.bench." + line.split(" ")[0];
            tables.executeSql(
                    "CREATE TABLE " + table + " (" + PAYLOAD.replace("TIMESTAMP(3)", "TIMESTAMP(6)")
                            + ", kafka_raw_key BYTES, kafka_topic STRING, kafka_partition INT, kafka_offset BIGINT,"
                            + " kafka_timestamp TIMESTAMP_LTZ(6))");
            tables.executeSql("INSERT INTO " + table + " SELECT * FROM source").await();
            System.out.println(-1);
        }
        cluster.close();
    }
}
