//! What a profiler sees of a fiber.

/// Follows the chain of frame pointers from the caller's frame; answers the
/// number of frames, and whether the chain ended with a null pointer.
#[cfg(all(
    sinew_frame_pointers,
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
#[inline(never)]
fn walk() -> (usize, bool) {
    let mut frame: *const usize;
    // SAFETY: reads the frame pointer register.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        std::arch::asm!("mov {}, rbp", out(reg) frame, options(nomem, nostack));
        #[cfg(target_arch = "aarch64")]
        std::arch::asm!("mov {}, x29", out(reg) frame, options(nomem, nostack));
    }
    let mut frames = 0;
    while !frame.is_null() && frames < 10_000 {
        assert!(frame.is_aligned(), "frame {frames} is at {frame:?}");
        // SAFETY: compiled with frame pointers, so each record holds the address
        // of the next: in the fiber's stack, then in the worker's. If not, this
        // test ends by a fault, which is what it is for.
        frame = unsafe { frame.read() } as *const usize;
        frames += 1;
    }
    (frames, frame.is_null())
}

#[cfg(all(
    sinew_frame_pointers,
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
#[test]
fn a_walk_along_frame_pointers_passes_the_fibers_root_and_ends_cleanly() {
    for workers in [1, 2] {
        let runtime = crate::Runtime::builder().workers(workers).build().unwrap();
        runtime.run(|| {
            for _ in 0..3 {
                let (frames, ended) = walk();
                assert!(ended, "no end after {frames} frames");
                // Here, the first frame, the worker's loop, the thread's start.
                assert!(frames > 5, "{frames}");
                crate::yield_now();
            }
        });
    }
}
