{#
    Table properties of a table that takes small MERGEs: changed rows go to
    delete files, no data file is rewritten. With the table bucketed by its key
    and the join settings of conf/spark-defaults.conf the target is not
    shuffled either.
#}
{% macro merge_on_read() %}
    {% do return({
        'format-version': '2',
        'write.merge.mode': 'merge-on-read',
        'write.update.mode': 'merge-on-read',
        'write.delete.mode': 'merge-on-read',
        'write.merge.distribution-mode': 'hash',
    }) %}
{% endmacro %}
