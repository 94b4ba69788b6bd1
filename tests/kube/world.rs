//! What the stories share: one installation for those that disturb nobody else, and a look at the keys on the nodes.

use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use redislease_lab::{Installation, InstallationOptions, Operator, Result};

/// A longest lease of 10 s is what the first election of a fresh quorum waits for.
pub const FIRST_ELECTION: Duration = Duration::from_secs(30);
/// Long enough for a busy machine, short against a lease.
pub const SOON: Duration = Duration::from_secs(5);
/// After it, no key of a lease of 10 s that nobody extends is left.
pub const AFTER_ONE_LEASE: Duration = Duration::from_secs(15);

/// What is renewed from memory, or not at all, shows within so long.
const LONGER_THAN_A_LEASE: Duration = Duration::from_secs(12);
/// Between two looks at what must stay as it is: seldom enough to leave the machine to those who are looked at.
const LOOK: Duration = Duration::from_millis(50);

/// One key on one node: its value and how long it still lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// `<stage>:<attempt>:<number>:<metadata>`.
    pub value: String,
    pub left: Duration,
}

impl Key {
    /// The letter of its stage.
    pub fn stage(&self) -> &str {
        self.value.split(':').next().unwrap_or_default()
    }

    /// The attempt it belongs to.
    pub fn attempt(&self) -> &str {
        self.value.split(':').nth(1).unwrap_or_default()
    }

    /// The grant number or token.
    pub fn number(&self) -> u64 {
        self.value.split(':').nth(2).and_then(|number| number.parse().ok()).unwrap_or_default()
    }
}

/// Everything that a story needs, stopped with it.
pub struct World {
    /// The operator that starts with it. Declared first, so that it stops before what it speaks to.
    pub operator: Operator,
    pub installation: Installation,
}

impl World {
    /// A world of one's own, for stories that stop what others need.
    pub fn new() -> Result<Self> {
        Self::with(&options())
    }

    pub fn with(options: &InstallationOptions) -> Result<Self> {
        let installation = Installation::start(options)?;
        let operator = installation.start_operator("operator-0", &[])?;
        Ok(Self { operator, installation })
    }
}

pub fn options() -> InstallationOptions {
    InstallationOptions::new(env!("CARGO_BIN_EXE_redislease"))
}

/// One world for all stories that keep to their own namespace. Its processes end with this one.
pub fn shared() -> &'static World {
    static SHARED: LazyLock<World> = LazyLock::new(|| World::new().expect("the shared world starts"));
    &SHARED
}

/// The key of a lease on each node that can be asked, in the order of the nodes.
pub fn keys(installation: &Installation, namespace: &str, key: &str) -> Vec<Option<Key>> {
    let name = format!("redislease:lock:{namespace}/{key}");
    let look = |server: &redislease_lab::RedisServer| {
        let value = server.command(&["GET", &name]).ok()?.text()?;
        let left = server.command(&["PTTL", &name]).ok()?.integer()?;
        Some(Key { value, left: Duration::from_millis(u64::try_from(left).ok()?) })
    };
    installation.redis().iter().map(|server| look(server)).collect()
}

/// How many nodes hold the key for this attempt in this stage.
pub fn count(keys: &[Option<Key>], attempt: &str, stage: &str) -> usize {
    keys.iter().flatten().filter(|key| key.attempt() == attempt && key.stage() == stage).count()
}

/// Looks again and again for as long as `span`. What is looked for is asserted there, with the time since the first look.
pub fn throughout(span: Duration, mut look: impl FnMut(Duration) -> Result<()>) -> Result<()> {
    let began = Instant::now();
    while began.elapsed() < span {
        look(began.elapsed())?;
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Watches the nodes for longer than a lease: the term must be on a majority at every look, and sealed on none.
pub fn the_term_lives_on(installation: &Installation, namespace: &str, attempt: &str) -> Result<()> {
    throughout(LONGER_THAN_A_LEASE, |after| {
        let keys = keys(installation, namespace, "billing");
        assert!(count(&keys, attempt, "t") >= 2, "after {after:?}: {keys:?}");
        assert_eq!(keys.iter().flatten().filter(|key| key.stage() == "s").count(), 0, "after {after:?}: {keys:?}");
        Ok(())
    })
}
