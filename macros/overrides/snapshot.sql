{# dbt-spark 1.11 stages a snapshot in a persistent view of the default schema, which snapshots of one name share. This
   view ends with the session. It adds columns last, and fails in MERGE if the type of one was changed. #}
{% macro spark_build_snapshot_staging_table(strategy, sql, target_relation) %}
    {% do require_columns(sql, target_relation) %}
    {% set staged = api.Relation.create(identifier=target_relation.identifier ~ '__dbt_tmp', type='view') %}
    {% call statement('build_snapshot_staging_relation') %}
        create or replace temporary view {{ staged.identifier }} as
        {{ snapshot_staging_table(strategy, sql, target_relation) }}
    {% endcall %}
    {% do return(staged) %}
{% endmacro %}


{# dbt-spark 1.11 returns the lines of DESCRIBE EXTENDED here, not columns: rows that `hard_deletes: new_record` adds
   would have NULL in every column. #}
{% macro spark__get_columns_in_relation(relation) %}
    {% do return(adapter.get_columns_in_relation(relation)) %}
{% endmacro %}


{# dbt-spark 1.11 inserts `*` here, which fails once the table has a column that the snapshot no longer reads. #}
{% macro spark__snapshot_merge_sql(target, source, insert_cols) %}
    {% do return(default__snapshot_merge_sql(target, source, insert_cols)) %}
{% endmacro %}
