//! Chat templates render as under Jinja2 with the settings of the Python library they are written for.

use serde_json::json;

use super::super::{ChatTemplate, Message, RenderOptions, Role, TextError};
use super::{IM_END, IM_START};

/// A template of the ChatML kind with a default system message.
const CHATML: &str = "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}\
    {{ '<|im_start|>system\nBe helpful.<|im_end|>\n' }}{% endif %}\
    {{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}\
    {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

fn options() -> RenderOptions {
    RenderOptions { max_bytes: 1 << 20, now: 1_741_079_107, ..RenderOptions::default() }
}

fn chat() -> Vec<Message> {
    vec![
        Message::new(Role::System, "Be brief. <b>"),
        Message::new(Role::User, "Hi"),
        Message::new(Role::Assistant, "Hello!"),
    ]
}

fn render_with(template: &str, messages: &[Message], options: &RenderOptions) -> Result<String, TextError> {
    ChatTemplate::new(template, "<s>", "</s>").and_then(|template| template.render(messages, options))
}

fn render(template: &str) -> String {
    render_with(template, &chat(), &options()).unwrap()
}

#[test]
fn chatml_with_and_without_the_default_system_message() {
    let generate = RenderOptions { add_generation_prompt: true, ..options() };
    assert_eq!(
        render_with(CHATML, &[Message::new(Role::User, "Hi\n there ")], &generate).unwrap(),
        "<|im_start|>system\nBe helpful.<|im_end|>\n<|im_start|>user\nHi\n there <|im_end|>\n<|im_start|>assistant\n"
    );
    assert_eq!(
        render(CHATML),
        "<|im_start|>system\nBe brief. <b><|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello!<|im_end|>\n"
    );
    assert!(CHATML.contains(IM_START) && CHATML.contains(IM_END));
}

#[test]
fn developer_becomes_system_where_the_template_does_not_know_it() {
    let messages = [Message::new(Role::Developer, "x")];
    let roles = |template: &str| render_with(template, &messages, &options()).unwrap();
    assert_eq!(roles("{{ messages[0].role }}"), "system");
    assert_eq!(roles("{{ messages[0].role }}{# developer #}"), "developer");
}

#[test]
fn a_refusal_by_the_template_is_passed_on_in_its_own_words() {
    let template = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}";
    let refused = render_with(template, &chat(), &options());
    assert_eq!(refused, Err(TextError::Refused("System role not supported".into())));
    let in_macro = "{% macro no() %}{{ raise_exception('no ' ~ 1) }}{% endmacro %}{{ no() }}";
    assert_eq!(render_with(in_macro, &chat(), &options()), Err(TextError::Refused("no 1".into())));
}

#[test]
fn failures_name_line_and_reason() {
    let failed = render_with("\n\n{{ messages[9].role }}", &chat(), &options());
    let Err(TextError::Template { message, line: 3 }) = failed else { panic!("{failed:?}") };
    assert!(message.contains("messages[9]"), "{message}");
    let error = ChatTemplate::new("a\n{% for %}", "", "").unwrap_err().to_string();
    assert!(error.contains("line 2") && error.contains("/v1/completions"), "{error}");
}

#[test]
fn a_template_can_not_work_without_end() {
    for bomb in [
        "{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}",
        "{% set ns = namespace(x='a') %}{% for i in range(100) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{{ 'a' * 100000000 }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ] {
        assert!(matches!(render_with(bomb, &chat(), &options()), Err(TextError::Template { .. })), "{bomb}");
    }
    let short = RenderOptions { max_bytes: 10, ..options() };
    assert_eq!(render_with(CHATML, &chat(), &short), Err(TextError::TooLong { bytes: 21, max: 10 }));
}

#[test]
fn tojson_is_pythons() {
    let tools = json!([{"zeta": "<é> & 'c'", "alpha": [1, 2.5, null, true], "none": {}}]);
    let options = RenderOptions { tools: Some(tools), ..options() };
    let tojson = |template: &str| render_with(template, &chat(), &options).unwrap();
    let line = r#"[{"zeta": "<é> & 'c'", "alpha": [1, 2.5, null, true], "none": {}}]"#;
    assert_eq!(tojson("{{ tools | tojson }}"), line);
    assert_eq!(tojson("{{ tools | tojson(ensure_ascii=False) }}"), line);
    assert_eq!(
        tojson("{{ tools[0] | tojson(indent=2) }}"),
        "{\n  \"zeta\": \"<é> & 'c'\",\n  \"alpha\": [\n    1,\n    2.5,\n    null,\n    true\n  ],\n  \"none\": {}\n}"
    );
    assert!(render_with("{{ 1 | tojson(sort_keys=True) }}", &chat(), &options).is_err());
}

#[test]
fn messages_show_only_the_fields_that_they_have() {
    let call = Message { tool_calls: Some(json!([{"id": "c1"}])), ..Message::new(Role::Assistant, "") };
    let result = Message { tool_call_id: Some("c1".into()), ..Message::new(Role::Tool, "42") };
    assert_eq!(
        render_with("{{ messages | tojson }}", &[call, result], &options()).unwrap(),
        r#"[{"role": "assistant", "content": "", "tool_calls": [{"id": "c1"}]}, {"role": "tool", "content": "42", "tool_call_id": "c1"}]"#
    );
    assert_eq!(render("{{ messages[0].name is defined }}{{ tools is none }}"), "FalseTrue");
}

#[test]
fn generation_tags_mark_and_change_nothing() {
    let template =
        "{% for m in messages %}\n  {% generation %}\n{{ m.content }}\n  {% endgeneration %}\n{% endfor %}end\n";
    assert_eq!(render(template), "Be brief. <b>\nHi\nHello!\nend");
    assert_eq!(
        render("a  {%- generation -%}  b  {%- endgeneration -%}  c {% if true %}{{ '{%' }}{% endif %}"),
        "abc {%"
    );
    assert_eq!(render("{{ 'generation' }}{% set generation = 1 %}{{ generation }}"), "generation1");
}

#[test]
fn what_jinja2_has_is_there() {
    for (template, expected) in [
        ("{{ bos_token }}{{ eos_token }}{{ unk_token }}", "<s></s>"),
        ("{{ strftime_now('%d %b %Y') }} {{ strftime_now('%-d/%-m') }}", "04 Mar 2025 4/3"),
        ("{{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }} {{ 'abc'.removeprefix('x') }}", "bc ab abc"),
        ("{{ ' a,b '.strip().split(',')[-1] }}{{ 'x'.upper() }}{{ 'abc'.startswith('ab') }}", "bXTrue"),
        ("{{ none }} {{ true }} {{ 7 // 2 }} {{ 1.0 }}", "None True 3 1.0"),
        ("{% for m in messages[::-1] %}{{ m.role }} {% endfor %}", "assistant user system "),
        ("{% for m in messages %}{% if loop.index == 2 %}{% break %}{% endif %}{{ m.role }}{% endfor %}", "system"),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "3"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list | length }}", "1"),
        ("{% for k, v in messages[1].items() %}{{ k }}={{ v }};{% endfor %}", "role=user;content=Hi;"),
        ("{{ messages[0] is mapping }} {{ messages[1].get('x', 'd') }}", "True d"),
        ("{% macro f(x, y='d') %}<{{ x }}:{{ y }}>{% endmacro %}{{ f('a') }}{{ f('b', y=2) }}", "<a:d><b:2>"),
        ("  {% if true %}\n  x\n  {% endif %}\n\ny\n\n", "  x\n\ny\n"),
        ("{{ '<' | e }}", "&lt;"),
    ] {
        assert_eq!(render(template), expected, "{template}");
    }
}

#[test]
fn extra_variables_do_not_replace_the_request() {
    let extra = json!({"enable_thinking": false, "messages": "mine"}).as_object().cloned().unwrap();
    let options = RenderOptions { extra, ..options() };
    assert_eq!(render_with("{{ enable_thinking }}{{ messages | length }}", &chat(), &options).unwrap(), "False3");
}
