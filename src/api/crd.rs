//! The two custom resource definitions as they are installed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::CustomResourceExt;

use super::{RedisLease, RedisQuorum};

/// Both definitions, in the order in which they are applied.
pub fn all() -> [CustomResourceDefinition; 2] {
    [redis_quorum(), redis_lease()]
}

/// The definition of `RedisLease`.
pub fn redis_lease() -> CustomResourceDefinition {
    published(RedisLease::crd())
}

/// The definition of `RedisQuorum`.
pub fn redis_quorum() -> CustomResourceDefinition {
    published(RedisQuorum::crd())
}

/// The derived definition, with two changes to its schema.
///
/// It lets every optional field be null. Without `nullable` the API server drops a null before anybody sees it, so that neither the
/// rules nor a reader of the stored object meets a second way to write "absent".
///
/// Descriptions have the line breaks of the source: `kubectl explain` breaks lines itself.
fn published(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        if let Some(schema) = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut()) {
            tidy(schema);
        }
    }
    crd
}

fn tidy(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    if let Some(description) = &mut schema.description {
        *description = description.replace('\n', " ");
    }
    for property in schema.properties.iter_mut().flat_map(|p| p.values_mut()) {
        tidy(property);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(item)) => tidy(item),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(tidy),
        None => {}
    }
}
