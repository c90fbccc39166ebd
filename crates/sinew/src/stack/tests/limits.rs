//! Memory given back, used up and refused: each in a process of its own.

use super::*;
use crate::sys::map::{self, Mapping, Span, page_size};

#[test]
fn after_a_peak_of_50k_stacks_memory_and_page_tables_go_back() {
    if under_sanitizer() {
        return;
    }
    let output = in_child(
        module_path!(),
        "after_a_peak_of_50k_stacks_memory_and_page_tables_go_back",
        || {
            let mut hot = hot(GuardChoice::Auto, 64 * KIB);
            let pool = hot.pool().clone();
            let held = take_one(&mut hot, 64 * KIB).unwrap();
            // Guards that take mappings would not go that far.
            let region = pool.stats().guard == GuardKind::Region;
            let count = if region { 50_000 } else { 10_000 };
            let (rss, tables) = (status_kib("VmRSS"), status_kib("VmPTE"));
            let stacks: Vec<Stack> = (0..count)
                .map(|_| take_one(&mut hot, 64 * KIB).unwrap())
                .collect();
            for stack in &stacks {
                write_to(stack.base().get() - 1);
            }
            assert!(status_kib("VmRSS") > rss + 4 * count);
            assert!(status_kib("VmPTE") > tables + count / 16);
            if region {
                assert!(map::count_mappings().unwrap() < 200);
            }
            give_all(&mut hot, stacks);
            let _ = hot.flush();
            let _ = pool.trim(Trim::All);
            let (rss_after, tables_after) = (status_kib("VmRSS"), status_kib("VmPTE"));
            eprintln!("resident {rss} -> {rss_after} KiB, tables {tables} -> {tables_after} KiB");
            assert!(
                rss_after < rss + 4 * KIB,
                "{rss} -> {rss_after} KiB resident"
            );
            assert!(
                tables_after < tables + KIB,
                "{tables} -> {tables_after} KiB of page tables"
            );
            assert_eq!(pool.stats().stacks_in_use, 1);
            assert_eq!(hot.give(held), Given::Kept);
        },
    );
    assert_lived(&output);
}

/// Takes stacks until there is none, and answers the error and their number.
fn exhaust(hot: &mut HotStacks, bytes: usize) -> (NoStack, Vec<Stack>) {
    let mut stacks = Vec::with_capacity(1 << 17);
    loop {
        match take_one(hot, bytes) {
            Ok(stack) => stacks.push(stack),
            Err(error) => return (error, stacks),
        }
    }
}

/// The limit, unless it is so high here that reaching it takes too much.
fn reachable_map_limit() -> Option<usize> {
    map::max_mappings().filter(|max| *max <= 1 << 17)
}

#[test]
fn mprotect_guards_leave_mappings_for_the_program_and_name_the_limit() {
    let output = in_child(
        module_path!(),
        "mprotect_guards_leave_mappings_for_the_program_and_name_the_limit",
        || {
            let Some(max) = reachable_map_limit() else {
                return;
            };
            let mut hot = hot(GuardChoice::ForceMprotect, 16 * KIB);
            let (error, mut stacks) = exhaust(&mut hot, 16 * KIB);
            assert!(
                error
                    .to_string()
                    .contains(&format!("vm.max_map_count = {max}")),
                "{error}"
            );
            assert!(stacks.len() > max * 2 / 5, "{}", stacks.len());
            std::thread::spawn(|| ())
                .join()
                .expect("a thread can still start");
            // One that comes back is had again, and after a trim new ones are too.
            let pool = hot.pool().clone();
            assert_eq!(hot.give(stacks.pop().unwrap()), Given::Kept);
            stacks.push(take_one(&mut hot, 16 * KIB).unwrap());
            give_all(&mut hot, stacks);
            let _ = hot.flush();
            let _ = pool.trim(Trim::All);
            assert!(map::count_mappings().unwrap() < max / 4);
            drop(take_one(&mut hot, 64 * KIB).unwrap());
        },
    );
    assert_lived(&output);
}

#[test]
fn a_kernel_without_mappings_left_is_named_with_its_limit() {
    if under_sanitizer() {
        return;
    }
    let output = in_child(
        module_path!(),
        "a_kernel_without_mappings_left_is_named_with_its_limit",
        || {
            let Some(max) = reachable_map_limit() else {
                return;
            };
            let mut hot = hot(GuardChoice::ForceMprotect, 16 * KIB);
            let first = take_one(&mut hot, 16 * KIB).unwrap();
            // Somebody else uses up most of what there is.
            let page = page_size();
            let others = Mapping::reserve(max * page, page).unwrap();
            let leave = 600;
            let used = map::count_mappings().unwrap() + leave;
            for split in 0..max.saturating_sub(used) / 2 {
                let start = others.start() + (2 * split + 1) * page;
                // SAFETY: a page of our own mapping.
                unsafe { map::protect(Span { start, len: page }) }.unwrap();
            }
            let (error, stacks) = exhaust(&mut hot, 16 * KIB);
            drop(others); // so that what follows can allocate
            let text = error.to_string();
            assert!(
                text.contains(&format!("vm.max_map_count = {max}")),
                "{text}"
            );
            assert!(
                text.contains("mprotect failed") && text.contains("os error 12"),
                "{text}"
            );
            assert!(stacks.len() < 2 * leave);
            drop((first, take_one(&mut hot, 16 * KIB).unwrap()));
        },
    );
    assert_lived(&output);
}

#[test]
fn mappings_of_free_stacks_of_another_class_are_taken_back() {
    let test = "mappings_of_free_stacks_of_another_class_are_taken_back";
    let output = in_child(module_path!(), test, || {
        if reachable_map_limit().is_none() {
            return;
        }
        let mut hot = hot(GuardChoice::ForceMprotect, 16 * KIB);
        let (_, stacks) = exhaust(&mut hot, 16 * KIB);
        take_one(&mut hot, 32 * KIB).expect_err("all guards are in use");
        give_all(&mut hot, stacks);
        let stack = take_one(&mut hot, 32 * KIB).expect("the free ones made room");
        assert_eq!(hot.give(stack), Given::Kept);
    });
    assert_lived(&output);
}

#[test]
fn a_process_without_addresses_gets_an_error_that_names_mmap() {
    let output = in_child(
        module_path!(),
        "a_process_without_addresses_gets_an_error_that_names_mmap",
        || {
            let mut hot = hot(GuardChoice::Auto, 256 << 20);
            let now = status_kib("VmSize") * KIB;
            let limit = (now + (1200 << 20)) as libc::rlim_t;
            // SAFETY: a valid limit.
            let rc = unsafe {
                libc::setrlimit(
                    libc::RLIMIT_AS,
                    &libc::rlimit {
                        rlim_cur: limit,
                        rlim_max: limit,
                    },
                )
            };
            assert_eq!(rc, 0);
            let (error, mut stacks) = exhaust(&mut hot, 256 << 20);
            let text = error.to_string();
            assert!(
                text.contains("mmap failed") && text.contains("memory"),
                "{text}"
            );
            assert!(!stacks.is_empty());
            assert_eq!(hot.give(stacks.pop().unwrap()), Given::Kept);
            drop(take_one(&mut hot, 256 << 20).unwrap());
        },
    );
    assert_lived(&output);
}

/// Makes a system call fail with `errno` from now on, as a container may;
/// `third` narrows it to one value of the third argument.
fn refuse(call: libc::c_long, third: Option<u32>, errno: i32) {
    let word = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let (load, jump, ret) = (
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        libc::BPF_RET | libc::BPF_K,
    );
    // Offsets in seccomp_data: the number, and the low half of argument 2.
    let mut program = vec![word(load, 0, 0, 0)];
    match third {
        None => program.push(word(jump, call as u32, 0, 1)),
        Some(third) => program.extend([
            word(jump, call as u32, 0, 3),
            word(load, 16 + 2 * 8, 0, 0),
            word(jump, third, 0, 1),
        ]),
    }
    program.push(word(ret, libc::SECCOMP_RET_ERRNO | errno as u32, 0, 0));
    program.push(word(ret, libc::SECCOMP_RET_ALLOW, 0, 0));
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: `filter` points to a program that outlives the calls.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER as libc::c_ulong;
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter),
            0
        );
    }
}

#[test]
fn without_process_madvise_guards_go_one_at_a_time() {
    let test = "without_process_madvise_guards_go_one_at_a_time";
    let output = in_child(module_path!(), test, || {
        refuse(libc::SYS_process_madvise, None, libc::EPERM);
        let mut hot = hot(GuardChoice::Auto, 64 * KIB);
        let stacks: Vec<Stack> = (0..200)
            .map(|_| take_one(&mut hot, 64 * KIB).unwrap())
            .collect();
        stacks.iter().for_each(touch);
        give_all(&mut hot, stacks);
        let pool = hot.pool().clone();
        drop(hot);
        assert!(pool.trim(Trim::All).stacks > 100);
    });
    assert_lived(&output);
    let text = stderr(&output);
    assert_eq!(text.matches("sinew:").count(), 1, "said once: {text}");
}

#[test]
fn without_guard_regions_stacks_are_guarded_by_mprotect() {
    let test = "without_guard_regions_stacks_are_guarded_by_mprotect";
    let output = in_child(module_path!(), test, || {
        refuse(libc::SYS_process_madvise, None, libc::ENOSYS);
        refuse(libc::SYS_madvise, Some(102), libc::EINVAL);
        let mut hot = hot(GuardChoice::Auto, 64 * KIB);
        let stacks: Vec<Stack> = (0..200)
            .map(|_| take_one(&mut hot, 64 * KIB).unwrap())
            .collect();
        stacks.iter().for_each(touch);
        assert_eq!(hot.pool().stats().guard, GuardKind::Mprotect);
        assert!(map::count_mappings().unwrap() > 200);
        give_all(&mut hot, stacks);
    });
    assert_lived(&output);
    let text = stderr(&output);
    assert_eq!(text.matches("sinew:").count(), 1, "said once: {text}");
    assert!(text.contains("guarded by mprotect"), "{text}");
}
