import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.spark.source.SparkTable;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.View;
import org.apache.spark.sql.connector.catalog.ViewCatalog;

/**
 * What Iceberg tables and views of the current catalog are, by name, without a job (macros/relations/describe.sql). A
 * relation that is missing, of another kind, or cannot be read is left out.
 *
 * Janino compiles this: it knows neither lambdas nor generics.
 */
class Relations {
    /** Describe relations, given as schema.name with blanks between them. */
    static Map described(String names) {
        CatalogPlugin catalog = SparkSession.active().sessionState().catalogManager().currentCatalog();
        String[] all = names.trim().split(" +");
        Map answer = new TreeMap();
        for (int position = 0; position < all.length; position++) {
            String[] parts = all[position].split("[.]");
            try {
                Identifier identifier = Identifier.of(new String[] {parts[0]}, parts[1]);
                Map description = isView(catalog, identifier)
                    ? view(((ViewCatalog) catalog).loadView(identifier))
                    : table(((TableCatalog) catalog).loadTable(identifier));
                if (description != null) {
                    answer.put(all[position], description);
                }
            } catch (Exception error) {
                continue;
            }
        }
        return answer;
    }

    private static boolean isView(CatalogPlugin catalog, Identifier identifier) {
        return catalog instanceof ViewCatalog && ((ViewCatalog) catalog).viewExists(identifier);
    }

    private static Map view(View view) {
        Map description = new TreeMap();
        description.put("is_view", Boolean.TRUE);
        description.put("text", view.query());
        description.put("columns", view.schema().json());
        description.put("names", Arrays.toString(view.queryColumnNames()));
        description.put("resolved_in", view.currentCatalog() + "." + String.join(".", view.currentNamespace()));
        return description;
    }

    private static Map table(Table table) {
        if (!(table instanceof SparkTable)) {
            return null;
        }
        org.apache.iceberg.Table stored = ((SparkTable) table).table();
        Snapshot snapshot = stored.currentSnapshot();
        List columns = new ArrayList();
        Column[] all = table.columns();
        for (int position = 0; position < all.length; position++) {
            String comment = all[position].comment() == null ? "" : all[position].comment();
            String type = all[position].dataType().json() + (all[position].nullable() ? "" : " not null");
            columns.add(Arrays.asList((Object[]) new String[] {all[position].name(), type, comment}));
        }
        Map properties = new TreeMap(table.properties());
        properties.remove(TableCatalog.PROP_LOCATION);
        Map description = new TreeMap();
        description.put("is_view", Boolean.FALSE);
        description.put("columns", columns);
        description.put("schema_id", Integer.valueOf(stored.schema().schemaId()));
        description.put("partitions", stored.spec().toString());
        description.put("properties", properties);
        description.put("snapshot", snapshot == null ? "none" : String.valueOf(snapshot.snapshotId()));
        description.put("rows", snapshot == null ? "0" : snapshot.summary().get("total-records"));
        description.put("built_from", snapshot == null ? null : snapshot.summary().get("lakehouse.built-from"));
        description.put("is_first_commit", Boolean.valueOf(snapshot != null && snapshot.parentId() == null));
        return description;
    }
}
