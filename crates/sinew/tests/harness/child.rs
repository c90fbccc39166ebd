//! This test program once more, as a child.

use std::process::Command;

/// The variable with the program that runs test programs, and its arguments: an emulator,
/// where the kernel cannot start programs for the target by itself.
const RUNNER: &str = "SINEW_TEST_RUNNER";

/// Starts this program again, by `$SINEW_TEST_RUNNER` if that is set.
pub fn this_program() -> Command {
    let this = std::env::current_exe().unwrap();
    let runner = std::env::var(RUNNER).unwrap_or_default();
    let mut words = runner.split_whitespace();
    match words.next() {
        None => Command::new(this),
        Some(runner) => {
            let mut command = Command::new(runner);
            command.args(words).arg(this);
            command
        }
    }
}
