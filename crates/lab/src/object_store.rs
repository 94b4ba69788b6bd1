//! A real S3 server.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{Error, Process, Result, free_address, process::start_http, tools, watchdog::TempFolder};

/// Limit for a start, also on a busy machine.
const START_WITHIN: Duration = Duration::from_secs(30);
const REGION: &str = "eu-central-1";
const ACCESS_KEY: &str = "test";
const SECRET_KEY: &str = "secret";
const BUCKET: &str = "bucket";

/// A versitygw on a folder of its own and a loopback port, with one bucket. It stops when it is dropped.
#[derive(Debug)]
pub struct ObjectStore {
    // Declared before the folder: the server must have stopped before its folder is removed.
    process: Process,
    address: SocketAddr,
    folder: TempFolder,
}

impl ObjectStore {
    /// Starts a server.
    ///
    /// # Errors
    /// [`Error::MissingTool`] if it has not been built; [`Error::Exited`] or [`Error::NotReady`] with its log.
    pub fn start() -> Result<Self> {
        let program = tools::object_store()?;
        start_http(|| Self::prepare(&program), |server| (&server.process, server.address), "/health", START_WITHIN)
    }

    fn prepare(program: &Path) -> Result<Self> {
        let folder = TempFolder::new("object-store")?;
        let address = free_address()?;
        let [objects, metadata] = ["objects", "metadata"].map(|name| folder.path().join(name));
        for folder in [&objects.join(BUCKET), &metadata] {
            fs::create_dir_all(folder).map_err(Error::io("make the folders of the object store"))?;
        }
        let process = Process::new(format!("versitygw {address}"), program, folder.path().join("log"))
            .env("ROOT_ACCESS_KEY", ACCESS_KEY)
            .env("ROOT_SECRET_KEY", SECRET_KEY)
            .args(["--region", REGION, "--health", "/health", "--port", &address.to_string()])
            // Some temporary folders have no extended attributes.
            .args(["posix", "--sidecar"])
            .args([&metadata, &objects]);
        Ok(Self { process, address, folder })
    }

    /// The URL of an object.
    pub fn url(&self, key: &str) -> String {
        format!("http://{}/{BUCKET}/{key}", self.address)
    }

    /// The variables with which clients sign their requests.
    pub fn env(&self) -> [(&'static str, &'static str); 3] {
        [("AWS_REGION", REGION), ("AWS_ACCESS_KEY_ID", ACCESS_KEY), ("AWS_SECRET_ACCESS_KEY", SECRET_KEY)]
    }

    /// The content of an object, from the folder of the server.
    ///
    /// # Errors
    /// [`Error::Io`] if there is no such object.
    pub fn content(&self, key: &str) -> Result<String> {
        let file = self.folder.path().join("objects").join(BUCKET).join(key);
        fs::read_to_string(&file).map_err(Error::io(format!("read {}", file.display())))
    }

    /// A folder for files of a test, which is removed with the server.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be made.
    pub fn scratch(&self) -> Result<PathBuf> {
        let folder = self.folder.path().join("scratch");
        fs::create_dir_all(&folder).map_err(Error::io(format!("make {}", folder.display())))?;
        Ok(folder)
    }
}
