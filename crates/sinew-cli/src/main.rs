//! The `sinew` program: a tour of the runtime, and its benchmarks.

mod args;
mod bench;
mod tour;

use std::process::ExitCode;

use args::Command;

#[global_allocator]
static ALLOCATOR: bench::alloc::Counting = bench::alloc::Counting;

fn main() -> ExitCode {
    match args::parse(std::env::args_os().skip(1)) {
        Ok(Command::Tour(options)) => tour::run(&options),
        Ok(Command::Bench(options)) => bench::run(&options),
        Ok(Command::Work(order)) => bench::work::run(order),
        Ok(Command::Load(order)) => bench::load::run(&order),
        Ok(Command::Help) => {
            print!("{}", args::HELP);
            ExitCode::SUCCESS
        }
        Ok(Command::Version) => {
            println!("sinew {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("sinew: {problem}; try `sinew help`");
            ExitCode::from(2)
        }
    }
}
