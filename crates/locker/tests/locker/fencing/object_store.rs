//! An object in S3: the script in examples/ writes on the condition that the object is as it was read.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use redislease_lab::{Error, ObjectStore, read, repository};

use super::late_write::{Store, late_write_is_rejected};
use crate::support::{PATIENCE, ms, on, once, three};

const SCRIPT: &str = "examples/fencing/object-store.sh";

/// The slow holder: it runs the script with a `curl` before whose first PUT the next holder writes, which has the usual `curl`.
const SLOW: &str = r#"
curl() {
    case " $* " in *" --request PUT "*)
        if mkdir "$NEXT_HAS_WRITTEN" 2>/dev/null; then sh "$SCRIPT" "$URL" "$NEXT" "$CONTENT" </dev/null || return; fi ;;
    esac
    command curl "$@"
}
. "$SCRIPT"
"#;

/// The requests reach the server one after another. S3 answers each of them in one step, and this server does not: with reads beside
/// the writes, a write was lost in 3 of 60 runs on a busy machine, also when the writes came one after another.
const ATOMIC: &str = r#"
curl() { flock "$ONE_BY_ONE" curl "$@"; }
. "$SCRIPT"
"#;

pub struct Objects(ObjectStore);

impl Objects {
    /// `None`, with a message, if the server has not been built.
    pub fn start() -> Option<Self> {
        match ObjectStore::start() {
            Err(error @ Error::MissingTool { .. }) => {
                redislease_lab::skipped(&error.to_string());
                None
            }
            other => Some(Self(other.unwrap())),
        }
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        let file = self.0.scratch().unwrap().join(name);
        fs::write(&file, content).unwrap();
        file
    }

    /// Starts a script that writes an object.
    fn script(&self, script: &Path, key: &str, token: u64, value: &str) -> Command {
        let file = self.file(&format!("value-{token}"), value);
        let mut command = Command::new("sh");
        command.arg(script).arg(self.0.url(key)).arg(token.to_string()).arg(file).envs(self.0.env());
        command.stderr(Stdio::piped());
        command
    }

    /// The slow holder writes in time, and again too late: the next holder writes between the read and the write of the slow one, and
    /// it writes the content that was there. Returns whether the late write succeeded, and the object.
    fn overtaken(&self, name: &str, script: &str, slow: u64, next: u64) -> (bool, String) {
        let script = self.file(&format!("{name}.sh"), script);
        assert!(written(self.script(&script, name, slow, "same").spawn().unwrap()));
        let (mark, slow_script) = (self.0.scratch().unwrap().join(name), self.file("slow.sh", SLOW));
        let mut late = self.script(&slow_script, name, slow, "too late");
        late.env("SCRIPT", &script).env("URL", self.0.url(name)).env("NEXT", next.to_string());
        late.env("CONTENT", self.file("same", "same")).env("NEXT_HAS_WRITTEN", &mark);
        let written = written(late.spawn().unwrap());
        assert!(mark.exists(), "the next holder has written");
        (written, self.0.content(name).unwrap())
    }
}

/// Whether the script has written.
fn written(script: Child) -> bool {
    let done = script.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(matches!(done.status.code(), Some(0 | 3)), "{}: {said}", done.status);
    done.status.success()
}

impl Store for Objects {
    fn write(&self, value: &str, token: u64) -> bool {
        written(self.script(&repository().join(SCRIPT), "account", token, value).spawn().unwrap())
    }

    fn value(&self) -> String {
        self.0.content("account").unwrap().split_once('\n').unwrap().1.to_owned()
    }
}

#[tokio::test]
async fn an_object_store_rejects_a_late_write() {
    let Some(objects) = Objects::start() else { return };
    let (_servers, locker) = three().await;
    late_write_is_rejected(&locker, &objects).await;
}

/// The two short forms lose the write of the next holder: without the condition, and with the token in the metadata, on which the
/// ETag does not depend.
#[tokio::test]
async fn an_object_store_rejects_a_write_that_was_overtaken() {
    let Some(objects) = Objects::start() else { return };
    let (servers, locker) = three().await;
    let other = on(&servers).await;
    let first = once(&locker, "k").max_hold(ms(100)).acquire().await.unwrap();
    let slow = first.token();
    first.lost().await;
    let second = other.lock("k").wait(PATIENCE).acquire().await.unwrap();
    let next = second.token();
    let script = read(SCRIPT);
    assert_eq!(objects.overtaken("recipe", &script, slow, next), (false, format!("{next}\nsame")));

    let without = |script: &str, part: &str, instead: &str| {
        assert_eq!(script.matches(part).count(), 1, "{part}");
        script.replace(part, instead)
    };
    let unconditional = without(&script, r#" --header "$condition""#, "");
    assert_eq!(objects.overtaken("unconditional", &unconditional, slow, next), (true, format!("{slow}\ntoo late")));
    let metadata = without(&script, r#"echo "$token" && "#, "");
    let metadata = without(&metadata, r#"$(head -n 1 "$work/answer")"#, "0");
    let metadata = without(&metadata, "--request PUT", r#"--request PUT --header "x-amz-meta-token: $token""#);
    assert_eq!(objects.overtaken("metadata", &metadata, slow, next), (true, "too late".to_owned()));
    second.release().await;
}

#[test]
fn an_object_store_keeps_the_newest_of_concurrent_writes() {
    let Some(objects) = Objects::start() else { return };
    let (one_by_one, script) = (objects.0.scratch().unwrap().join("one-by-one"), objects.file("atomic.sh", ATOMIC));
    let write = |token| {
        let mut write = objects.script(&script, "account", token, &format!("of {token}"));
        write.env("SCRIPT", repository().join(SCRIPT)).env("ONE_BY_ONE", &one_by_one).spawn().unwrap()
    };
    let writes: Vec<Child> = (1..=8).map(write).collect();
    let done: Vec<bool> = writes.into_iter().map(written).collect();
    assert!(done[7], "the holder with the greatest token writes: {done:?}");
    assert_eq!(objects.value(), "of 8");
}

#[test]
fn an_object_that_cannot_be_written_is_an_error_and_no_lost_lock() {
    let Some(objects) = Objects::start() else { return };
    let (script, value) = (repository().join(SCRIPT), objects.file("value", "v"));
    let run = |url: &str, token: &str, secret: &str| {
        let mut command = Command::new("sh");
        command.arg(&script).args([url, token]).arg(&value).envs(objects.0.env()).env("AWS_SECRET_ACCESS_KEY", secret);
        let done = command.output().unwrap();
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let (_, secret) = objects.0.env()[2];
    let url = objects.0.url("account");
    let no_bucket = url.replace("/bucket/", "/other/");
    let nobody = "http://127.0.0.1:1/bucket/account";
    for (url, token, secret, said) in [
        (url.as_str(), "1", "wrong", "SignatureDoesNotMatch"),
        (&url, "one", secret, "the token one is not a number"),
        (&no_bucket, "1", secret, "NoSuchBucket"),
        (nobody, "1", secret, "no answer"),
    ] {
        let (code, stderr) = run(url, token, secret);
        assert!(code == Some(1) && stderr.contains(said), "{said}: {code:?} {stderr}");
    }
}
