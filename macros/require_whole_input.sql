{# Runs before every command that writes: `--empty` and `--sample` would leave rows out of what a model reads, and the
   model would record their batches as read. #}
{% macro require_whole_input() %}
    {% if flags.EMPTY or invocation_args_dict.get('sample') %}
        {% do exceptions.raise_compiler_error(
            '--empty and --sample are not supported: models keep what they have read. Leave the option out.'
        ) %}
    {% endif %}
{% endmacro %}
