//! `redislease status`: who holds which lease. Needs no more than to list and watch RedisLeases.

mod essentials;
mod print;

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, ErrorKind};
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use futures::TryStreamExt as _;
use kube::api::ListParams;
use kube::core::DeserializeGuard;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};

use crate::api::RedisLease;
use crate::cli::values;
use crate::operator::kube_api::{self, CallError};
use essentials::Essentials;
use print::{Printer, Table};

/// A watch that died silently is noticed after so many seconds.
const WATCH_SECONDS: u32 = 45;

/// How many leases are asked for at a time.
const PAGE: u32 = 500;

/// Shows who holds which lease.
#[derive(Debug, Args)]
pub(super) struct Status {
    /// The name of one RedisLease; all of the namespace without it.
    name: Option<String>,

    /// The namespace; without it, that of the current context.
    #[arg(short, long, env = "REDISLEASE_STATUS_NAMESPACE", value_name = "NAMESPACE", value_parser = values::namespace)]
    namespace: Option<String>,

    /// The leases of all namespaces, whatever namespace is named.
    #[arg(short = 'A', long, env = "REDISLEASE_STATUS_ALL_NAMESPACES", value_parser = BoolishValueParser::new(), conflicts_with = "name")]
    all_namespaces: bool,

    /// How leases are shown.
    #[arg(short, long, env = "REDISLEASE_STATUS_OUTPUT", value_enum, default_value_t, value_name = "FORMAT")]
    output: Output,

    /// Goes on, and shows a lease again whenever its status has changed, until interrupted.
    #[arg(short, long, env = "REDISLEASE_STATUS_WATCH", value_parser = BoolishValueParser::new())]
    watch: bool,
}

/// How leases are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    /// One line a lease.
    #[default]
    Table,
    /// A list of objects; with --watch one object a line.
    Json,
}

type Guarded = DeserializeGuard<RedisLease>;
type Outcome<T = ()> = Result<T, Box<dyn Error>>;

impl Status {
    pub fn run(self) -> Outcome {
        // Two crates bring a provider each; whoever asks first would otherwise decide.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        match runtime.block_on(self.show()) {
            // Whoever read has read enough.
            Err(error) if error.downcast_ref().is_some_and(|io: &io::Error| io.kind() == ErrorKind::BrokenPipe) => {
                Ok(())
            }
            done => done,
        }
    }

    async fn show(&self) -> Outcome {
        let (client, address) = kube_api::client().await?;
        let namespace = self.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        let leases = self.list(&self.api(client.clone(), &namespace), &namespace).await;
        let leases = leases.map_err(|error| format!("{error} (the API server at {address})"))?;
        if leases.is_empty() && !self.watch {
            return self.nothing(&namespace);
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

    fn place(&self, namespace: &str) -> String {
        if self.all_namespaces { "in all namespaces".into() } else { format!("in namespace {namespace}") }
    }

    /// In order of namespace and name, page by page.
    async fn list(&self, api: &Api<Guarded>, namespace: &str) -> Outcome<Vec<Essentials>> {
        let mut params = ListParams { field_selector: self.fields(), ..ListParams::default() }.limit(PAGE);
        let mut leases = Vec::new();
        loop {
            let page =
                kube_api::call(api.list(&params)).await.map_err(|error| self.explain("list", &error, namespace))?;
            leases.extend(page.items.iter().map(Essentials::of));
            let more = page.metadata.continue_.filter(|token| !token.is_empty());
            let Some(token) = more else { break };
            params.continue_token = Some(token);
        }
        leases.sort_by_key(Essentials::key);
        Ok(leases)
    }

    fn explain(&self, verb: &str, error: &CallError, namespace: &str) -> String {
        let what = format!("cannot {verb} RedisLeases {}", self.place(namespace));
        match error {
            CallError::NotFound => format!(
                "{what}: the API server does not know the kind RedisLease; install it with \
                 `redislease crds | kubectl apply --server-side -f -`"
            ),
            other => format!("{what}: {other}"),
        }
    }

    fn nothing(&self, namespace: &str) -> Outcome {
        if let Some(name) = &self.name {
            return Err(format!("there is no RedisLease {name} in namespace {namespace}").into());
        }
        match self.output {
            Output::Json => Printer::List.all(&[], &mut io::stdout().lock())?,
            Output::Table => eprintln!("No RedisLeases {}.", self.place(namespace)),
        }
        Ok(())
    }

    /// Shows what has changed, until interrupted. What the list has shown already is not shown again.
    async fn follow(&self, api: Api<Guarded>, namespace: &str, known: Vec<Essentials>, printer: &Printer) -> Outcome {
        let mut known: BTreeMap<_, _> = known.into_iter().map(|lease| (lease.key(), lease)).collect();
        let mut config = watcher::Config::default().timeout(WATCH_SECONDS);
        config.field_selector = self.fields();
        let mut events = Box::pin(watcher(api, config).default_backoff());
        let mut present = Vec::new();
        let mut away = false;
        loop {
            let event = match events.try_next().await {
                Ok(Some(event)) => event,
                Ok(None) => return Ok(()),
                Err(error) => {
                    self.complain(&error, namespace, &mut away)?;
                    continue;
                }
            };
            // That a list begins says nothing about its answer.
            away &= matches!(event, Event::Init);
            let mut changed = Vec::new();
            match event {
                Event::Init => present.clear(),
                Event::InitApply(lease) => {
                    let lease = Essentials::of(&lease);
                    present.push(lease.key());
                    changed.push(lease);
                }
                Event::InitDone => {
                    // What went while nobody looked.
                    changed
                        .extend(known.values().filter(|lease| !present.contains(&lease.key())).map(Essentials::gone));
                }
                Event::Apply(lease) => changed.push(Essentials::of(&lease)),
                Event::Delete(lease) => changed.push(Essentials::of(&lease).gone()),
            }
            for lease in changed {
                if known.get(&lease.key()) == Some(&lease) {
                    continue;
                }
                printer.one(&lease, &mut io::stdout().lock())?;
                if lease.deleted {
                    known.remove(&lease.key())
                } else {
                    known.insert(lease.key(), lease)
                };
            }
        }
    }

    /// A refusal ends the watch; an API server that is away is waited for, and said to be away once.
    fn complain(&self, error: &watcher::Error, namespace: &str, away: &mut bool) -> Outcome {
        let refusal = match error {
            watcher::Error::InitialListFailed(kube::Error::Api(status))
            | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => Some(status),
            _ => None,
        };
        if let Some(status) = refusal.filter(|status| matches!(status.code, 401 | 403 | 404)) {
            let error = CallError::from(kube::Error::Api(status.clone()));
            return Err(self.explain("watch", &error, namespace).into());
        }
        if !std::mem::replace(away, true) {
            eprintln!("the API server is away: {}; waiting for it", kube_api::causes(error));
        }
        Ok(())
    }
}

/// A span as kubectl shows ages: the shorter, the finer.
fn age(span: Duration) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    let seconds = span.as_secs();
    let both = |unit: u64, name: char, rest: u64, rest_name: char| match seconds % unit / rest {
        0 => format!("{}{name}", seconds / unit),
        more => format!("{}{name}{more}{rest_name}", seconds / unit),
    };
    match seconds {
        ..120 => format!("{seconds}s"),
        120..600 => both(MINUTE, 'm', 1, 's'),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => both(HOUR, 'h', MINUTE, 'm'),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => both(DAY, 'd', HOUR, 'h'),
        _ => format!("{}d", seconds / DAY),
    }
}

#[cfg(test)]
mod tests;
