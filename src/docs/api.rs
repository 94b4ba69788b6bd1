//! docs/api.md, from the CustomResourceDefinitions.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use redislease_plan::api::crd;

use super::{assert_current, cell};

const HEAD: &str = "# API reference

<!-- Generated from the CustomResourceDefinitions by `make docs`. -->

Group `redislease.io`, version `v1alpha1`. `kubectl explain redislease.spec` shows the same descriptions. The API server rejects an
object that breaks one of the rules, with the sentence shown here. The labels and annotations on pods are in
[concepts.md](concepts.md#labels-and-annotations).
";

fn page() -> String {
    let mut page = HEAD.to_owned();
    for crd in crd::all().into_iter().rev() {
        page += &resource(&crd);
    }
    page
}

fn resource(crd: &CustomResourceDefinition) -> String {
    let names = &crd.spec.names;
    let version = &crd.spec.versions[0];
    let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref()).expect("a schema");
    let short = names.short_names.iter().flatten().cloned().collect::<Vec<_>>().join(", ");
    let mut text = format!(
        "\n## {}\n\n{}\n\nPlural `{}`, short name `{short}`.\n",
        names.kind,
        schema.description.as_deref().unwrap_or_default(),
        names.plural,
    );
    text += &rules(schema);
    text += "\n`kubectl get` shows these columns; those marked \"wide\" with `-o wide` only:\n\n| column | meaning |\n|---|---|\n";
    for column in version.additional_printer_columns.iter().flatten() {
        let wide = if column.priority.unwrap_or(0) > 0 { " (wide)" } else { "" };
        let meaning = column.description.as_deref().unwrap_or_default();
        text += &format!("| {}{wide} | {} |\n", column.name, cell(meaning));
    }
    let properties = schema.properties.iter().flatten();
    for (name, property) in properties.filter(|(name, _)| ["spec", "status"].contains(&name.as_str())) {
        text += &object(&names.kind, name, property);
    }
    text
}

/// A section for an object and for each object in it.
fn object(kind: &str, path: &str, schema: &JSONSchemaProps) -> String {
    let description = schema.description.as_deref().unwrap_or_default();
    let mut text = format!("\n### {kind}: {path}\n\n{description}\n");
    text += &rules(schema);
    text += "\n| field | type | default | description |\n|---|---|---|---|\n";
    let required = schema.required.clone().unwrap_or_default();
    let mut nested = String::new();
    for (name, field) in schema.properties.iter().flatten() {
        let default = match &field.default {
            Some(default) if default.0.is_object() => "see below".to_owned(),
            Some(default) => format!("`{}`", default.0.to_string().trim_matches('"')),
            None if required.contains(name) => "required".to_owned(),
            None => "-".to_owned(),
        };
        // The rules of an object are in its own section.
        let is_object = field.properties.is_some();
        let rules: String =
            messages(field).filter(|_| !is_object).map(|message| format!(" Rule: {message}.")).collect();
        let described = format!("{}{rules}", field.description.as_deref().unwrap_or_default());
        text += &format!("| `{name}` | {} | {default} | {} |\n", type_of(field), cell(&described));
        let below = format!("{path}.{name}");
        match items(field) {
            Some(items) if items.properties.is_some() => nested += &object(kind, &format!("{below}[]"), items),
            None if field.properties.is_some() => nested += &object(kind, &below, field),
            _ => {}
        }
    }
    text + &nested
}

fn items(schema: &JSONSchemaProps) -> Option<&JSONSchemaProps> {
    match &schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => Some(items),
        _ => None,
    }
}

fn type_of(schema: &JSONSchemaProps) -> String {
    let known = schema.type_.as_deref().unwrap_or("any");
    if let Some(items) = items(schema) {
        return format!("list of {}", type_of(items));
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &schema.additional_properties {
        return format!("map of {}", type_of(values));
    }
    let values: Vec<String> =
        schema.enum_.iter().flatten().map(|value| value.0.to_string().replace('"', "`")).collect();
    if values.is_empty() { known.to_owned() } else { values.join(", ") }
}

/// The rules of a whole object, as a list.
fn rules(schema: &JSONSchemaProps) -> String {
    let list: String = messages(schema).map(|message| format!("- {message}.\n")).collect();
    if list.is_empty() { list } else { format!("\nRules:\n\n{list}") }
}

/// The messages of the rules. A message with values is an expression: the names of the fields stand for the values.
fn messages(schema: &JSONSchemaProps) -> impl Iterator<Item = String> {
    schema.x_kubernetes_validations.iter().flatten().filter_map(|rule| {
        let message = rule.message.clone().or_else(|| rule.message_expression.as_deref().map(without_values));
        Some(message?.replace('<', "&lt;"))
    })
}

/// `'a (' + self.b + ') c'` without the values: `a (b) c`.
fn without_values(expression: &str) -> String {
    expression.replace("' + self.", "").replace(" + '", "").trim_matches('\'').to_owned()
}

#[test]
fn page_of_the_api_is_current() {
    assert_current("docs/api.md", &page());
}

#[test]
fn every_field_is_on_the_page() {
    let page = page();
    for field in ["spec.candidates.selector.matchExpressions[]", "spec.nodes[]", "status.history[]", "status.leader"] {
        assert!(page.contains(&format!(": {field}\n")), "{field} is missing");
    }
    assert!(
        page.contains("leaseDuration (leaseDuration) must be at least 3 * renewInterval (renewInterval)"),
        "{page}"
    );
}
