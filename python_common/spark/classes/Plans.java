import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.iceberg.Schema;
import org.apache.iceberg.expressions.Binder;
import org.apache.iceberg.expressions.Expression;
import org.apache.iceberg.spark.source.SparkTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.CommandExecutionMode$;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import org.apache.spark.sql.internal.SessionState;
import scala.collection.Iterator;
import scala.collection.Seq;

/**
 * How Spark plans a query, without running it.
 *
 * operators: how often each is in the plan, by name;
 * filters: by Iceberg table, schema.name, the columns of the conditions by which Iceberg skips files. That a column is
 * not NULL, as each inner join asks, skips hardly a file and is left out.
 *
 * Both are missing for what Spark cannot plan.
 *
 * Janino compiles this: it knows neither lambdas nor generics.
 */
class Plans {
    private final Map operators = new TreeMap();
    private final Map filters = new TreeMap();

    static Map of(String sql) {
        SessionState state = SparkSession.active().sessionState();
        Map answer = new TreeMap();
        Plans plans = new Plans();
        SparkPlan plan;
        try {
            LogicalPlan parsed = state.sqlParser().parsePlan(sql);
            plan = state.executePlan(parsed, CommandExecutionMode$.MODULE$.SKIP()).executedPlan();
        } catch (Exception error) {
            return answer;
        }
        plans.add(plan);
        answer.put("operators", plans.operators);
        answer.put("filters", plans.filters);
        return answer;
    }

    private void add(SparkPlan plan) {
        if (plan instanceof AdaptiveSparkPlanExec) {
            add(((AdaptiveSparkPlanExec) plan).executedPlan());
            return;
        }
        if (plan instanceof BatchScanExec) {
            addScan((BatchScanExec) plan);
        } else {
            Integer before = (Integer) operators.get(plan.nodeName());
            operators.put(plan.nodeName(), Integer.valueOf(before == null ? 1 : before.intValue() + 1));
        }
        addAll(plan.children());
        addAll(plan.subqueries());
    }

    private void addAll(Seq plans) {
        for (Iterator each = plans.iterator(); each.hasNext();) {
            add((SparkPlan) each.next());
        }
    }

    private void addScan(BatchScanExec plan) {
        if (!(plan.table() instanceof SparkTable)) {
            return;
        }
        org.apache.iceberg.Table table = ((SparkTable) plan.table()).table();
        String[] name = table.name().split("[.]");
        String key = name[name.length - 2] + "." + name[name.length - 1];
        Set columns = (Set) filters.get(key);
        if (columns == null) {
            columns = new TreeSet();
            filters.put(key, columns);
        }
        List conditions = new ArrayList();
        for (java.util.Iterator each = filters(plan.scan()).iterator(); each.hasNext();) {
            Expression condition = (Expression) each.next();
            if (condition.op() != Expression.Operation.NOT_NULL) {
                conditions.add(condition);
            }
        }
        Schema schema = table.schema();
        Set ids = Binder.boundReferences(schema.asStruct(), conditions, false);
        for (java.util.Iterator each = ids.iterator(); each.hasNext();) {
            columns.add(schema.findColumnName(((Integer) each.next()).intValue()));
        }
    }

    /** The conditions of a scan, which Spark shows as text alone, and which are protected in Iceberg. */
    private static List filters(Scan scan) {
        try {
            Method method = Class.forName("org.apache.iceberg.spark.source.SparkScan").getDeclaredMethod("filters");
            method.setAccessible(true);
            return (List) method.invoke(scan);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }
}
