import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import scala.Tuple3;
import scala.collection.Seq;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * Adds the function lakehouse_sources(sql) to every session: the relations that a query reads, and why its result may
 * not follow from them (SqlSources), as JSON.
 *
 * Spark calls the builder of a function when it analyses a statement. The answer is a literal by then, so no executor
 * computes it, and the session that asks is the active one.
 */
public class LakehouseExtensions extends AbstractFunction1 {
    private static final String NAME = "lakehouse_sources";

    public Object apply(Object extensions) {
        ExpressionInfo info = new ExpressionInfo(SqlSources.class.getName(), NAME);
        ((SparkSessionExtensions) extensions)
            .injectFunction(new Tuple3(new FunctionIdentifier(NAME), info, new Builder()));
        return BoxedUnit.UNIT;
    }

    private static class Builder extends AbstractFunction1 {
        public Object apply(Object arguments) {
            Seq expressions = (Seq) arguments;
            Expression sql = expressions.size() == 1 ? (Expression) expressions.head() : null;
            Object text = sql != null && sql.foldable() ? sql.eval(null) : null;
            if (text == null) {
                throw new IllegalArgumentException(NAME + " takes the text of one query, as a literal");
            }
            try {
                String json = new ObjectMapper().writeValueAsString(new SqlSources(text.toString()).answer());
                return Literal$.MODULE$.apply(json);
            } catch (java.io.IOException error) {
                throw new IllegalStateException(error);
            }
        }
    }
}
