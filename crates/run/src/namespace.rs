//! The PID namespace of the command.

use std::io;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getgid, getuid};
use rustix::thread::{
    CapabilitySet, capabilities, clear_ambient_capability_set, configure_capability_in_ambient_set, set_capabilities,
};

use crate::isolation::Isolation;

/// Lets the next child of this process be the first process of a new PID namespace. This process must have one thread.
///
/// # Errors
/// The isolation is not allowed here. The process must end then, because it may be in a half-made user namespace.
pub fn enter(isolation: Isolation) -> io::Result<()> {
    match isolation {
        Isolation::None => {}
        Isolation::Pid => unshare(CloneFlags::CLONE_NEWPID)?,
        Isolation::PidInUser => {
            let (user, group) = (getuid(), getgid());
            unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWPID)?;
            // The user and the group of this process keep their numbers; all others are unknown in the namespace.
            std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
            std::fs::write("/proc/self/setgroups", "deny")?;
            std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
            keep_mount_capability()?;
        }
    }
    Ok(())
}

/// Lets the next program have CAP_SYS_ADMIN of the user namespace, with which init mounts `/proc`.
fn keep_mount_capability() -> io::Result<()> {
    let mut sets = capabilities(None)?;
    sets.inheritable |= CapabilitySet::SYS_ADMIN;
    set_capabilities(None, sets)?;
    configure_capability_in_ambient_set(CapabilitySet::SYS_ADMIN, true)?;
    Ok(())
}

/// Gives up what [`enter`] has kept for init, so that the command does not inherit it.
pub fn drop_mount_capability() -> io::Result<()> {
    clear_ambient_capability_set()?;
    let mut sets = capabilities(None)?;
    sets.inheritable -= CapabilitySet::SYS_ADMIN;
    set_capabilities(None, sets)?;
    Ok(())
}

/// Mounts a `/proc` that shows the processes of the new PID namespace, in a mount namespace of its own. Other mounts of the command
/// stay visible outside as before, except in a user namespace.
pub fn mount_proc() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    // The new mount must not appear outside.
    mount(None::<&str>, "/proc", None::<&str>, MsFlags::MS_PRIVATE, None::<&str>)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>)?;
    Ok(())
}
