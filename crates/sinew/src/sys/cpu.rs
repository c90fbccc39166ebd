//! Which CPUs there are to run on.

use std::io;

/// The CPUs this process may use, by affinity mask.
pub(crate) fn allowed() -> io::Result<Vec<usize>> {
    // SAFETY: an all-zero cpu_set_t is a valid (empty) set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer and the size describe `set`.
    let failed = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) } != 0;
    if failed {
        return Err(io::Error::last_os_error());
    }
    Ok((0..libc::CPU_SETSIZE as usize)
        // SAFETY: the index is below CPU_SETSIZE.
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
        .collect())
}

/// Binds the calling thread to one CPU.
pub(crate) fn pin_to(cpu: usize) -> io::Result<()> {
    // SAFETY: an all-zero cpu_set_t is a valid (empty) set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `cpu` came from `allowed`, so it is below CPU_SETSIZE.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the pointer and the size describe `set`; 0 is this thread.
    let failed = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) } != 0;
    if failed {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
