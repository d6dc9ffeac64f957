package org.apache.iceberg.jdbc;

import java.sql.Connection;
import java.sql.SQLNonTransientConnectionException;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Function;
import org.apache.iceberg.ClientPool;

/**
 * Iceberg's catalog in a database behind a network: it sends a statement once, whatever becomes of the reply, and all
 * sessions of a JVM share its connections.
 *
 * Iceberg's pool connects again when a connection breaks, and sends the statement again. Where the first one had
 * arrived, the second finds that the table has moved: the commit counts as failed, and the files of a snapshot that the
 * catalog has by then are deleted. Here a connection is tried before each statement, and that may be repeated. A commit
 * whose reply is lost is an error of unknown outcome, after which Iceberg deletes nothing.
 *
 * Janino compiles this: it knows neither lambdas nor what generics ask of a method that overrides another.
 */
public class SafeJdbcCatalog extends JdbcCatalog {
    private static final int SECONDS = 5;
    private static final Map POOLS = new HashMap();

    public SafeJdbcCatalog() {
        super(
            null,
            new Function() {
                public Object apply(Object properties) {
                    return pool((Map) properties);
                }
            },
            true);
    }

    static synchronized Object pool(Map properties) {
        Map key = new TreeMap();
        for (Iterator each = properties.keySet().iterator(); each.hasNext(); ) {
            String name = (String) each.next();
            if (name.equals("uri") || name.equals("clients") || name.startsWith("jdbc.")) {
                key.put(name, properties.get(name));
            }
        }
        if (!POOLS.containsKey(key)) {
            POOLS.put(key, new Pool(properties));
        }
        return POOLS.get(key);
    }

    static class Pool extends JdbcClientPool {
        Pool(Map properties) {
            super((String) properties.get("uri"), properties);
        }

        public Object run(ClientPool.Action action) throws Exception {
            super.run(new Probe(), true);
            // Among several connections it may be another that is used now: if that is broken, this is an error.
            return super.run(action, false);
        }

        /** A session that ends leaves the pool to the others. */
        public void close() {}
    }

    static class Probe implements ClientPool.Action {
        public Object run(Object connection) throws Exception {
            if (!((Connection) connection).isValid(SECONDS)) {
                throw new SQLNonTransientConnectionException("the connection is broken", "08006");
            }
            return null;
        }
    }
}
