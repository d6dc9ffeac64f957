r"""Spark's SQL in DuckDB: what means the same in both is translated, and all else is refused.

sqlglot translates names and forms. What it would change silently is restored here and in duckdb_macros.sql, or raises
NeedsSpark. Only what COMPARED lists is translated: `test_quick_tables_equal_spark` compares it with Spark's rows.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import sqlglot
from sqlglot import exp

MACROS = Path(__file__).with_name("duckdb_macros.sql")
REFUSED = "needs Spark: "
"""How the message of an error begins that DuckDB raises where a value means something else to Spark."""
COMPARED = frozenset(
    {
        *("Add", "AddMonths", "Alias", "Aliases", "And", "Anonymous", "ArgMax", "ArgMin", "Array", "ArrayAgg"),
        *("ArrayCompact", "ArrayExcept", "ArrayMax", "ArraySize", "ArraySort", "ArrayUniqueAgg", "Between", "Boolean"),
        *("CTE", "Case", "Cast", "Coalesce", "Column", "Concat", "ConcatWs", "Count", "CountIf", "DPipe", "DataType"),
        *("DataTypeParam", "DateTrunc", "Distinct", "Div", "Dot", "EQ", "Encode", "Explode", "Extract", "Filter"),
        *("From", "GT", "GTE", "GenerateSeries", "Greatest", "Group", "Having", "Identifier", "If", "In", "Interval"),
        *("Is", "Join", "LT", "LTE", "Lambda", "Lateral", "Lead", "Length", "Like", "Literal", "Lower", "Max"),
        *("Min", "Month", "Mul", "NEQ", "Neg", "Not", "Null", "NullSafeEQ", "NullSafeNEQ", "Nullif", "Or", "Order"),
        *("Ordered", "Pad", "Paren", "Posexplode", "PropertyEQ", "Quarter", "RegexpExtract", "RegexpLike"),
        *("RegexpReplace", "Repeat", "RowNumber", "SHA2", "SafeAdd", "SafeMultiply", "Select", "SplitPart", "Star"),
        *("Struct", "Sub", "Subquery", "Substring", "Sum", "Table", "TableAlias", "TimeStrToTime", "TimeToStr"),
        *("TimestampTrunc", "Transform", "Translate", "TryCast", "TsOrDsToDate", "Unhex", "Union", "UnixMillis"),
        *("Upper", "Var", "WeekOfYear", "Where", "Window", "With", "Year"),
    }
)
FUNCTIONS = ("lakehouse_bound", "try_sum")
EXTRACTED = {"yearofweek": "isoyear", "dayofweek_iso": "isodow"}
# The macros by whose text a value becomes one of a type.
TEXTS = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), "integer_text"),
    **dict.fromkeys(("DECIMAL", "DOUBLE"), "number_text"),
    **{"BOOLEAN": "boolean_text", "DATE": "date_text", "TEXT": "plain_text"},
    **dict.fromkeys(("TIMESTAMPTZ", "TIMESTAMPNTZ", "TIMESTAMP"), "time_text"),
}
# What DuckDB gives another type than Spark.
INTEGERS = (exp.ArraySize, exp.Length, exp.Month, exp.Quarter, exp.WeekOfYear, exp.Year)
DATES = (exp.AddMonths, exp.DateTrunc)
TEXT = (exp.Concat, exp.DPipe, exp.Lower, exp.Pad, exp.RegexpReplace, exp.SHA2, exp.Translate, exp.Upper)
COLLECTED = (exp.ArrayAgg, exp.ArrayUniqueAgg)
QUOTIENTS = {"10": "0.1", "100": "0.01", "1000": "0.001"}
EXTREMES = {exp.Max: exp.ArgMax, exp.Min: exp.ArgMin}
PATTERNS = (exp.RegexpExtract, exp.RegexpLike, exp.RegexpReplace)
# Forms of a node that its class does not show.
REFUSED_FORMS: dict[type, Callable[[Any], object]] = {
    exp.Anonymous: lambda node: node.name.lower() not in FUNCTIONS or isinstance(node.parent, (exp.Filter, exp.Window)),
    exp.Count: lambda node: isinstance(node.this, exp.Distinct) and len(node.this.expressions) > 1,
    exp.Extract: lambda node: node.name.lower() not in EXTRACTED,
    exp.GenerateSeries: lambda node: not node.args["start"].is_type("date") or node.args.get("step"),
    # To DuckDB NULL is the greatest field of a struct, to Spark the least.
    **dict.fromkeys((exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Ordered), lambda node: isinstance(node.this, exp.Struct)),
    exp.Group: lambda node: node.args.get("all"),
    exp.Join: lambda node: node.args.get("method"),
    exp.Lateral: lambda node: node.args.get("outer"),
    exp.Like: lambda node: not node.expression.is_string or "\\" in node.expression.name,
    # DuckDB's TRY takes no function that raises.
    **dict.fromkeys((exp.SafeAdd, exp.SafeMultiply), lambda node: node.find(exp.Anonymous)),
    exp.Select: lambda node: node.args.get("kind"),
    exp.Star: lambda node: any(node.args.get(part) for part in ("except_", "replace", "rename")),
    exp.Sum: lambda node: isinstance(node.this, exp.Distinct) or isinstance(node.parent, (exp.Filter, exp.Window)),
    exp.TimeToStr: lambda node: node.text("format") != "%A",
    # The order of what is collected is chance, and so is which of equal rows has the least key.
    **dict.fromkeys(COLLECTED, lambda node: not isinstance(node.parent, exp.ArraySort)),
    **dict.fromkeys(EXTREMES.values(), lambda node: node.this not in _fields(node.expression)),
}


class NeedsSpark(Exception):
    """SQL that DuckDB would run in another way, or not at all; the text says which part."""


def translate(sql: str, tables: Mapping[str, str], are_bounds_open: bool = False) -> str:
    """Return a statement of Spark's SQL in DuckDB's; `tables` has DuckDB's table for each `schema.table` in it.

    The bounds of a run are those from the beginning; open ones have every row in them, as in a unit test.

    Raises:
        NeedsSpark: it has what was not compared with Spark.
    """
    try:
        tree: Any = sqlglot.parse_one(sql, dialect="spark")
    except sqlglot.errors.SqlglotError:
        raise NeedsSpark("sqlglot cannot read it") from None
    for node in [*tree.find_all(exp.Hint)]:
        node.pop()
    for node in [*tree.find_all(exp.GT, exp.GTE, exp.LTE)] if are_bounds_open else ():
        if isinstance(node.expression, exp.Cast) and _is_bound(node.expression.this):
            node.replace(exp.true())
    # Children first: a rule sees parts that are translated.
    for node in reversed([*tree.walk()]):
        is_refused = REFUSED_FORMS.get(type(node))
        if type(node).__name__ not in COMPARED or (is_refused and is_refused(node)):
            form = f"this form of {node.key}" if is_refused else node.key
            name = node.name if isinstance(node, exp.Anonymous) else form
            raise NeedsSpark(f"{name} was not compared with Spark's")
        if isinstance(node, exp.Table) and node.db:
            _place(node, tables)
        elif rule := RULES.get(type(node)):
            node.replace(rule(node))
    try:
        return str(tree.sql("duckdb", unsupported_level=sqlglot.ErrorLevel.RAISE, copy=False))
    except sqlglot.errors.UnsupportedError as error:
        raise NeedsSpark(str(error)) from None


def increments(sql: str) -> list[str]:
    """Return the parts of a model's SQL that only an increment runs: conditions with bounds, and affected keys."""
    try:
        tree = sqlglot.parse_one(sql, dialect="spark")
    except sqlglot.errors.SqlglotError:
        return [sql]
    parts: list[exp.Expr] = [one for one in tree.find_all(exp.CTE) if one.alias == "affected"]
    for bound in filter(_is_bound, tree.find_all(exp.Anonymous)):
        term: exp.Expr = bound
        while term.parent and not isinstance(term.parent, (exp.And, exp.Having, exp.Join, exp.Where)):
            term = term.parent
        parts.append(term)
    return sorted(part.sql("spark", comments=False) for part in parts)


def _is_bound(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() == "lakehouse_bound"


def _place(table: exp.Table, tables: Mapping[str, str]) -> None:
    name = ".".join(part.name for part in table.parts)
    if name not in tables:
        raise NeedsSpark(f"it reads {name}")
    if not table.alias:
        table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name)))
    for part, identifier in zip(("catalog", "db", "this"), tables[name].split("."), strict=True):
        table.set(part, exp.to_identifier(identifier, quoted=True))


def _call(name: str, *arguments: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=[*arguments])


def _as(node: exp.Expr, kind: str) -> exp.Expr:
    return exp.Cast(this=node, to=exp.DataType.build(kind, dialect="spark"))


def _as_text(node: Any) -> Any:
    is_text = isinstance(node, TEXT) or node.is_string or node.name in ("plain_text", "with_case")
    return node if is_text else _call("plain_text", node)


def _fields(node: exp.Expr) -> list[Any]:
    """Return the values of a struct's fields; none of another expression."""
    fields = node.expressions if isinstance(node, exp.Struct) else []
    return [field.expression if isinstance(field, exp.PropertyEQ) else field for field in fields]


def _changed(node: Any, **parts: exp.Expr) -> Any:
    return type(node)(**{**node.args, **parts})


def _concat(node: Any) -> Any:
    is_binary = any(isinstance(part, (exp.Encode, exp.Subquery, exp.Unhex)) for part in node.expressions)
    node.set("expressions", node.expressions if is_binary else [_as_text(part) for part in node.expressions])
    return node


def _collected(node: Any) -> Any:
    """Return a list that is sorted: its structs may have NULL in their last field alone."""
    for field, value in zip(node.this.expressions[:-1], _fields(node.this), strict=False):
        field.set("expression", _call("not_null", value))
    return node


def _cast(node: Any) -> Any:
    """Return a cast, which is an error where Spark's is: sqlglot reads all casts as those that give NULL."""
    kind, value = node.to.this.name, node.this
    if isinstance(value, exp.Null) or (isinstance(value, exp.Array) and not value.expressions):
        return exp.Cast(this=value, to=node.to)
    if kind not in TEXTS:
        raise NeedsSpark(f"a cast to {node.to.sql('spark')} was not compared with Spark's")
    if kind == "TEXT":
        return _as_text(value)
    return (exp.TryCast if node.args.get("safe") else exp.Cast)(this=_call(TEXTS[kind], value), to=node.to)


def _quotient(node: exp.Div) -> exp.Expr:
    """Return a decimal divided by a power of ten, which is exact, or an integer by another one, which is a double."""
    dividend, digits = node.this.unnest(), node.expression.name if node.expression.is_int else ""
    if isinstance(dividend, exp.Cast) and dividend.to.this == exp.DType.DECIMAL and digits in QUOTIENTS:
        return exp.Mul(this=node.this, expression=_as(exp.Literal.string(QUOTIENTS[digits]), "decimal(4, 3)"))
    if digits.strip("0"):
        return _call("integer_quotient", node.this, node.expression)
    raise NeedsSpark("the type of a quotient was not compared with Spark's")


def _key(struct: exp.Expr) -> exp.Expr:
    """Return a struct that DuckDB orders as Spark does this one: NULL comes first in each field."""
    values = [part for one in _fields(struct) for part in (one.is_(exp.null()).not_(), one.copy())]
    pairs = [exp.PropertyEQ(this=exp.to_identifier(f"k{at}"), expression=value) for at, value in enumerate(values)]
    return exp.Struct(expressions=pairs)


def _extreme(node: Any) -> Any:
    """Return the greatest or least value, of structs by their fields."""
    return EXTREMES[type(node)](this=node.this, expression=_key(node.this)) if _fields(node.this) else node


def _regexp(node: Any) -> Any:
    is_replacing, replacement = isinstance(node, exp.RegexpReplace), node.args.get("replacement")
    text = replacement.name if replacement and replacement.is_string else ""
    # Java's `$1` is a group, and nothing else that begins with a dollar or a backslash is text.
    is_text = node.expression.is_string and (not replacement or replacement.is_string)
    if not is_text or "\\" in text or re.search(r"\$(?!\d)", text):
        raise NeedsSpark("this regular expression or its replacement was not compared with Spark's")
    node.set("expression", exp.Literal.string(re2(node.expression.name, is_replacing)))
    if is_replacing:
        node.set("replacement", exp.Literal.string(text.replace("$", "\\")))
    return node


def re2(pattern: str, is_replacing: bool) -> str:
    r"""Return a regular expression of Java as one of RE2, which DuckDB has; raises NeedsSpark.

    Java's `\s` has a vertical tab, its `.` no line end, and its `$` is also before a last line end.
    """
    refused = ("(?", "++", "*+", "?+", "}+", "&&", *(("*", "?") if is_replacing else ()))
    is_greedy = "\\s" in pattern.rpartition("[")[2] and pattern.endswith("+$")
    is_open = pattern.endswith("$") and is_replacing and not is_greedy
    if any(part in pattern for part in refused) or "$" in pattern[:-1] or is_open:
        raise NeedsSpark("this regular expression was not compared with Spark's")
    translated, is_in_class = "", False
    for part in re.findall(r"\\p\{Is\w+\}|\\.|.", pattern, re.DOTALL):
        if part[:2] == "\\s":
            translated += r"\t\n\x0B\f\r " if is_in_class else r"[\t\n\x0B\f\r ]"
        elif part[:2] == "\\p":
            translated += f"\\p{{{part[5:-1]}}}"
        elif (part[0] == "\\" and part[1].isalnum() and part[1] not in "dwz") or (is_in_class and part == "["):
            raise NeedsSpark(f"{part} in a regular expression was not compared with Spark's")
        elif part == "." and not is_in_class:
            translated += r"[^\n\r\x{85}\x{2028}\x{2029}]"
        elif part == "$":
            # A greedy class with all white space leaves no line end to be the last one.
            translated += r"\z" if is_replacing else r"(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?\z"
        else:
            translated += part
        is_in_class = part == "[" or (is_in_class and part != "]")
    return translated


# What replaces a node whose children are translated.
RULES: dict[type, Callable[[Any], Any]] = {
    **dict.fromkeys((exp.Cast, exp.TryCast), _cast),
    exp.TsOrDsToDate: lambda node: _as(_call("date_text", node.this), "date"),
    **dict.fromkeys(DATES, lambda node: _as(node.copy(), "date")),
    **dict.fromkeys(INTEGERS, lambda node: _as(node.copy(), "int")),
    exp.Extract: lambda node: _as(_changed(node, this=exp.var(EXTRACTED[node.name.lower()])), "int"),
    exp.GenerateSeries: lambda node: _as(_changed(node, step=sqlglot.parse_one("interval '1' day")), "array<date>"),
    **dict.fromkeys((exp.Concat, exp.ConcatWs), _concat),
    exp.DPipe: lambda node: _changed(node, this=_as_text(node.this), expression=_as_text(node.expression)),
    exp.Pad: lambda node: _changed(node, this=_as_text(node.this)),
    **dict.fromkeys((exp.Lower, exp.Upper), lambda node: _changed(node, this=_call("with_case", node.this))),
    **dict.fromkeys(PATTERNS, _regexp),
    **dict.fromkeys(COLLECTED, _collected),
    exp.Div: _quotient,
    exp.Sum: lambda node: _call("ansi_sum", node.this),
    # DuckDB's count of NULLs alone, or of no rows, is NULL.
    exp.CountIf: lambda node: exp.Filter(this=exp.Count(this=exp.Star()), expression=exp.Where(this=node.this)),
    **dict.fromkeys(EXTREMES, _extreme),
    exp.ArgMax: lambda node: _call("arg_max_null", node.this, _key(node.expression)),
    exp.ArgMin: lambda node: _call("arg_min_null", node.this, _key(node.expression)),
}
