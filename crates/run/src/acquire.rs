//! Takes the lock, with the options of the command line.

use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use nix::unistd::{Gid, getegid, getgroups};
use redislease_locker::{AcquireError, Guard, Locker, LockerBuilder, NotReady, Request, Retry, Tls};

use crate::clock::{BootTime, KILL_MARGIN};
use crate::options::RunOptions;
use crate::say::say;
use crate::{duration, exit};

/// How long `--wait 0` waits for connections. The servers that answer later do not vote.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);

/// After how long a program that still waits says why. The next times come ever later.
const SAYS_AFTER: Duration = Duration::from_secs(3);
const SAYS_EVERY: Duration = Duration::from_mins(5);

/// The longest file of servers or certificates, in bytes.
const LONGEST_FILE: u64 = 1 << 20;
/// The longest command of `--on-acquire`, in bytes of its JSON text: it is a part of one message to the guard.
const LONGEST_HOOK: usize = 8192;

/// Why there is no lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAcquired {
    /// The exit code.
    pub code: u8,
    pub why: String,
    /// Whether it is more than a lock that another program holds.
    pub is_error: bool,
    /// Whether another attempt would end in the same way.
    pub is_final: bool,
    /// Whether nobody may hold the lock: the attempts of several programs collided, or servers were slow.
    pub is_undecided: bool,
}

/// A locker that connects in the background.
pub fn locker(options: &RunOptions) -> Result<Locker, String> {
    let servers = servers(options)?;
    warn_of_readers(options, &servers);
    builder(options, servers)?.build().map_err(|error| of_servers(options, &error.to_string()))
}

/// Reads the files of the options again, and uses what they have now for new connections.
///
/// # Errors
/// One of them cannot be used, and nothing changes. A file that is being replaced may be invalid for a moment.
pub fn read_again(locker: &Locker, options: &RunOptions) -> Result<(), String> {
    let builder = builder(options, servers(options)?)?;
    locker.set_access(&builder).map_err(|error| of_servers(options, &error.to_string()))
}

/// Names the option of the servers, unless the text names another one.
fn of_servers(options: &RunOptions, text: &str) -> String {
    let text = of_option(text);
    let of_servers = if options.servers.redis_file.is_some() { "--redis-file: " } else { "--redis: " };
    if text.starts_with("--") { text } else { format!("{of_servers}{text}") }
}

fn builder(options: &RunOptions, servers: Vec<String>) -> Result<LockerBuilder, String> {
    let mut builder = Locker::builder(servers)
        .namespace(&options.lease.namespace)
        .prefix(&options.prefix)
        .longest_lease(options.longest_lease)
        .command_timeout(options.command_timeout);
    if options.single_node {
        builder = builder.single_node();
    }
    if options.beside_operator {
        builder = builder.beside_operator();
    }
    with_tls(builder, options)
}

/// The servers of `--redis`, or the lines of `--redis-file`.
fn servers(options: &RunOptions) -> Result<Vec<String>, String> {
    if !options.servers.redis.is_empty() && options.servers.redis_file.is_some() {
        return Err(
            "both --redis and --redis-file are set, both on the command line or both by REDISLEASE_RUN_REDIS and \
                    REDISLEASE_RUN_REDIS_FILE: use one of them"
                .to_owned(),
        );
    }
    if !options.misplaced.is_empty() {
        return Err("--redis: a part of the list of servers, or the command, stands apart: write the list without spaces or in quotes, and -- \
                    before the command"
            .to_owned());
    }
    let Some(file) = &options.servers.redis_file else {
        return Ok(options.servers.redis.iter().flat_map(|list| split(list)).map(str::to_owned).collect());
    };
    let text = String::from_utf8(read("--redis-file", file)?).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.split(|byte| *byte == b'\n').count();
        format!("--redis-file {}: line {line} is not UTF-8: save the file in UTF-8", file.display())
    })?;
    // Some editors put a byte order mark before the first line.
    let lines = text
        .trim_start_matches('\u{feff}')
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(lines.map(str::to_owned).collect())
}

fn warn_of_readers(options: &RunOptions, lines: &[String]) {
    let Some(file) = &options.servers.redis_file else { return };
    if fs::metadata(file).is_ok_and(|file| others_read(&file))
        && !options.quiet
        && lines.iter().any(|line| line.contains('@'))
    {
        say(&format!(
            "other users can read the passwords in --redis-file {0}: run `chmod 600 {0}`, or set `defaultMode: 0440` of its Secret volume",
            file.display()
        ));
    }
}

/// Whether all users can read a file, or a group that this process does not belong to. In a pod with `fsGroup`, a group of this
/// process can read the files of a Secret volume: that is how it reads them.
fn others_read(file: &fs::Metadata) -> bool {
    let is_own = |group: Gid| group == getegid() || getgroups().is_ok_and(|own| own.contains(&group));
    file.mode() & 0o004 != 0 || (file.mode() & 0o040 != 0 && !is_own(Gid::from_raw(file.gid())))
}

/// The parts of a list. A comma separates what begins as a server; another comma is a part of a password.
fn split(list: &str) -> Vec<&str> {
    let is_server = |text: &str| {
        let url = text.split_once('=').filter(|(name, _)| !name.contains(['/', ',', '@'])).map_or(text, |(_, url)| url);
        url.starts_with("redis://") || url.starts_with("rediss://")
    };
    let (mut parts, mut begin) = (Vec::new(), 0);
    for (comma, _) in list.match_indices(',').filter(|(comma, _)| is_server(list[comma + 1..].trim_start())) {
        parts.push(list[begin..comma].trim());
        begin = comma + 1;
    }
    parts.push(list[begin..].trim());
    parts
}

fn with_tls(builder: LockerBuilder, options: &RunOptions) -> Result<LockerBuilder, String> {
    let Some(ca) = &options.tls_ca else { return Ok(builder) };
    let mut tls = Tls::new(read("--tls-ca", ca)?);
    if let (Some(certificate), Some(key)) = (&options.tls_certificate, &options.tls_key) {
        tls = tls.client(read("--tls-certificate", certificate)?, read("--tls-key", key)?);
    }
    if let Some(name) = &options.tls_server_name {
        tls = tls.server_name(name);
    }
    Ok(builder.tls(tls))
}

fn read(option: &str, file: &Path) -> Result<Vec<u8>, String> {
    let problem = |error: std::io::Error| format!("{option} {}: {error}", file.display());
    if file.as_os_str().to_string_lossy().contains("://") {
        // It can contain a password.
        return Err(format!("{option}: this is a URL and must be a file: use --redis for URLs"));
    }
    let mut bytes = Vec::new();
    fs::File::open(file).and_then(|open| open.take(LONGEST_FILE + 1).read_to_end(&mut bytes)).map_err(problem)?;
    if bytes.len() as u64 > LONGEST_FILE {
        return Err(format!(
            "{option} {}: it is longer than {LONGEST_FILE} bytes: choose another file",
            file.display()
        ));
    }
    Ok(bytes)
}

/// Names the options instead of the methods of the library.
pub fn for_options(text: &str) -> String {
    [
        // It stops the command by itself.
        (". Stop the work, and acquire the lock again", ""),
        (
            ": poll the future of `acquire` until it is ready, and do not block its thread",
            ": this process was stopped meanwhile",
        ),
        ("call single_node()", "use --single-node"),
        ("call tls()", "use --tls-ca"),
        ("tls() applies", "--tls-ca applies"),
        ("call beside_operator()", "use --beside-operator"),
        ("use one user for all servers, with credentials()", "use one user and password for all servers"),
        ("that was passed to tls()", "in the file of --tls-ca"),
        ("set the server name in tls()", "set --tls-server-name"),
        ("pass one and its key to tls()", "use --tls-certificate and --tls-key"),
        ("pass another one to tls()", "replace the files of --tls-certificate and --tls-key, which are read again"),
        // After the sentences that contain it.
        ("tls(): ", "--tls-ca, --tls-certificate, --tls-key: "),
        ("only with another Locker", "only when this program starts again"),
        ("in credentials() or in the URLs", "in the URLs"),
        ("from the URLs or credentials()", "from the URLs"),
        ("ttl is", "--ttl is"),
        ("renew_every", "--renew-every"),
        ("the stop_budget", "the grace period with 1 s for SIGKILL, together"),
        ("stop_budget", "--grace"),
        ("longest_lease is", "--longest-lease is"),
        ("the same longest_lease", "the same --longest-lease"),
        ("for one longest_lease", "for one --longest-lease"),
        ("a ttl of at least", "a --ttl of at least"),
        ("that this library did not write", "that RedisLease did not write"),
        ("command_timeout is", "--command-timeout is"),
        ("hold_at_least is", "--hold-at-least is"),
        ("the longest_lease of the Locker", "the value of --longest-lease"),
        ("a longer longest_lease", "a longer --longest-lease"),
    ]
    .iter()
    .fold(text.to_owned(), |text, (library, option)| text.replace(library, option))
}

/// As [`for_options`], and names the option whose value is wrong. Errors of an attempt name keys and namespaces too, and no option.
fn of_option(text: &str) -> String {
    let text = for_options(text);
    for (first, option) in [
        ("namespace ", "--lease: namespace "),
        ("key ", "--lease: the name "),
        ("prefix ", "--prefix "),
        ("owner ", "--owner "),
    ] {
        if let Some(rest) = text.strip_prefix(first) {
            return format!("{option}{rest}");
        }
    }
    text
}

/// Checks the options of the lock.
///
/// # Errors
/// One of them does not fit. The text says which would.
pub fn check(locker: &Locker, options: &RunOptions, owner: &str) -> Result<(), String> {
    let hook = options.on_acquire.as_ref().and_then(|hook| serde_json::to_vec(hook).ok());
    if let Some(bytes) = hook.map(|json| json.len()).filter(|bytes| *bytes > LONGEST_HOOK) {
        return Err(format!(
            "--on-acquire: it has {bytes} bytes as JSON: use at most {LONGEST_HOOK}, for example the name of a script"
        ));
    }
    request(locker, options, owner).check().map_err(|error| of_option(&problem(&error)))
}

/// An error without the key that is the name of the lease.
fn problem(error: &AcquireError) -> String {
    if let AcquireError::Invalid { problem, .. } = error { problem.clone() } else { error.to_string() }
}

/// Waits for the lock, and says now and then why it does.
pub async fn acquire(locker: Locker, options: &RunOptions, owner: &str) -> Result<Guard, NotAcquired> {
    let began = BootTime::now();
    let passed = || BootTime::now().since(began);
    let mut pause = SAYS_AFTER;
    loop {
        // A program that has just started is not connected yet; an attempt would find no majority.
        let connect = if options.wait.is_zero() { CONNECT_WITHIN } else { options.wait }.saturating_sub(passed());
        let left = options.wait.saturating_sub(passed());
        let not = match attempt(&locker, options, owner, (began, connect.min(pause), left.min(pause))).await {
            Ok(guard) => return Ok(guard),
            Err(not) => not,
        };
        if left > pause && !not.is_final {
            if not.is_error || !options.quiet {
                say(&format!("waiting: {}", not.why));
            }
            pause = (pause * 2).min(SAYS_EVERY);
        } else if options.wait.is_zero() && not.is_undecided && passed() < CONNECT_WITHIN {
            // Two programs that begin at once can each take a server from the other: one of them must get the lock.
            tokio::time::sleep(random_pause()).await;
        } else {
            return Err(not);
        }
    }
}

/// 10 to 60 ms, so that programs that collided do not collide again.
fn random_pause() -> Duration {
    Duration::from_millis(10 + RandomState::new().hash_one(()) % 50)
}

/// Connects within the first time, and waits for the lock for what is left of the second one. `began` is when the program began to
/// wait.
async fn attempt(
    locker: &Locker,
    options: &RunOptions,
    owner: &str,
    (began, connect, wait): (BootTime, Duration, Duration),
) -> Result<Guard, NotAcquired> {
    let now = BootTime::now();
    locker.ready(connect).await.map_err(|mut error| {
        let tenths = BootTime::now().since(began).as_millis() / 100;
        if let NotReady::NoMajority { waited, .. } = &mut error {
            *waited = Duration::from_millis(u64::try_from(tenths).unwrap_or(u64::MAX).saturating_mul(100));
        }
        let why = for_options(&error.to_string());
        NotAcquired { code: exit::NO_MAJORITY, why, is_error: true, is_final: false, is_undecided: false }
    })?;
    let wait = wait.saturating_sub(BootTime::now().since(now));
    let guard = request(locker, options, owner).wait(wait).acquire().await;
    guard.map_err(|error| not_acquired(&error, options))
}

fn request(locker: &Locker, options: &RunOptions, owner: &str) -> Request {
    let first = options.retry.min(Duration::from_millis(10));
    let request = locker
        .lock(&options.lease.name)
        .ttl(options.ttl)
        .stop_budget(options.grace.saturating_add(KILL_MARGIN))
        .owner(owner)
        .hold_at_least(options.hold_at_least)
        .retry(Retry::Exponential { first, max: options.retry });
    match options.renew_every {
        Some(interval) => request.renew_every(interval),
        None => request,
    }
}

fn not_acquired(error: &AcquireError, options: &RunOptions) -> NotAcquired {
    let last = match error {
        AcquireError::TimedOut { last, .. } => &**last,
        other => other,
    };
    let lease = &options.lease;
    if let AcquireError::Held { by, free_in, .. } = last {
        // The name comes from another program.
        let (by, free_in) = (by.escape_debug(), duration::show(*free_in));
        let why = format!("lease {lease} is held by {by}; it expires in {free_in} unless it is renewed");
        let code = options.conflict_exit_code;
        return NotAcquired { code, why, is_error: false, is_final: false, is_undecided: false };
    }
    let code = match last {
        AcquireError::NoMajority { .. } => exit::NO_MAJORITY,
        AcquireError::TooSlow { .. }
        | AcquireError::NotPolled { .. }
        | AcquireError::ClockStoodStill { .. }
        | AcquireError::AlreadyHeldHere { .. } => options.conflict_exit_code,
        AcquireError::Invalid { .. } => exit::USAGE,
        _ => exit::FAILED,
    };
    let why = format!("lease {lease}: {}", for_options(&problem(last)));
    NotAcquired {
        code,
        why,
        is_error: true,
        is_final: matches!(last, AcquireError::Invalid { .. } | AcquireError::Foreign { .. }),
        is_undecided: matches!(last, AcquireError::TooSlow { .. } | AcquireError::NotPolled { .. }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: RunOptions,
    }

    /// A complete command line with these options.
    fn options(line: &str) -> RunOptions {
        let redis = if line.contains("single-node") { "redis://a:1" } else { "redis://a:1,redis://b:1,redis://c:1" };
        let words = format!("redislease-run --redis {redis} --lease shop/report {line} -- true");
        let parsed = <Line as clap::Parser>::try_parse_from(words.split_whitespace());
        parsed.unwrap_or_else(|error| panic!("{line}: {error}")).options
    }

    /// Each of these characters has six bytes in the message to the guard, which would be too long after the lock was acquired.
    #[test]
    fn a_hook_that_fits_no_message_is_refused() {
        let mut options = options("--single-node");
        let locker = locker(&options).unwrap();
        for (length, fits) in [(1365, true), (1366, false), (8000, false)] {
            options.on_acquire = Some("\u{1}".repeat(length));
            let checked = check(&locker, &options, "me");
            let refused = |text: &String| text.contains("bytes as JSON: use at most 8192");
            assert_eq!((checked.is_ok(), checked.as_ref().is_err_and(refused)), (fits, !fits), "{length}: {checked:?}");
        }
    }

    /// The sentences are those that the tests of the library expect of it.
    #[test]
    fn the_sentences_of_the_library_name_the_options() {
        for (library, option) in [
            (
                "call beside_operator() with the same node names, prefix and longest lease",
                "use --beside-operator with the same node names, prefix and longest lease",
            ),
            (
                "that was passed to tls(): add the authority that signed it",
                "in the file of --tls-ca: add the authority that signed it",
            ),
            (
                "set the server name in tls() to a name that it contains",
                "set --tls-server-name to a name that it contains",
            ),
            ("pass one and its key to tls()", "use --tls-certificate and --tls-key"),
            (
                "certificate has expired: pass another one to tls()",
                "certificate has expired: replace the files of --tls-certificate and --tls-key, which are read again",
            ),
            ("write `redis://` and do not call tls()", "write `redis://` and do not use --tls-ca"),
            (
                "hold_at_least is 1s501ms: use up to 1s500ms, the longest_lease of the Locker",
                "--hold-at-least is 1s501ms: use up to 1s500ms, the value of --longest-lease",
            ),
        ] {
            assert_eq!(for_options(library), option);
        }
    }

    #[test]
    fn a_comma_in_a_password_separates_no_servers() {
        assert_eq!(split("redis://h:1, a=redis://h:2,rediss://h:3"), ["redis://h:1", "a=redis://h:2", "rediss://h:3"]);
        assert_eq!(split("redis://:p,q=x,y@h:1,b=redis://:p,q@h:2"), ["redis://:p,q=x,y@h:1", "b=redis://:p,q@h:2"]);
        assert_eq!(split("h:1,h:2"), ["h:1,h:2"]);
    }
}
