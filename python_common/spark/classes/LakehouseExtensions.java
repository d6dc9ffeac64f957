import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Map;
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
 * Adds two functions to every session, which answer as JSON: lakehouse_sources(sql), the relations that a query reads,
 * and why its result may not follow from them (SqlSources); lakehouse_relations(names), what relations are (Relations).
 *
 * Spark calls the builder of a function when it analyses a statement. The answer is a literal by then, so no executor
 * computes it, and the session that asks is the active one.
 */
public class LakehouseExtensions extends AbstractFunction1 {
    public Object apply(Object extensions) {
        add((SparkSessionExtensions) extensions, new Sources("lakehouse_sources"));
        add((SparkSessionExtensions) extensions, new Descriptions("lakehouse_relations"));
        return BoxedUnit.UNIT;
    }

    private static void add(SparkSessionExtensions extensions, Builder builder) {
        ExpressionInfo info = new ExpressionInfo(LakehouseExtensions.class.getName(), builder.name);
        extensions.injectFunction(new Tuple3(new FunctionIdentifier(builder.name), info, builder));
    }

    private abstract static class Builder extends AbstractFunction1 {
        final String name;

        Builder(String name) {
            this.name = name;
        }

        abstract Map answer(String text);

        public Object apply(Object arguments) {
            Seq expressions = (Seq) arguments;
            Expression argument = expressions.size() == 1 ? (Expression) expressions.head() : null;
            Object text = argument != null && argument.foldable() ? argument.eval(null) : null;
            if (text == null) {
                throw new IllegalArgumentException(name + " takes one text, as a literal");
            }
            try {
                return Literal$.MODULE$.apply(new ObjectMapper().writeValueAsString(answer(text.toString())));
            } catch (java.io.IOException error) {
                throw new IllegalStateException(error);
            }
        }
    }

    private static class Sources extends Builder {
        Sources(String name) {
            super(name);
        }

        Map answer(String sql) {
            return new SqlSources(sql).answer();
        }
    }

    private static class Descriptions extends Builder {
        Descriptions(String name) {
            super(name);
        }

        Map answer(String names) {
            return Relations.described(names);
        }
    }
}
