-- What translated SQL calls in DuckDB (duckdb_sql.py). Casts go through text that Spark and DuckDB read alike: a value
-- of a type whose text they do not is refused, and a text that Spark takes for no value becomes one that DuckDB does.
create macro is_integer(x) as regexp_matches(typeof(x), '^([A-Z]*INT|INTEGER|INTEGER_LITERAL)$');
create macro is_decimal(x) as typeof(x) like 'DECIMAL%';
create macro is_float(x) as typeof(x) in ('DOUBLE', 'FLOAT');
create macro is_time(x) as typeof(x) = 'DATE' or typeof(x) like 'TIMESTAMP%';
create macro refused(x) as error('needs Spark: a cast of ' || typeof(x));

create macro plain_text(x) as case
    when x is null then null
    when typeof(x) in ('VARCHAR', 'BOOLEAN', 'DATE') or is_integer(x) or is_decimal(x) then x::varchar
    when is_time(x) then regexp_replace(x::varchar, '[+]00$', '')
    else refused(x) end;
-- A fraction is cut off in Spark, and no integer as text; DuckDB rounds.
create macro integer_text(x) as case
    when x is null or is_integer(x) then x::varchar
    when typeof(x) = 'VARCHAR' then if(regexp_full_match(trim(x::varchar), '[+-]?[0-9]+'), x::varchar, 'no integer')
    when is_decimal(x) or is_float(x) then trunc(try_cast(x::varchar as decimal(38, 10)))::decimal(38, 0)::varchar
    else refused(x) end;
-- Spark rounds the shortest text of a double, as DuckDB does of text alone.
create macro number_text(x) as case
    when x is null or typeof(x) = 'VARCHAR' or is_integer(x) or is_decimal(x) or is_float(x) then x::varchar
    else refused(x) end;
create macro boolean_text(x) as if(x is null or x::varchar in ('true', 'false'), x::varchar, refused(x));
create macro date_text(x) as case
    when x is null then null
    when (typeof(x) = 'VARCHAR' or is_time(x)) and regexp_matches(x::varchar, '^[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([ T]|$)')
        then split_part(replace(x::varchar, 'T', ' '), ' ', 1)
    when typeof(x) = 'VARCHAR' and not regexp_matches(x::varchar, '[0-9]') then 'no date'
    else refused(x) end;
create macro time_text(x) as case
    when x is null or is_time(x) then x::varchar
    when is_integer(x) or is_float(x) or is_decimal(x) then to_timestamp(try_cast(x::varchar as double))::varchar
    when regexp_full_match(
        x::varchar, '[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?)?(Z|[+]00(:00)?)?'
    ) then x::varchar
    else refused(x) end;

-- Letters whose other case is several letters, or depends on those around them.
create macro with_case(x) as
    if(regexp_matches(x, '[ßİŉǰΐΰΣևẖ-ẚẞἀ-ᾼιὂ-ῼﬀ-ﬗ]'), error('needs Spark: the other case of a letter'), x);
create macro not_null(x) as case when x is null then error('needs Spark: NULL in a struct that is ordered') else x end;
create macro integer_quotient(x, y) as
    if(x is null or is_integer(x), x / y, error('needs Spark: a quotient of ' || typeof(x)));
create macro fits(x) as typeof(x) <> 'HUGEINT' or x between -9223372036854775808 and 9223372036854775807;
create macro ansi_sum(x) as if(fits(sum(x)), sum(x), error('a sum overflows'));
create macro try_sum(x) as if(fits(sum(x)), sum(x), null);
create macro safe_add(a, b) as try(a + b);
create macro safe_multiply(a, b) as try(a * b);
-- A run without an increment: the bounds from the beginning.
create macro lakehouse_bound(name, beginning) as beginning;
