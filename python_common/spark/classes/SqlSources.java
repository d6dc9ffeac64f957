import java.util.Arrays;
import java.util.Collection;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.antlr.v4.runtime.tree.ParseTree;
import org.apache.iceberg.BaseMetadataTable;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.spark.source.SparkTable;
import org.apache.spark.SparkThrowable;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.analysis.CTESubstitution$;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistry$;
import org.apache.spark.sql.catalyst.analysis.TableFunctionRegistry$;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.LeafExpression;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable;
import org.apache.spark.sql.catalyst.parser.SqlBaseParser;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.trees.TreePattern$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.View;
import org.apache.spark.sql.connector.catalog.ViewCatalog;
import org.apache.spark.sql.execution.CommandExecutionMode$;
import org.apache.spark.sql.execution.SparkSqlParser;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.internal.SessionState;
import scala.collection.Iterator;
import scala.collection.Seq;
import scala.runtime.AbstractFunction1;

/**
 * What a query reads, by Spark's own parser and analyser, for builds that skip what is unchanged (docs/state.md).
 *
 * relations: the Iceberg tables and views, also below views: schema.name in the current catalog, else with the catalog;
 * volatile: why its result can change while they stay as they are; '' if it cannot;
 * unknown: why the relations are not all that it reads; '' if they are.
 *
 * Everything is listed that is known to be harmless, and nothing that is not: a function, an operator or a relation of
 * a later Spark is one more reason to run a node again.
 *
 * - The syntax tree has functions and typed literals: of `timestamp 'now'` the plan has the instant alone.
 * - The parsed plan has the names of views, of which the analysed plan has only what is below.
 * - The analysed plan has the tables, and what names mean: columns, variables, functions without parentheses.
 *
 * Janino compiles this: it knows neither lambdas nor generics.
 */
class SqlSources {
    /** Functions whose result follows from arguments and settings. Where rows have no order Spark takes any. */
    private static final Set FUNCTIONS = words(
        "ascii base64 bit_length btrim char char_length character_length chr concat_ws contains decode elt encode"
        + " endswith find_in_set format_number format_string initcap instr lcase left len length levenshtein locate"
        + " lower lpad ltrim luhn_check mask octet_length overlay position printf quote regexp_count regexp_extract"
        + " regexp_extract_all regexp_instr regexp_replace regexp_substr repeat replace right rpad rtrim soundex space"
        + " split split_part startswith substr substring substring_index to_binary to_char to_number to_varchar"
        + " translate trim try_to_binary try_to_number ucase unbase64 upper is_valid_utf8 make_valid_utf8 validate_utf8"
        + " abs acos acosh asin asinh atan atan2 atanh bin bround cbrt ceil ceiling conv cos cosh cot csc degrees div e"
        + " exp expm1 factorial floor greatest hex hypot least ln log log10 log1p log2 mod negative pi pmod positive"
        + " pow power radians rint round sec sign signum sin sinh sqrt tan tanh try_add try_divide try_mod"
        + " try_multiply try_subtract unhex width_bucket"
        + " coalesce if ifnull nanvl nullif nullifzero nvl nvl2 zeroifnull"
        + " array array_append array_compact array_contains array_distinct array_except array_insert array_intersect"
        + " array_join array_max array_min array_position array_prepend array_remove array_repeat array_size"
        + " array_union arrays_overlap arrays_zip flatten get sequence slice sort_array"
        + " any any_value approx_count_distinct approx_percentile array_agg avg bit_and bit_or bit_xor bool_and bool_or"
        + " collect_list collect_set corr count count_if covar_pop covar_samp every first first_value grouping"
        + " grouping_id kurtosis last last_value listagg max max_by mean median min min_by mode percentile"
        + " percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2"
        + " regr_slope regr_sxx regr_sxy regr_syy skewness some std stddev stddev_pop stddev_samp string_agg sum"
        + " try_avg try_sum var_pop var_samp variance"
        + " assert_true raise_error typeof"
        + " equal_null ilike isnan isnotnull isnull like regexp regexp_like rlike"
        + " bigint binary boolean date decimal double float int smallint string timestamp tinyint"
        + " cardinality concat element_at reverse size try_element_at"
        + " from_json get_json_object json_array_length json_object_keys json_tuple to_json"
        + " add_months date_add date_diff date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff"
        + " datepart day dayname dayofmonth dayofweek dayofyear extract from_unixtime from_utc_timestamp hour last_day"
        + " make_date make_dt_interval make_interval make_timestamp make_timestamp_ltz make_timestamp_ntz"
        + " make_ym_interval minute month monthname months_between next_day quarter second timestamp_micros"
        + " timestamp_millis timestamp_seconds to_date to_timestamp to_timestamp_ltz to_timestamp_ntz"
        + " to_utc_timestamp trunc try_to_date try_to_timestamp unix_date unix_micros unix_millis unix_seconds"
        + " weekday weekofyear year"
        + " crc32 hash md5 sha sha1 sha2 xxhash64"
        + " map map_concat map_contains_key map_entries map_from_arrays map_from_entries map_keys map_values str_to_map"
        + " bit_count bit_get getbit shiftleft shiftright shiftrightunsigned"
        + " cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number"
        + " explode explode_outer inline inline_outer posexplode posexplode_outer stack range"
        + " parse_url try_parse_url try_url_decode url_decode url_encode"
        + " aggregate array_sort exists filter forall map_filter map_zip_with reduce transform transform_keys"
        + " transform_values zip_with named_struct struct");

    /** The alternatives of the grammar's rules `primaryExpression` and `constant`, but for functions and literals. */
    private static final Set SYNTAX = words(
        "Any_value Cast CastByColon Collate ColumnReference ConstantDefault Dereference Extract First FunctionCall Lambda"
        + " Last Overlay ParenthesizedExpression Position RowConstructor SearchedCase SimpleCase Star Struct"
        + " SubqueryExpression Subscript Substring Timestampadd Timestampdiff Trim"
        + " BooleanLiteral IntervalLiteral NullLiteral NumericLiteral StringLiteral TypeConstructor");

    /** Spark evaluates these values before its analysed plan can show a text that becomes an instant. */
    private static final Set EVALUATED_EARLY = words(
        "ColumnReference ConstantDefault Dereference ParenthesizedExpression RowConstructor"
        + " BooleanLiteral NullLiteral NumericLiteral StringLiteral");

    private static final Set OPERATORS = words(
        "Aggregate CTERelationDef CTERelationRef Deduplicate Distinct Except Expand Filter Generate GlobalLimit Intersect"
        + " Join LateralJoin LocalLimit LocalRelation Offset OneRowRelation OneRowRelation$ PipeOperator Project"
        + " Range RebalancePartitions Repartition RepartitionByExpression ResolvedHint Sort SubqueryAlias Union Unpivot Window"
        + " WithCTE");

    /** Expressions without arguments. */
    private static final Set LEAVES = words(
        "AttributeReference CommonExpressionRef CumeDist CurrentRow$ EulerNumber LambdaVariable Literal NamedLambdaVariable"
        + " OuterReference Pi RowNumber UnboundedFollowing$ UnboundedPreceding$ UnspecifiedFrame$");

    /** Leaves of a parsed plan besides names. */
    private static final Set PARSED_LEAVES = words(
        "CTERelationRef LocalRelation OneRowRelation OneRowRelation$ Range UnresolvedInlineTable InlineTable"
        + " ResolvedInlineTable UnresolvedTableValuedFunction");

    /** Spark reads other texts by the clock: 'now', 'today', and '12:30' as of today. */
    private static final String ISO_DATE = "[0-9]{4}-[0-9].*";

    private final SessionState state;
    private final Set relations = new TreeSet();
    private final Set names = new HashSet();
    private String volatileReason = "";
    private String unknownReason = "";

    SqlSources(String sql) {
        SparkSession session = SparkSession.active();
        state = session.sessionState();
        try {
            String[] namespace = state.catalogManager().currentNamespace();
            LogicalPlan parsed = read(sql, state.catalogManager().currentCatalog().name(), namespace);
            if (parsed != null) {
                analysed(state.executePlan(parsed, CommandExecutionMode$.MODULE$.SKIP()).analyzed());
            }
            if (session.conf().getOption("spark.wap.branch").isDefined()) {
                unknown("spark.wap.branch names the snapshots that are read");
            }
        } catch (Exception error) {
            String condition = error instanceof SparkThrowable ? ((SparkThrowable) error).getCondition() : null;
            unknown("Spark does not analyse its SQL ("
                + (condition == null ? error.getClass().getSimpleName() : condition) + ")");
        }
    }

    Map answer() {
        Map answer = new TreeMap();
        answer.put("relations", relations);
        answer.put("volatile", volatileReason);
        answer.put("unknown", unknownReason);
        return answer;
    }

    /** Look into the text of a query or view; return its parsed plan, or null if it is none of a query. */
    private LogicalPlan read(String sql, String catalog, String[] namespace) throws Exception {
        if (sql.contains("${")) {
            // Spark replaces it before it parses.
            changes("its SQL has ${");
            return null;
        }
        Statement statement = new Statement();
        new SparkSqlParser().parse(sql, statement);
        if (!(statement.tree.statement() instanceof SqlBaseParser.StatementDefaultContext)) {
            unknown("its SQL is no query");
            return null;
        }
        syntax(statement.tree, SYNTAX);
        LogicalPlan parsed = state.sqlParser().parsePlan(sql);
        named(CTESubstitution$.MODULE$.apply(parsed), catalog, namespace);
        return parsed;
    }

    private static class Statement extends AbstractFunction1 {
        SqlBaseParser.SingleStatementContext tree;

        public Object apply(Object parser) {
            tree = ((SqlBaseParser) parser).singleStatement();
            return tree;
        }
    }

    /** Look into a syntax tree, in which `harmless` names the values that are. */
    private void syntax(ParseTree tree, Set harmless) {
        if (tree instanceof SqlBaseParser.InlineTableContext || tree instanceof SqlBaseParser.FunctionTableContext) {
            harmless = EVALUATED_EARLY;
        }
        if (tree instanceof SqlBaseParser.PrimaryExpressionContext || tree instanceof SqlBaseParser.ConstantContext) {
            String name = tree.getClass().getSimpleName();
            if (!harmless.contains(name.substring(0, name.length() - "Context".length()))) {
                changes("its SQL has " + tree.getText());
            }
        }
        if (tree instanceof SqlBaseParser.FunctionNameContext) {
            function(tree.getText());
        } else if (tree instanceof SqlBaseParser.LateralViewContext) {
            function(((SqlBaseParser.LateralViewContext) tree).qualifiedName().getText());
        } else if (tree instanceof SqlBaseParser.TypeConstructorContext) {
            literal((SqlBaseParser.TypeConstructorContext) tree);
        } else if (tree instanceof SqlBaseParser.TemporalClauseContext) {
            unknown("its SQL reads a former snapshot");
        } else if (tree instanceof SqlBaseParser.OptionsClauseContext) {
            unknown("its SQL reads with options");
        } else if (tree instanceof SqlBaseParser.SampleContext) {
            changes("its SQL has tablesample");
        } else if (tree instanceof SqlBaseParser.PivotClauseContext) {
            changes("its SQL has pivot, whose values Spark casts early");
        }
        for (int position = 0; position < tree.getChildCount(); position++) {
            syntax(tree.getChild(position), harmless);
        }
    }

    private void function(String text) {
        String name = text.toLowerCase();
        FunctionIdentifier identifier = new FunctionIdentifier(name);
        // A user's function may have the name of one of Spark's.
        boolean isBuiltin =
            state.functionRegistry().lookupFunction(identifier)
                .equals(FunctionRegistry$.MODULE$.builtin().lookupFunction(identifier))
            && state.tableFunctionRegistry().lookupFunction(identifier)
                .equals(TableFunctionRegistry$.MODULE$.builtin().lookupFunction(identifier));
        if (!isBuiltin || !FUNCTIONS.contains(name)) {
            changes("its SQL calls " + name);
        }
    }

    private void literal(SqlBaseParser.TypeConstructorContext tree) {
        String type = tree.literalType().getText().toLowerCase();
        String text = tree.singleStringLitWithoutMarker().getText();
        if (type.startsWith("date") || type.startsWith("time")) {
            // Behind the quote: a prefix or an escape is no digit.
            if (!text.substring(1).matches(ISO_DATE)) {
                changes("its SQL has a " + type + " literal without a date of four digits");
            }
        } else if (!type.equals("interval") && !type.equals("x")) {
            changes("its SQL has a literal of type " + type);
        }
    }

    /** Note the relations that a parsed plan names, and look into views. */
    private void named(LogicalPlan plan, String catalog, String[] namespace) throws Exception {
        if (plan instanceof UnresolvedRelation) {
            relation(((UnresolvedRelation) plan).multipartIdentifier(), catalog, namespace);
        } else if (plan.children().isEmpty() && !PARSED_LEAVES.contains(plan.getClass().getSimpleName())) {
            unknown("what its SQL reads is found by " + plan.getClass().getSimpleName());
        }
        for (Iterator each = plan.children().iterator(); each.hasNext(); ) {
            named((LogicalPlan) each.next(), catalog, namespace);
        }
        for (Iterator each = plan.expressions().iterator(); each.hasNext(); ) {
            namedBelow((Expression) each.next(), catalog, namespace);
        }
    }

    private void namedBelow(Expression expression, String catalog, String[] namespace) throws Exception {
        if (expression instanceof PlanExpression) {
            named((LogicalPlan) ((PlanExpression) expression).plan(), catalog, namespace);
        }
        for (Iterator each = expression.children().iterator(); each.hasNext(); ) {
            namedBelow((Expression) each.next(), catalog, namespace);
        }
    }

    private void relation(Seq given, String catalog, String[] namespace) throws Exception {
        String[] parts = new String[given.size()];
        given.copyToArray(parts);
        if (state.catalog().isTempView(given.toList())) {
            unknown(String.join(".", parts) + " is a temporary view");
            return;
        }
        if (parts.length > 1) {
            boolean hasCatalog = state.catalogManager().isCatalogRegistered(parts[0]);
            catalog = hasCatalog ? parts[0] : catalog;
            namespace = (String[]) Arrays.copyOfRange(parts, hasCatalog ? 1 : 0, parts.length - 1);
        }
        String name = parts[parts.length - 1];
        CatalogPlugin plugin = state.catalogManager().catalog(catalog);
        Identifier identifier = Identifier.of(namespace, name);
        if (!names.add(fullName(catalog, identifier)) || !(plugin instanceof ViewCatalog)) {
            return;
        }
        if (((ViewCatalog) plugin).viewExists(identifier)) {
            View view = ((ViewCatalog) plugin).loadView(identifier);
            add(catalog, identifier);
            read(view.query(), view.currentCatalog() == null ? catalog : view.currentCatalog(), view.currentNamespace());
        }
    }

    private static String fullName(String catalog, Identifier identifier) {
        return catalog + "." + String.join(".", identifier.namespace()) + "." + identifier.name();
    }

    /** Add a relation to the answer. */
    private void add(String catalog, Identifier identifier) {
        String name = fullName(catalog, identifier);
        if (identifier.namespace().length != 1 || !name.matches("[A-Za-z0-9_]+[.][A-Za-z0-9_]+[.][A-Za-z0-9_]+")) {
            unknown(name + " has another name than schema.table");
        }
        boolean isCurrent = catalog.equals(state.catalogManager().currentCatalog().name());
        relations.add(isCurrent ? name.substring(catalog.length() + 1) : name);
    }

    private void analysed(LogicalPlan plan) {
        if (plan instanceof DataSourceV2Relation) {
            table((DataSourceV2Relation) plan);
            return;
        }
        if (!OPERATORS.contains(plan.getClass().getSimpleName())) {
            unknown("its SQL reads by " + plan.getClass().getSimpleName());
        }
        if (plan instanceof SubqueryAlias) {
            SubqueryAlias alias = (SubqueryAlias) plan;
            Seq qualifier = alias.identifier().qualifier();
            // A table of Spark's own catalog, as the masking key's: the caller decides.
            if (qualifier.size() == 2 && qualifier.head().equals("spark_catalog")) {
                Identifier identifier = Identifier.of(new String[] {(String) qualifier.last()}, alias.identifier().name());
                add("spark_catalog", identifier);
                return;
            }
        }
        for (Iterator each = plan.expressions().iterator(); each.hasNext(); ) {
            value((Expression) each.next());
        }
        for (Iterator each = plan.children().iterator(); each.hasNext(); ) {
            analysed((LogicalPlan) each.next());
        }
    }

    private void table(DataSourceV2Relation relation) {
        if (!(relation.table() instanceof SparkTable) || relation.catalog().isEmpty()
            || relation.identifier().isEmpty()) {
            unknown("its SQL reads what is no Iceberg table");
            return;
        }
        SparkTable table = (SparkTable) relation.table();
        String catalog = ((CatalogPlugin) relation.catalog().get()).name();
        Identifier identifier = (Identifier) relation.identifier().get();
        if (!names.contains(fullName(catalog, identifier))) {
            unknown("its SQL reads " + fullName(catalog, identifier) + ", which it does not name");
        } else if (relation.timeTravelSpec().isDefined() || !isCurrent(table) || !relation.options().isEmpty()) {
            unknown("its SQL reads a former snapshot, a branch, or with options");
        } else if (table.table() instanceof BaseMetadataTable) {
            changes("its SQL reads a metadata table");
            String[] namespace = identifier.namespace();
            String[] schema = (String[]) Arrays.copyOfRange(namespace, 0, namespace.length - 1);
            add(catalog, Identifier.of(schema, namespace[namespace.length - 1]));
        } else {
            add(catalog, identifier);
        }
    }

    private static boolean isCurrent(SparkTable table) {
        Snapshot current = table.table().currentSnapshot();
        return table.branch() == null
            && (table.snapshotId() == null || current != null && table.snapshotId().longValue() == current.snapshotId());
    }

    private void value(Expression expression) {
        String name = expression.getClass().getSimpleName();
        if (expression instanceof Cast) {
            cast((Cast) expression, expression.dataType().simpleString());
        } else if (name.equals("JsonToStructs") && expression.dataType().simpleString().contains("timestamp")) {
            changes("its SQL reads instants from text, which takes the date of today where there is none");
        }
        if (expression instanceof RuntimeReplaceable) {
            value(((RuntimeReplaceable) expression).replacement());
        }
        if (expression instanceof PlanExpression) {
            analysed((LogicalPlan) ((PlanExpression) expression).plan());
        }
        for (Iterator each = expression.children().iterator(); each.hasNext(); ) {
            value((Expression) each.next());
        }
        if (expression instanceof LeafExpression && !LEAVES.contains(name)
            || expression.containsPattern(TreePattern$.MODULE$.CURRENT_LIKE())) {
            changes("its SQL depends on " + expression.prettyName());
        }
    }

    private void cast(Cast cast, String type) {
        String from = cast.child().dataType().simpleString();
        boolean isText = from.contains("string") || from.contains("char") || from.contains("variant");
        if (!isText || !(type.contains("timestamp") || type.equals("date"))) {
            return;
        }
        if (cast.child().foldable()) {
            Object text = cast.child().eval(null);
            if (text != null && !text.toString().trim().matches(ISO_DATE)) {
                changes("its SQL casts a text without a date of four digits to " + type);
            }
        } else if (!type.equals("date")) {
            changes("its SQL casts text to " + type + ", which takes the date of today where there is none");
        }
    }

    private void changes(String reason) {
        if (volatileReason.isEmpty()) {
            volatileReason = reason;
        }
    }

    private void unknown(String reason) {
        if (unknownReason.isEmpty()) {
            unknownReason = reason;
        }
    }

    private static Set words(String text) {
        return new HashSet((Collection) Arrays.asList((Object[]) text.split(" ")));
    }
}
