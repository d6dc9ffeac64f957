import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.util.Arrays;
import java.util.Map;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.classic.SparkSession;
import scala.Tuple3;
import scala.collection.Seq;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * Adds four functions to every session:
 * - lakehouse_sources(sql): the relations that a query reads, and why its result may not follow from them, as JSON;
 * - lakehouse_relations(names): what relations are, as JSON;
 * - lakehouse_plan(sql): how Spark plans a query, as JSON;
 * - lakehouse_bound(name, default): a bound of what a model reads, from the session's setting lakehouse.bounds, which
 *   is JSON; without it, the default.
 *
 * Spark calls the builder of a function when it analyses a statement. The answer is a literal by then, so no executor
 * computes it, Iceberg prunes files by it, and the session that asks is the active one.
 */
public class LakehouseExtensions extends AbstractFunction1 {
    public Object apply(Object extensions) {
        add((SparkSessionExtensions) extensions, new Sources("lakehouse_sources", 1));
        add((SparkSessionExtensions) extensions, new Descriptions("lakehouse_relations", 1));
        add((SparkSessionExtensions) extensions, new Planned("lakehouse_plan", 1));
        add((SparkSessionExtensions) extensions, new Bounds("lakehouse_bound", 2));
        return BoxedUnit.UNIT;
    }

    private static void add(SparkSessionExtensions extensions, Builder builder) {
        ExpressionInfo info = new ExpressionInfo(LakehouseExtensions.class.getName(), builder.name);
        extensions.injectFunction(new Tuple3(new FunctionIdentifier(builder.name), info, builder));
    }

    private abstract static class Builder extends AbstractFunction1 {
        final String name;
        private final int count;

        Builder(String name, int count) {
            this.name = name;
            this.count = count;
        }

        abstract String answer(String[] texts) throws IOException;

        public Object apply(Object arguments) {
            Seq expressions = (Seq) arguments;
            String[] texts = new String[expressions.size()];
            for (int position = 0; position < texts.length; position++) {
                Expression argument = (Expression) expressions.apply(position);
                Object text = argument.foldable() ? argument.eval(null) : null;
                texts[position] = text == null ? null : text.toString();
            }
            if (texts.length != count || Arrays.asList((Object[]) texts).contains(null)) {
                throw new IllegalArgumentException(name + " takes literals of text: " + count);
            }
            try {
                return Literal$.MODULE$.apply(answer(texts));
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }
    }

    private static class Sources extends Builder {
        Sources(String name, int count) {
            super(name, count);
        }

        String answer(String[] texts) throws IOException {
            return new ObjectMapper().writeValueAsString(new SqlSources(texts[0]).answer());
        }
    }

    private static class Descriptions extends Builder {
        Descriptions(String name, int count) {
            super(name, count);
        }

        String answer(String[] texts) throws IOException {
            return new ObjectMapper().writeValueAsString(Relations.described(texts[0]));
        }
    }

    private static class Planned extends Builder {
        Planned(String name, int count) {
            super(name, count);
        }

        String answer(String[] texts) throws IOException {
            return new ObjectMapper().writeValueAsString(Plans.of(texts[0]));
        }
    }

    private static class Bounds extends Builder {
        Bounds(String name, int count) {
            super(name, count);
        }

        String answer(String[] texts) throws IOException {
            String bounds = SparkSession.active().sessionState().conf().getConfString("lakehouse.bounds", "{}");
            Object bound = ((Map) new ObjectMapper().readValue(bounds, Map.class)).get(texts[0]);
            return bound == null ? texts[1] : bound.toString();
        }
    }
}
