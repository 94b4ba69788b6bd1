//! `redislease status`: one line for each lease with what `kubectl get rl` does not show: how many candidates can be elected,
//! why the last term ended, and the message of the condition Ready. Its watch continues when a connection breaks, and prints a
//! lease only when its status changes. It needs the verbs `list` and `watch` on RedisLeases only.

mod print;
mod summary;

use std::collections::BTreeMap;
use std::io;

use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use futures::TryStreamExt as _;
use kube::api::ListParams;
use kube::core::DeserializeGuard;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};

use crate::api::RedisLease;
use crate::cli::client::{self, Outcome};
use crate::cli::values;
use crate::operator::kube_api::{self, CallError};
use print::{Printer, Table};
use summary::LeaseSummary;

/// The timeout of a watch request in seconds. A broken connection is noticed after this time.
const WATCH_SECONDS: u32 = 45;

/// The number of leases in one page of a list request.
const PAGE: u32 = 500;

/// Show the holder of each lease, how many pods can be elected, why the last term ended, and why a lease is not held.
#[derive(Debug, Args)]
pub(super) struct Status {
    /// The name of a RedisLease. Default: all leases in the namespace
    name: Option<String>,

    /// The namespace. Default: the namespace of the current kubeconfig context
    #[arg(short, long, env = "REDISLEASE_STATUS_NAMESPACE", value_name = "NAMESPACE", value_parser = values::namespace)]
    namespace: Option<String>,

    /// Show the leases of all namespaces. Overrides --namespace
    #[arg(short = 'A', long, env = "REDISLEASE_STATUS_ALL_NAMESPACES", value_parser = BoolishValueParser::new(), conflicts_with = "name")]
    all_namespaces: bool,

    /// The output format
    #[arg(short, long, env = "REDISLEASE_STATUS_OUTPUT", value_enum, default_value_t, value_name = "FORMAT")]
    output: Output,

    /// Keep running, and show each lease again when its status changes
    #[arg(short, long, env = "REDISLEASE_STATUS_WATCH", value_parser = BoolishValueParser::new())]
    watch: bool,
}

/// The output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    /// One line per lease
    #[default]
    Table,
    /// A JSON list; with --watch, one JSON object per line
    Json,
}

type Guarded = DeserializeGuard<RedisLease>;

impl Status {
    pub fn run(self) -> Outcome {
        client::run(self.show())
    }

    async fn show(&self) -> Outcome {
        let (client, address) = kube_api::client().await?;
        let namespace = self.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        let leases = self.list(&self.api(client.clone(), &namespace), &namespace).await;
        let leases = leases.map_err(|error| format!("{error} (the API server at {address})"))?;
        if leases.is_empty() && !self.watch {
            return self.report_no_leases(&namespace);
        }
        let printer = match self.output {
            Output::Table => Printer::Table(Table::for_leases(&leases, self.all_namespaces)),
            Output::Json if self.watch => Printer::Lines,
            Output::Json => Printer::List,
        };
        printer.all(&leases, &mut io::stdout().lock())?;
        if self.watch {
            return self.follow(self.api(client, &namespace), &namespace, leases, &printer).await;
        }
        Ok(())
    }

    fn api(&self, client: Client, namespace: &str) -> Api<Guarded> {
        if self.all_namespaces { Api::all(client) } else { Api::namespaced(client, namespace) }
    }

    fn fields(&self) -> Option<String> {
        self.name.as_ref().map(|name| format!("metadata.name={name}"))
    }

    fn scope(&self, namespace: &str) -> String {
        if self.all_namespaces { "in all namespaces".into() } else { format!("in namespace {namespace}") }
    }

    /// Lists the leases page by page, and sorts them by namespace and name.
    async fn list(&self, api: &Api<Guarded>, namespace: &str) -> Outcome<Vec<LeaseSummary>> {
        let mut params = ListParams { field_selector: self.fields(), ..ListParams::default() }.limit(PAGE);
        let mut leases = Vec::new();
        loop {
            let page =
                kube_api::call(api.list(&params)).await.map_err(|error| self.explain("list", &error, namespace))?;
            leases.extend(page.items.iter().map(LeaseSummary::of));
            let more = page.metadata.continue_.filter(|token| !token.is_empty());
            let Some(token) = more else { break };
            params.continue_token = Some(token);
        }
        leases.sort_by_key(LeaseSummary::key);
        Ok(leases)
    }

    fn explain(&self, verb: &str, error: &CallError, namespace: &str) -> String {
        let what = format!("cannot {verb} RedisLeases {}", self.scope(namespace));
        match error {
            CallError::NotFound => format!(
                "{what}: the API server does not know the kind RedisLease; install it with \
                 `redislease crds | kubectl apply --server-side -f -`"
            ),
            other => format!("{what}: {other}"),
        }
    }

    fn report_no_leases(&self, namespace: &str) -> Outcome {
        if let Some(name) = &self.name {
            return Err(format!("there is no RedisLease {name} in namespace {namespace}").into());
        }
        match self.output {
            Output::Json => Printer::List.all(&[], &mut io::stdout().lock())?,
            Output::Table => eprintln!("No RedisLeases {}.", self.scope(namespace)),
        }
        Ok(())
    }

    /// Shows each lease that changes, until interrupted. `known` contains the leases that were shown before.
    async fn follow(&self, api: Api<Guarded>, namespace: &str, known: Vec<LeaseSummary>, printer: &Printer) -> Outcome {
        let mut known: BTreeMap<_, _> = known.into_iter().map(|lease| (lease.key(), lease)).collect();
        let mut config = watcher::Config::default().timeout(WATCH_SECONDS);
        config.field_selector = self.fields();
        let mut events = Box::pin(watcher(api, config).default_backoff());
        let mut present = Vec::new();
        let mut unanswered = false;
        loop {
            let event = match events.try_next().await {
                Ok(Some(event)) => event,
                Ok(None) => return Ok(()),
                Err(error) => {
                    self.report_error(&error, namespace, &mut unanswered)?;
                    continue;
                }
            };
            // Every event except `Init` comes from an answer of the API server.
            unanswered &= matches!(event, Event::Init);
            let mut changed = Vec::new();
            match event {
                Event::Init => present.clear(),
                Event::InitApply(lease) => {
                    let lease = LeaseSummary::of(&lease);
                    present.push(lease.key());
                    changed.push(lease);
                }
                Event::InitDone => {
                    // Leases that were deleted while there was no watch.
                    changed.extend(
                        known.values().filter(|lease| !present.contains(&lease.key())).map(LeaseSummary::deleted),
                    );
                }
                Event::Apply(lease) => changed.push(LeaseSummary::of(&lease)),
                Event::Delete(lease) => changed.push(LeaseSummary::of(&lease).deleted()),
            }
            for lease in changed {
                if known.get(&lease.key()) == Some(&lease) {
                    continue;
                }
                printer.one(&lease, &mut io::stdout().lock())?;
                if lease.is_deleted {
                    known.remove(&lease.key())
                } else {
                    known.insert(lease.key(), lease)
                };
            }
        }
    }

    /// Returns an error if the API server refuses the watch. Otherwise the watch is retried; the first failure in a row is
    /// reported.
    fn report_error(&self, error: &watcher::Error, namespace: &str, unanswered: &mut bool) -> Outcome {
        let refusal = match error {
            watcher::Error::InitialListFailed(kube::Error::Api(status))
            | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => Some(status),
            _ => None,
        };
        if let Some(status) = refusal.filter(|status| matches!(status.code, 401 | 403 | 404)) {
            let error = CallError::from(kube::Error::Api(status.clone()));
            return Err(self.explain("watch", &error, namespace).into());
        }
        if !std::mem::replace(unanswered, true) {
            eprintln!("the API server does not answer: {}; retrying", kube_api::causes(error));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
